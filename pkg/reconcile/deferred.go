package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
)

// Deferred is the on-prem lane of deployments that wait for a backup fence's end:
// through an open gate they are published, the oldest first (S1-050, S1-315 to
// S1-321).
type Deferred struct{ r *Republisher }

// NewDeferred returns the lane. p.Claim is not used.
func NewDeferred(p RepublishParams) *Deferred { return &Deferred{r: NewRepublisher(p)} }

// Name is the lane's name in logs and metrics.
func (d *Deferred) Name() string { return "deferred" }

// RunOnce publishes all rows that are due now. The budget ends it between two
// chunks; what is left is the next round's.
func (d *Deferred) RunOnce(ctx context.Context, budget time.Duration) (Result, error) {
	result, pass := Result{}, d.r.p.Outbox.ClaimDeferred()
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < budget; {
		rows, err := pass.Next(ctx)
		if err != nil || len(rows) == 0 {
			return result, err
		}
		for _, row := range rows {
			result["claimed"]++
			result[d.one(ctx, row)]++
		}
	}
	return result, nil
}

// one publishes a row and, when the transport has taken it, clears its mark. A
// refused row keeps the mark and is due again after the cool-down.
func (d *Deferred) one(ctx context.Context, row models.Outbox) string {
	if ended := d.r.unpublishable(ctx, row); ended != "" {
		return ended
	}
	err := admission.Publish(ctx, d.r.p.Mirror, d.r.p.Publisher, row)
	if err != nil {
		d.r.p.Log.WarnContext(ctx, "deferred deployment not published; a later round tries again", "outbox_id", row.ID, "error", err)
		return "unpublished"
	}
	err = d.r.p.Outbox.FenceRepublishAccepted(ctx, row)
	if err != nil && !errors.Is(err, models.ErrStaleTransition) { // stale: it is leased already, which clears the mark as well
		d.r.p.Log.WarnContext(ctx, "the mark of a deferred deployment stays; a later round publishes it again", "outbox_id", row.ID, "error", err)
	}
	return "published"
}
