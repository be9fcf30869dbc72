package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/transports"
)

// RepublishParams is what a Republisher is made of.
type RepublishParams struct {
	Outbox    *outbox.Outbox
	Mirror    *ticket.Mirror
	Publisher transports.Publisher
	Log       *slog.Logger
	// Claim replaces the seed's constants where the previous owner is known to
	// be dead; nil keeps them.
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

// RunOnce takes full batches, each at once after the one before, until one is
// not full or the budget is used up. One row's trouble does not keep the
// others waiting. With the legacy transport each publication runs its whole
// deployment before the next row's (S1-294), so the budget stops new batches
// and never a running deployment.
func (r *Republisher) RunOnce(ctx context.Context, budget time.Duration) (Result, error) {
	result := Result{}
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < budget; {
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

// one settles what cannot be published and publishes the rest.
func (r *Republisher) one(ctx context.Context, row models.Outbox) string {
	if ended := r.unpublishable(ctx, row); ended != "" {
		return ended
	}
	err := admission.Publish(ctx, r.p.Mirror, r.p.Publisher, row)
	switch {
	case err == nil:
		return "published"
	case errors.Is(err, transports.ErrRefused):
		err = errors.Join(err, r.p.Outbox.Refused(ctx, row))
	}
	r.p.Log.WarnContext(ctx, "deployment not published; a later round tries again", "outbox_id", row.ID, "error", err)
	return "unpublished"
}

// unpublishable settles a claimed row that no message may speak of and says
// what became of it; empty for every other row.
func (r *Republisher) unpublishable(ctx context.Context, row models.Outbox) string {
	orphan, err := r.p.Outbox.SettleOrphan(ctx, row)
	if err != nil {
		return r.failed(ctx, row, err)
	}
	if orphan {
		return "worker_deleted"
	}
	_, err = outbox.DecodeDeploy(row)
	if err != nil {
		return r.isolate(ctx, row, err)
	}
	return ""
}

func (r *Republisher) failed(ctx context.Context, row models.Outbox, err error) string {
	if errors.Is(err, models.ErrStaleTransition) {
		return "taken"
	}
	r.p.Log.WarnContext(ctx, "recovery of a deployment failed", "outbox_id", row.ID, "error", err)
	return "failed"
}

// isolate ends a row whose payload cannot be used.
func (r *Republisher) isolate(ctx context.Context, row models.Outbox, cause error) string {
	status, err := r.p.Outbox.Isolate(ctx, row, func(tx *database.Tx, status models.OutboxStatus) error {
		return isolateVersion(tx, row, status)
	})
	if err != nil {
		return r.failed(ctx, row, err)
	}
	r.p.Log.ErrorContext(ctx, "deployment isolated: its payload is not valid", "outbox_id", row.ID, "status", string(status), "error", cause)
	return "isolated"
}

func isolateVersion(tx *database.Tx, row models.Outbox, status models.OutboxStatus) error {
	tenant := models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID}
	worker, err := version.WorkerOf(tx.Locked(), tenant)
	if err != nil {
		return err
	}
	target, err := version.Of(tx.Locked(), tenant, row.VersionID)
	if err != nil && !errors.Is(err, version.ErrNoVersion) {
		return err
	}
	evidence := version.Evidence{ErrorCode: outbox.CodePayloadInvalid, ErrorMessage: "deployment failed"}
	switch {
	case target.State == models.VersionDeploying:
		err = version.Move(tx, target.ID, models.VersionDeploying, models.VersionUncertain, evidence)
	case target.State == models.VersionDeployPending && status == models.OutboxFailed:
		err = version.Move(tx, target.ID, models.VersionDeployPending, models.VersionFailed, evidence)
	case target.State == models.VersionDeployPending: // once leased: the ladder's way to uncertain, which a repair starts from
		err = errors.Join(version.Move(tx, target.ID, models.VersionDeployPending, models.VersionDeploying, version.Evidence{}),
			version.Move(tx, target.ID, models.VersionDeploying, models.VersionUncertain, evidence))
	default:
		err = nil
	}
	if err != nil {
		return err
	}
	if status == models.OutboxUncertain {
		err = version.SetWorker(tx, worker.ID, map[string]any{"status": models.WorkerPaused})
		if err != nil {
			return err
		}
	}
	return audit.Write(tx, audit.Fact{
		ID: audit.ID("deployment.isolated", row.ID, row.LeaseOwner), Tenant: tenant, Actor: audit.System("edge-worker-recovery"),
		Action: "deployment." + string(status), ResourceType: "edge_worker", ResourceID: worker.ID,
		Result: string(status), ReasonCode: outbox.CodePayloadInvalid,
	})
}
