package deploy

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
)

// settle writes the outcome in one transaction of its own context, so that a
// shutdown does not lose what the task has seen. It returns what the transport
// is to do: nil acknowledges.
func (r *run) settle(ctx context.Context, out outcome) error {
	r.stage("settlement")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	switch out.kind {
	case stopped:
		r.log.WarnContext(ctx, "deployment left to its new owner", "error", out.cause)
		return ErrInFlight
	case abandoned:
		r.log.WarnContext(ctx, "deployment left to the recovery sweep", "error", out.cause)
		return fmt.Errorf("%w: %w", ErrRetry, out.cause)
	case completed, failed, uncertain, retryable, deferred:
	}
	err := r.write(ctx, out)
	if err != nil {
		if errors.Is(err, outbox.ErrLeaseLost) {
			return ErrInFlight
		}
		return fmt.Errorf("settle the deployment as %s: %w", out.kind, err)
	}
	r.settled = out.kind
	r.p.Metrics.settled(out, r.started)
	r.log.InfoContext(ctx, "deployment settled", "ticket_id", r.lease.Row.TicketID, "version_id", r.lease.Row.VersionID,
		"verdict", string(out.kind), "code", out.code, "attempt", r.lease.Attempts, "error", out.cause)
	if out.kind == retryable || out.kind == deferred {
		return ErrRetry
	}
	return nil
}

// write runs the settlement's transaction. When its acknowledgement is lost
// the row itself tells: if this lease still holds it, nothing was committed
// and the same settlement is written again.
func (r *run) write(ctx context.Context, out outcome) error {
	for attempt := 1; ; attempt++ {
		// gofail: var settleBefore string
		// if err := failpoint.Act(settleBefore); err != nil { return err }
		err := r.p.DB.Tx(ctx, func(tx *database.Tx) error { return r.apply(tx, out) })
		// gofail: var settleAfter string
		// if err == nil { err = failpoint.Act(settleAfter) }
		var unknown *database.CommitUnknownError
		if !errors.As(err, &unknown) || attempt == maxWrites {
			return err
		}
		held, readErr := r.stillHeld(ctx)
		if readErr != nil {
			return errors.Join(unknown, readErr)
		}
		if !held {
			return nil // only this lease's own settlement can have ended it while it was alive
		}
	}
}

// maxWrites bounds the settlements that one run sends.
const maxWrites = 3

func (r *run) stillHeld(ctx context.Context) (bool, error) {
	var n int64
	err := r.p.DB.Read(ctx).Model(&models.Outbox{}).
		Where("id = ? AND status = ? AND lease_owner = ?", r.lease.OutboxID, models.OutboxLeased, r.lease.Token).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("read the settlement back: %w", err)
	}
	return n == 1, nil
}

// apply writes row, version, Worker and audit fact together. The outbox row is
// locked and verified first, then Worker and version.
func (r *run) apply(tx *database.Tx, out outcome) error {
	held, err := r.hold(tx)
	if errors.Is(err, errWorkerDeleted) {
		return outbox.Settle(tx, r.lease, models.OutboxFailed, codeWorkerDeleted, errWorkerDeleted.Error())
	}
	if err != nil {
		return err
	}
	worker, now := held.Worker, held.Version
	switch out.kind {
	case completed:
		err = r.complete(tx, worker, now)
	case failed:
		err = r.fail(tx, worker, now, out)
	case uncertain:
		err = r.pause(tx, worker, now, out)
	case retryable:
		return r.withdraw(tx, worker, now, r.lease.Attempts, out.code)
	case deferred: // not counted (S2-227)
		return r.withdraw(tx, worker, now, r.lease.Attempts-1, out.code)
	default:
		return fmt.Errorf("no settlement for %q", out.kind)
	}
	if err != nil {
		return err
	}
	return r.audit(tx, out)
}

// complete is the success settlement: the previous current version becomes
// superseded, this one deployed, the Worker active, the ticket completed
// (S2-190 to S2-194).
func (r *run) complete(tx *database.Tx, worker models.Worker, now models.Version) error {
	if worker.CurrentVersionID != "" && worker.CurrentVersionID != now.ID {
		err := version.Move(tx, worker.CurrentVersionID, models.VersionDeployed, models.VersionSuperseded, version.Evidence{})
		if err != nil {
			return err
		}
	}
	deployedAt, err := tx.Now()
	if err != nil {
		return err
	}
	err = version.Move(tx, now.ID, models.VersionDeploying, models.VersionDeployed, version.Evidence{DeployedAt: &deployedAt})
	if err != nil {
		return err
	}
	err = version.SetWorker(tx, worker.ID, map[string]any{"current_version_id": now.ID, "status": models.WorkerActive})
	if err != nil {
		return err
	}
	return outbox.Settle(tx, r.lease, models.OutboxCompleted, "", "")
}

// fail is the terminal failure: the Worker goes back to what it last was
// (S2-221, S2-222) and only fixed texts are stored (S2-228, S2-229).
func (r *run) fail(tx *database.Tx, worker models.Worker, now models.Version, out outcome) error {
	text := out.text
	if text == "" {
		text = failedText
	}
	if now.State == models.VersionDeployPending || now.State == models.VersionDeploying {
		err := version.Move(tx, now.ID, now.State, models.VersionFailed, version.Evidence{ErrorCode: out.code, ErrorMessage: text})
		if err != nil {
			return err
		}
	}
	err := version.SetWorker(tx, worker.ID, map[string]any{"status": version.SettledStatus(worker)})
	if err != nil {
		return err
	}
	return outbox.Settle(tx, r.lease, models.OutboxFailed, out.code, text)
}

// uncertainText is stored with every uncertain version; causes stay in logs.
const uncertainText = "deployment outcome is uncertain"

// pause is the uncertain settlement: always paused, the fence stays (S2-213,
// S2-081).
func (r *run) pause(tx *database.Tx, worker models.Worker, now models.Version, out outcome) error {
	err := version.Move(tx, now.ID, models.VersionDeploying, models.VersionUncertain, version.Evidence{ErrorCode: out.code, ErrorMessage: uncertainText})
	if err != nil {
		return err
	}
	err = version.SetWorker(tx, worker.ID, map[string]any{"status": models.WorkerPaused})
	if err != nil {
		return err
	}
	return outbox.Settle(tx, r.lease, models.OutboxUncertain, out.code, uncertainText)
}

// withdraw takes the fence back, if it stands, and returns the row to pending
// (S2-201, S2-202, S2-224, S2-225).
func (r *run) withdraw(tx *database.Tx, worker models.Worker, now models.Version, attempts int, code string) error {
	if now.State == models.VersionDeploying {
		err := version.Move(tx, now.ID, models.VersionDeploying, models.VersionDeployPending, version.Evidence{})
		if err != nil {
			return err
		}
		err = version.SetWorker(tx, worker.ID, map[string]any{"status": version.SettledStatus(worker)})
		if err != nil {
			return err
		}
	}
	return outbox.Return(tx, r.lease, attempts, code)
}

func (r *run) audit(tx *database.Tx, out outcome) error {
	results := map[verdict]string{completed: audit.Succeeded, failed: audit.Failed, uncertain: audit.Uncertain}
	action := "deployment." + string(out.kind)
	return audit.Write(tx, audit.Fact{
		// A repaired deployment settles again, so the lease is part of the id.
		ID:     audit.ID(action, r.lease.OutboxID, r.lease.Token, strconv.FormatInt(r.lease.Row.AdmissionSequence, 10)),
		Tenant: r.request.Tenant, Actor: audit.System("edge-worker-deploy"), Action: action,
		ResourceType: "edge_worker", ResourceID: r.lease.Row.WorkerID, Result: results[out.kind], ReasonCode: out.code,
		Digest: r.version.BundleDigest,
	})
}
