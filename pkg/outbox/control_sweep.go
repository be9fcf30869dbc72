package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Control-audit constants of S1, in code on purpose.
const (
	// ControlLeaseTTL is CONTROL_AUDIT_LEASE_SECONDS=120 (S1-324).
	ControlLeaseTTL = 120 * time.Second
	// ControlBatch is CONTROL_AUDIT_MAX_BATCH=50: no claim takes more (S1-325).
	ControlBatch = 50
)

// Codes of control rows that were not settled as done.
const (
	CodeReceiptNotFound    = "control_receipt_not_found"
	CodeReceiptUnavailable = "control_receipt_unavailable"
	CodeReceiptAck         = "control_receipt_ack_failed"
	CodeWorkerRetired      = "worker_retired"
	CodeLegacyTarget       = "legacy_serving_target_unavailable"
	// CodeControlPayload is that of a row whose payload cannot be used.
	CodeControlPayload = "control_payload_invalid"
)

// ClaimControlAudits is claim_recoverable_control_audits: it leases due control
// rows of the environment's scope, and rows whose last lease has ended, each
// with one attempt more. limit is clamped to 1–50. Rows that others hold are
// passed over. The leases share one fresh token.
func (o *Outbox) ClaimControlAudits(ctx context.Context, owner string, limit int) ([]Lease, error) {
	if len(o.scope.Namespaces()) == 0 { // S1-042
		return nil, nil
	}
	token := owner + ":" + uuid.NewString()
	limit = min(max(limit, 1), ControlBatch)
	var leases []Lease
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		var err error
		leases, err = o.claimDue(tx, models.OperationControlAudit, token, limit, ControlLeaseTTL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim control rows: %w", err)
	}
	return leases, nil
}

// SettleControl ends a leased control row in the caller's transaction, fenced
// by the lease's token; a lost lease is ErrLeaseLost. The transaction that
// completes a row also writes its audit fact.
func SettleControl(tx *database.Tx, lease Lease, to models.OutboxStatus, code, text string) error {
	err := mayEnd(to)
	if err != nil {
		return err
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	err = endLease(tx, lease, endColumns(to, code, text, now))
	if err != nil {
		return fmt.Errorf("settle the control row as %s: %w", to, err)
	}
	return nil
}

// RetryControl puts a leased control row back after a failure; it falls due by
// the back-off ladder.
func (o *Outbox) RetryControl(ctx context.Context, lease Lease, code, text string) error {
	return o.putControlBack(ctx, lease, func(now time.Time) map[string]any {
		return map[string]any{"next_attempt_at": ceil(now.Add(backOff(lease.Attempts))), "last_error_code": code, "last_error": nullable(text)}
	})
}

// ReleaseControl puts a leased control row back that nothing was done for; it
// is due again at once and its attempt is not counted.
func (o *Outbox) ReleaseControl(ctx context.Context, lease Lease) error {
	return o.putControlBack(ctx, lease, func(now time.Time) map[string]any {
		mark := now.Truncate(time.Second)
		if old := lease.Row.NextAttemptAt; old != nil && !mark.After(*old) {
			mark = old.Add(time.Second) // a mark never repeats
		}
		return map[string]any{"next_attempt_at": mark, "attempts": lease.Row.Attempts}
	})
}

func (o *Outbox) putControlBack(ctx context.Context, lease Lease, change func(now time.Time) map[string]any) error {
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		columns := change(now)
		columns["status"] = models.OutboxPending
		return endLease(tx, lease, columns)
	})
	if err != nil {
		return fmt.Errorf("put the control row back: %w", err)
	}
	return nil
}
