package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Cleanup constants of S0 and S1, in code on purpose.
const (
	// CleanupLeaseTTL is how long claimed intents are one sweep's (S0-76).
	CleanupLeaseTTL = 300 * time.Second
	// CleanupBatch is the intents of one claim (S0-75).
	CleanupBatch = 50
)

// Codes of cleanup intents that a sweep could not settle as done.
const (
	// CodeCleanupPayload is that of an intent whose payload cannot be used (S1-144).
	CodeCleanupPayload = "cleanup_payload_invalid"
	// CodeCleanupFailed is that of an intent whose objects could not be deleted.
	CodeCleanupFailed = "artifact_cleanup_failed"
)

// ClaimCleanups leases due intents of the environment's scope, and intents
// whose last lease has ended, each with one attempt more (S0-73 to S0-76).
// limit is clamped to 1–100 (D19). Rows that others hold are passed over. The
// leases share one fresh token. A lease's Wait is what is left of the intent's
// grace, negative when it has passed.
//
// A claimed intent can never be adopted again, whatever becomes of the sweep:
// see AdoptCleanup.
func (o *Outbox) ClaimCleanups(ctx context.Context, owner string, limit int) ([]Lease, error) {
	if len(o.scope.Namespaces()) == 0 { // S1-042
		return nil, nil
	}
	token := owner + ":" + uuid.NewString()
	limit = min(max(limit, 1), 100)
	var leases []Lease
	// gofail: var cleanupClaimBefore string
	// if err := failpoint.Act(cleanupClaimBefore); err != nil { return nil, err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		asked := time.Now()
		now, err := tx.Now()
		if err != nil {
			return err
		}
		rows, err := o.claimCleanups(tx, token, limit, now)
		if err != nil {
			return err
		}
		leases = make([]Lease, len(rows))
		for i, row := range rows {
			leases[i] = Lease{
				OutboxID: row.ID, Tenant: models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID},
				Token: token, Attempts: row.Attempts + 1, Asked: asked, Row: row, Wait: CleanupGrace - now.Sub(row.CreatedAt),
			}
		}
		return nil
	})
	// gofail: var cleanupClaimAfter string
	// if err == nil { err = failpoint.Act(cleanupClaimAfter) }
	if err != nil {
		return nil, fmt.Errorf("claim cleanup intents: %w", err)
	}
	return leases, nil
}

// claimCleanups asks for one status at a time, in the order of the index.
func (o *Outbox) claimCleanups(tx *database.Tx, token string, limit int, now time.Time) ([]models.Outbox, error) {
	var claimed []models.Outbox
	for _, candidates := range []func(*gorm.DB) *gorm.DB{
		func(q *gorm.DB) *gorm.DB {
			return q.Where("status = ? AND next_attempt_at <= ?", models.OutboxPending, now).Order("next_attempt_at")
		},
		func(q *gorm.DB) *gorm.DB { // no writer leaves one, and none may be lost
			return q.Where("status = ? AND next_attempt_at IS NULL", models.OutboxPending)
		},
		func(q *gorm.DB) *gorm.DB {
			return q.Where("status = ? AND lease_expires_at <= ?", models.OutboxLeased, now)
		},
	} {
		if len(claimed) >= limit {
			break
		}
		var rows []models.Outbox
		err := candidates(tx.SkipLocked()).Where("operation = ? AND dispatch_namespace IN ?", models.OperationArtifactCleanup, o.scope.Namespaces()).
			Limit(limit - len(claimed)).Find(&rows).Error
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, rows...)
	}
	return claimed, take(tx, claimed, token, now, CleanupLeaseTTL)
}

// SettleCleanup ends a leased intent: completed when its objects are gone,
// cancelled with the owning version when they are referenced, failed when its
// payload cannot be used. The update is fenced by the lease's token (S1-154);
// a lost lease is ErrLeaseLost. Payload and code stay as evidence (S0-88).
func (o *Outbox) SettleCleanup(ctx context.Context, lease Lease, to models.OutboxStatus, versionID, code string) error {
	if !models.Permits(models.OutboxEdges, models.OutboxLeased, to) {
		return models.ErrForbiddenTransition{From: string(models.OutboxLeased), To: string(to)}
	}
	if code == "" {
		code = lease.Row.LastErrorCode
	}
	return o.endCleanup(ctx, lease, func(time.Time) map[string]any {
		return map[string]any{"status": to, "version_id": versionID, "last_error_code": code, "last_error": nil}
	})
}

// RetryCleanup puts a leased intent back after a failure. It falls due after
// 15 s × 2^(attempts − 1), at most an hour (S0-85, S0-86).
func (o *Outbox) RetryCleanup(ctx context.Context, lease Lease, code, text string) error {
	return o.endCleanup(ctx, lease, func(now time.Time) map[string]any {
		return map[string]any{
			"status": models.OutboxPending, "next_attempt_at": ceil(now.Add(backOff(lease.Attempts))),
			"last_error_code": code, "last_error": nullable(text),
		}
	})
}

// HoldCleanup puts a leased intent back until its grace has passed: an object
// whose writer never had an answer may still arrive.
func (o *Outbox) HoldCleanup(ctx context.Context, lease Lease) error {
	return o.endCleanup(ctx, lease, func(time.Time) map[string]any {
		return map[string]any{"status": models.OutboxPending, "next_attempt_at": ceil(lease.Row.CreatedAt.Add(CleanupGrace))}
	})
}

// endCleanup is one UPDATE that is fenced by the lease; change gets the
// database's now.
func (o *Outbox) endCleanup(ctx context.Context, lease Lease, change func(now time.Time) map[string]any) error {
	// gofail: var cleanupSettleBefore string
	// if err := failpoint.Act(cleanupSettleBefore); err != nil { return err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		columns := change(now)
		columns["lease_owner"], columns["lease_expires_at"], columns["updated_at"] = "", nil, now
		ended := tx.Model(&models.Outbox{}).
			Where("id = ? AND status = ? AND lease_owner = ?", lease.OutboxID, models.OutboxLeased, lease.Token).
			UpdateColumns(columns)
		return leaseFence(ended.RowsAffected, ended.Error)
	})
	// gofail: var cleanupSettleAfter string
	// if err == nil { err = failpoint.Act(cleanupSettleAfter) }
	if err != nil {
		return fmt.Errorf("end the cleanup intent's lease: %w", err)
	}
	return nil
}
