package maintenance

import (
	"context"
	"errors"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Confirmation is what is to be done when row and edge host are compared.
type Confirmation string

// The confirmations.
const (
	// Agree: both say the same.
	Agree Confirmation = "agree"
	// BeginAgain: the beginning did not reach the host.
	BeginAgain Confirmation = "begin_again"
	// EndAgain: the end did not reach the host.
	EndAgain Confirmation = "end_again"
	// Clear: the end reached the host and its confirmation did not reach the row.
	Clear Confirmation = "clear"
	// Disagree: row and host are not of one history. One of both was restored
	// from a backup, and nothing may be deployed before somebody has looked.
	Disagree Confirmation = "disagree"
)

// Confirm compares the row's fence_id with the host's fence:
//
//	row        host                      what it is                    what is done
//	""         none up                   no fence                      Agree
//	""         some fence up             the database is older         Disagree
//	id         id up                     a backup is being made        Agree
//	id         none up, id ended         restored from that backup     Disagree
//	id         none up, id not ended     a lost beginning              BeginAgain
//	ending:id  id up, or never seen      a lost end                    EndAgain
//	ending:id  none up, id ended         a lost confirmation           Clear
//	any id     another fence up          one of both is older          Disagree
func Confirm(fenceID string, host provider.Fence) Confirmation {
	id, ending := fenceOf(models.Maintenance{FenceID: fenceID})
	switch {
	case host.Active != "" && host.Active != id:
		return Disagree
	case id == "":
		return Agree
	case ending && host.Active == "" && host.Ended == id:
		return Clear
	case ending:
		return EndAgain
	case host.Active == id:
		return Agree
	case host.Ended == id:
		return Disagree
	}
	return BeginAgain
}

// Reconcile compares row and host once and does what Confirm says (S1-344). The
// host's answer counts only for the row from before and after the question: what
// has changed meanwhile is left to the next round.
func (k *Keeper) Reconcile(ctx context.Context) (Confirmation, error) {
	row, err := k.row(ctx)
	if errors.Is(err, errRowMissing) || err == nil && row.RestorePending {
		return Agree, nil // the gate is closed, and only a person opens it
	}
	if err != nil {
		return "", err
	}
	host, err := k.hostFence(ctx)
	if err != nil {
		return "", err
	}
	found, actor := Confirm(row.FenceID, host), audit.System("edge-worker-maintenance")
	id, _ := fenceOf(row)
	switch found {
	case Agree:
	case BeginAgain:
		_, err = k.p.Host.BeginFence(ctx, id)
	case EndAgain:
		_, err = k.finish(ctx, actor, row)
	case Clear:
		_, err = k.clear(ctx, actor, id)
	case Disagree:
		err = k.guard(ctx, actor, row, host)
	}
	if errors.Is(err, models.ErrStaleTransition) {
		return Agree, nil
	}
	return found, err
}

// guard closes the gate over a database and an edge host of two histories.
func (k *Keeper) guard(ctx context.Context, actor audit.Actor, row models.Maintenance, host provider.Fence) error {
	err := k.apply(ctx, actor, row, step{
		set: map[string]any{"restore_pending": true}, actions: []string{"maintenance.restore_begun"}, reason: "backup_fence_mismatch",
	})
	if err == nil {
		k.p.Log.ErrorContext(ctx, "database and edge host disagree on the backup fence; deployments are refused until the restore is ended",
			"row_fence", row.FenceID, "host_active", host.Active, "host_ended", host.Ended)
	}
	return err
}
