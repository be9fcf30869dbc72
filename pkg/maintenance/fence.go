package maintenance

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// endingPrefix stands before the id of a fence whose end was asked for and is
// not confirmed yet.
const endingPrefix = "ending:"

// fenceOf is the row's fence, empty without one, and whether it is ending.
func fenceOf(row models.Maintenance) (string, bool) {
	id, ending := strings.CutPrefix(row.FenceID, endingPrefix)
	return id, ending
}

// BeginFence begins a backup fence: first the row, behind which nothing is
// published or run, and then the edge host, behind whose fence no script
// changes. true: both stand and a backup may be made. false: the host has not
// confirmed; the request is repeated, or Confirm's next round asks again.
func (k *Keeper) BeginFence(ctx context.Context, actor audit.Actor) (Status, bool, error) {
	row, err := k.change(ctx, actor, planFence)
	if err != nil {
		return Status{}, false, err
	}
	if k.p.Host == nil {
		return statusOf(row), false, nil
	}
	_, err = k.p.Host.BeginFence(ctx, row.FenceID)
	if err != nil {
		k.p.Log.WarnContext(ctx, "backup fence not confirmed by the edge host", "fence", row.FenceID, "error", err)
	}
	return statusOf(row), err == nil, nil
}

func planFence(row models.Maintenance) (*step, error) {
	_, ending := fenceOf(row)
	switch {
	case row.State == models.MaintenanceActive:
		return nil, errResyncing
	case row.RestorePending:
		return nil, errRestoring
	case ending:
		return nil, errFenceEnding
	case row.FenceID != "":
		return nil, nil
	}
	return &step{set: map[string]any{"fence_id": uuid.NewString()}, actions: []string{"maintenance.fence_begun"}}, nil
}

// EndFence ends the backup fence: first the row says so, then the edge host ends
// its own, and its answer opens the gate. true: the end is confirmed. false: it
// is not; the request is repeated, or Confirm's next round asks again.
func (k *Keeper) EndFence(ctx context.Context, actor audit.Actor) (Status, bool, error) {
	row, err := k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		id, ending := fenceOf(row)
		if id == "" || ending {
			return nil, nil
		}
		return &step{set: map[string]any{"fence_id": endingPrefix + id}}, nil
	})
	if err != nil {
		return Status{}, false, err
	}
	if row.FenceID == "" {
		return statusOf(row), true, nil
	}
	row, err = k.finish(ctx, actor, row)
	return statusOf(row), err == nil, nil
}

// finish ends the host's fence of an ending row and clears the row. It returns
// the row that stands then.
func (k *Keeper) finish(ctx context.Context, actor audit.Actor, row models.Maintenance) (models.Maintenance, error) {
	id, _ := fenceOf(row)
	err := k.endAtHost(ctx, id)
	if err == nil {
		var after models.Maintenance
		after, err = k.clear(ctx, actor, id)
		if err == nil {
			return after, nil
		}
	}
	k.p.Log.WarnContext(ctx, "the end of the backup fence is not confirmed", "fence", id, "error", err)
	return row, err
}

func (k *Keeper) endAtHost(ctx context.Context, id string) error {
	if k.p.Host == nil {
		return errHostUnavailable
	}
	_, err := k.p.Host.EndFence(ctx, id)
	return err
}

// clear is the confirmation of a fence's end.
func (k *Keeper) clear(ctx context.Context, actor audit.Actor, id string) (models.Maintenance, error) {
	return k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		if row.FenceID != endingPrefix+id {
			return nil, nil
		}
		return &step{set: map[string]any{"fence_id": ""}, actions: []string{"maintenance.fence_ended"}}, nil
	})
}

func (k *Keeper) hostFence(ctx context.Context) (provider.Fence, error) {
	if k.p.Host == nil {
		return provider.Fence{}, errHostUnavailable
	}
	return k.p.Host.Fence(ctx)
}
