package outbox

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/maintenance"
)

// Recovery constants of S1, in code on purpose (S1-012 to S1-015).
const (
	// RecoveryGrace is RECOVERY_DISPATCH_GRACE_SECONDS=300: how long a pending
	// row may wait for its delivery before it counts as stalled (S1-329).
	RecoveryGrace = 300 * time.Second
	// RecoveryCooldown is how long a claimed row is left alone (S1-291).
	RecoveryCooldown = 15 * time.Second
	// RecoveryBatch is the rows of one claim (S1-282).
	RecoveryBatch = 50
)

// RecoveryClaim says how many rows a sweep takes and when.
type RecoveryClaim struct {
	Grace    time.Duration // 0: every pending row counts as stalled
	Cooldown time.Duration // clamped to 1–300 s (S1-292)
	Limit    int           // clamped to 1–100 (S1-304)
}

// Clamped is the claim as it is carried out.
func (c RecoveryClaim) Clamped() RecoveryClaim {
	c.Limit = min(max(c.Limit, 1), 100)
	c.Cooldown = min(max(c.Cooldown, time.Second), 300*time.Second)
	return c
}

// ClaimRecoverable takes, through an open gate (S1-302), deploy rows that nobody works on: pending ones that
// have stalled for the grace, and leased ones whose lease has ended. Each is
// stamped with a mark of whole seconds that no earlier claim has had, by which
// a stale publisher loses (S1-289, S1-290). Rows that others hold are passed
// over.
func (o *Outbox) ClaimRecoverable(ctx context.Context, c RecoveryClaim) ([]models.Outbox, error) {
	if len(o.scope.Namespaces()) == 0 { // S1-042
		return nil, nil
	}
	var rows []models.Outbox
	// gofail: var recoveryClaimBefore string
	// if err := failpoint.Act(recoveryClaimBefore); err != nil { return nil, err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		var err error
		rows, err = o.claimRecoverable(tx, c.Clamped())
		return err
	})
	// gofail: var recoveryClaimAfter string
	// if err == nil { err = failpoint.Act(recoveryClaimAfter) }
	if err != nil {
		return nil, fmt.Errorf("claim recoverable deployments: %w", err)
	}
	return rows, nil
}

// claimRecoverable asks for one status at a time, in the order of the index, so
// that a claim reads and locks what it takes and next to nothing else.
func (o *Outbox) claimRecoverable(tx *database.Tx, c RecoveryClaim) ([]models.Outbox, error) {
	gate, err := o.Gate(tx)
	if err != nil || gate != maintenance.Open { // S1-302
		return nil, err
	}
	now, err := tx.Now()
	if err != nil {
		return nil, err
	}
	var claimed []models.Outbox
	for _, candidates := range []func(*gorm.DB) *gorm.DB{
		func(q *gorm.DB) *gorm.DB {
			return q.Where("status = ? AND next_attempt_at IS NULL AND updated_at <= ?", models.OutboxPending, now.Add(-c.Grace))
		},
		func(q *gorm.DB) *gorm.DB {
			return q.Where("status = ? AND next_attempt_at <= ? AND updated_at <= ?", models.OutboxPending, now, now.Add(-c.Grace)).Order("next_attempt_at")
		},
		func(q *gorm.DB) *gorm.DB {
			return q.Where("status = ? AND lease_expires_at <= ? AND (next_attempt_at IS NULL OR next_attempt_at <= ?)", models.OutboxLeased, now, now)
		},
	} {
		if len(claimed) >= c.Limit {
			break
		}
		var rows []models.Outbox
		err := candidates(tx.SkipLocked()).Scopes(o.unfenced).Where("operation = ? AND dispatch_namespace IN ?", models.OperationDeploy, o.scope.Namespaces()).
			Limit(c.Limit - len(claimed)).Find(&rows).Error
		if err != nil {
			return nil, err
		}
		err = stamp(tx, rows, now.Add(c.Cooldown))
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, rows...)
	}
	return claimed, nil
}

// unfenced leaves out the pending rows that ClaimDeferred publishes.
func (o *Outbox) unfenced(query *gorm.DB) *gorm.DB {
	if !o.scope.OnPrem() {
		return query
	}
	return query.Where("NOT (status = ? AND last_error_code = ?)", models.OutboxPending, CodeFenced)
}

// stamp writes each row's new mark: whole seconds, never one that the row has
// had before.
func stamp(tx *database.Tx, rows []models.Outbox, due time.Time) error {
	for i := range rows {
		mark := due.Truncate(time.Second)
		if old := rows[i].NextAttemptAt; old != nil && !mark.After(*old) {
			mark = old.Truncate(time.Second).Add(time.Second)
		}
		stamped := tx.Model(&models.Outbox{}).Where("id = ? AND status = ?", rows[i].ID, rows[i].Status).
			UpdateColumns(map[string]any{"next_attempt_at": mark})
		err := database.Exactly(stamped, "stamp the row")
		if err != nil {
			return err
		}
		rows[i].NextAttemptAt = &mark
	}
	return nil
}

// SettleOrphan ends a claimed row whose Worker is gone: failed with
// worker_deleted, without an audit fact, because the rows that it would speak
// of are gone too (S1-295 to S1-301). It is fenced by the claim's mark and
// reports whether the row was such a one.
func (o *Outbox) SettleOrphan(ctx context.Context, row models.Outbox) (bool, error) {
	orphan := false
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		orphan = false
		var workers int64
		err := tx.Model(&models.Worker{}).Where("id = ?", row.WorkerID).Count(&workers).Error
		if err != nil || workers > 0 {
			return err
		}
		orphan = true
		return claimed(tx, row, map[string]any{
			"status": models.OutboxFailed, "last_error_code": "worker_deleted", "last_error": "the Worker row no longer exists",
			"lease_owner": "", "lease_expires_at": nil, "next_attempt_at": nil,
		}, "settle the orphaned row")
	})
	if err != nil {
		return false, fmt.Errorf("settle the orphaned row: %w", err)
	}
	return orphan, nil
}

// EndLeases ends the leases of an owner that is known to be dead, such as the
// previous process over a data folder that only one may open, and forgets the
// marks of this environment's claims, whose publishers died with it. Whoever
// takes the rows over then finds them as it would after their own time.
func (o *Outbox) EndLeases(ctx context.Context, owner string) (int64, error) {
	var ended int64
	prefix := owner + ":"
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		result := tx.Model(&models.Outbox{}).
			Where("operation = ? AND status = ? AND SUBSTR(lease_owner, 1, ?) = ? AND lease_expires_at > ?",
				models.OperationDeploy, models.OutboxLeased, utf8.RuneCountInString(prefix), prefix, now). // LIKE has wildcards and, in SQLite, folds case
			UpdateColumns(map[string]any{"lease_expires_at": now})
		ended = result.RowsAffected
		if result.Error != nil {
			return result.Error
		}
		return tx.Model(&models.Outbox{}).
			Where("operation = ? AND status IN ? AND next_attempt_at IS NOT NULL AND dispatch_namespace IN ?", models.OperationDeploy,
				[]models.OutboxStatus{models.OutboxPending, models.OutboxLeased}, o.scope.Namespaces()).
			UpdateColumns(map[string]any{"next_attempt_at": nil}).Error
	})
	if err != nil {
		return 0, fmt.Errorf("end the leases of %s: %w", owner, err)
	}
	return ended, nil
}
