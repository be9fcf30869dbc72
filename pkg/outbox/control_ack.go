package outbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// On completed control rows next_attempt_at is the queue of receipts that are
// still to be acknowledged (S1-227), and a mark of whole seconds by which the
// one who claimed a row last settles it (S1-228).

// ClaimControlReceiptAcks is claim_control_receipt_acks: it takes completed
// control rows that are due, each with one attempt more and with a mark that
// keeps others away for ControlLeaseTTL and that the row has never had before.
// limit is clamped to 1–50.
func (o *Outbox) ClaimControlReceiptAcks(ctx context.Context, limit int) ([]models.Outbox, error) {
	if len(o.scope.Namespaces()) == 0 { // S1-042
		return nil, nil
	}
	var rows []models.Outbox
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		var err error
		rows, err = o.claimAcks(tx, min(max(limit, 1), ControlBatch))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim control receipts to acknowledge: %w", err)
	}
	return rows, nil
}

func (o *Outbox) claimAcks(tx *database.Tx, limit int) ([]models.Outbox, error) {
	now, err := tx.Now()
	if err != nil {
		return nil, err
	}
	var rows []models.Outbox
	err = tx.SkipLocked().Where("status = ? AND next_attempt_at <= ?", models.OutboxCompleted, now).
		Where("operation = ? AND dispatch_namespace IN ?", models.OperationControlAudit, o.scope.Namespaces()).
		Order("next_attempt_at").Limit(limit).Find(&rows).Error
	if err != nil {
		return nil, err
	}
	err = stamp(tx, rows, now.Add(ControlLeaseTTL))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
		rows[i].Attempts++
	}
	counted := tx.Model(&models.Outbox{}).Where("id IN ?", ids).UpdateColumns(map[string]any{"attempts": gorm.Expr("attempts + 1")})
	return rows, counted.Error
}

// EndAck takes a claimed row out of the queue: its receipt is acknowledged, or
// nobody can acknowledge it any more and code and text say why. A stale mark is
// models.ErrStaleTransition.
func (o *Outbox) EndAck(ctx context.Context, row models.Outbox, code, text string) error {
	return o.settleAck(ctx, row, func(time.Time) map[string]any {
		return map[string]any{"next_attempt_at": nil, "last_error_code": code, "last_error": nullable(text)}
	})
}

// RetryAck leaves a claimed row in the queue, due by the back-off ladder
// (S1-231, S1-232).
func (o *Outbox) RetryAck(ctx context.Context, row models.Outbox, code, text string) error {
	return o.settleAck(ctx, row, func(now time.Time) map[string]any {
		due := ceil(now.Add(backOff(row.Attempts)))
		if due.Equal(*row.NextAttemptAt) { // a mark never repeats
			due = due.Add(time.Second)
		}
		return map[string]any{"next_attempt_at": due, "last_error_code": code, "last_error": nullable(text)}
	})
}

// ReleaseAck leaves a claimed row in the queue that nothing was done for; its
// attempt is not counted and it is due again when its mark has passed.
func (o *Outbox) ReleaseAck(ctx context.Context, row models.Outbox) error {
	return o.settleAck(ctx, row, func(time.Time) map[string]any {
		return map[string]any{"attempts": row.Attempts - 1}
	})
}

func (o *Outbox) settleAck(ctx context.Context, row models.Outbox, change func(now time.Time) map[string]any) error {
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		columns := change(now)
		columns["updated_at"] = now
		settled := tx.Model(&models.Outbox{}).
			Where("id = ? AND operation = ? AND status = ? AND next_attempt_at = ?", row.ID, models.OperationControlAudit, models.OutboxCompleted, row.NextAttemptAt).
			UpdateColumns(columns)
		return database.Exactly(settled, "settle the acknowledgement")
	})
	if err != nil {
		return fmt.Errorf("acknowledge the control receipt: %w", err)
	}
	return nil
}
