package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/transports"
)

// RepublishParams is what a Republisher is made of.
type RepublishParams struct {
	Outbox    *outbox.Outbox
	Mirror    *ticket.Mirror
	Publisher transports.Publisher
	Log       *slog.Logger
	// Grace and Cooldown replace the seed's constants where the previous
	// owner is known to be dead; nil keeps them.
	Claim *outbox.RecoveryClaim
}

// Republisher is the lane of deployments that nobody works on: stalled pending
// rows and ended leases are published again (S1-280, S1-281).
type Republisher struct{ p RepublishParams }

// NewRepublisher returns the lane.
func NewRepublisher(p RepublishParams) *Republisher {
	if p.Claim == nil {
		p.Claim = &outbox.RecoveryClaim{Grace: outbox.RecoveryGrace, Cooldown: outbox.RecoveryCooldown, Limit: outbox.RecoveryBatch}
	}
	claim := p.Claim.Clamped() // what a full batch is measured by
	p.Claim = &claim
	return &Republisher{p: p}
}

// Name is the lane's name in logs and metrics.
func (r *Republisher) Name() string { return "deployments" }

// RunOnce takes full batches until one is not full or the budget of the
// context ends. One row's trouble does not keep the others waiting.
func (r *Republisher) RunOnce(ctx context.Context) (Result, error) {
	result := Result{}
	for ctx.Err() == nil {
		rows, err := r.p.Outbox.ClaimRecoverable(ctx, *r.p.Claim)
		if err != nil {
			return result, err
		}
		for _, row := range rows {
			result["claimed"]++
			result[r.one(ctx, row)]++
		}
		if len(rows) < r.p.Claim.Limit {
			break
		}
	}
	return result, nil
}

func (r *Republisher) one(ctx context.Context, row models.Outbox) string {
	orphan, err := r.p.Outbox.SettleOrphan(ctx, row)
	switch {
	case errors.Is(err, models.ErrStaleTransition):
		return "taken"
	case err != nil:
		r.p.Log.WarnContext(ctx, "recovery of a deployment failed", "outbox_id", row.ID, "error", err)
		return "failed"
	case orphan:
		return "worker_deleted"
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err = admission.Publish(ctx, r.p.Mirror, r.p.Publisher, row)
	if err != nil {
		r.p.Log.WarnContext(ctx, "deployment not published; it stays for the next round", "outbox_id", row.ID, "error", err)
		return "unpublished"
	}
	return "published"
}

// publishTimeout bounds one publication.
const publishTimeout = 10 * time.Second
