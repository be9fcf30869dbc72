package outbox

import (
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// The back-off ladder of cleanup and control rows, in code on purpose: the
// pause doubles with each failed attempt up to an hour (S0-86, S1-015, S1-232).
const (
	firstDelay = 15 * time.Second
	maxDelay   = 3600 * time.Second
)

// backOff is the pause after so many attempts.
func backOff(attempts int) time.Duration {
	delay := firstDelay
	for range attempts - 1 {
		if delay >= maxDelay {
			break
		}
		delay *= 2
	}
	return min(delay, maxDelay)
}

// ceil rounds up to whole seconds, the precision of next_attempt_at: a row is
// never due early.
func ceil(at time.Time) time.Time { return at.Add(time.Second - 1).Truncate(time.Second) }

// claimDue leases due rows of one operation in the environment's scope, and rows
// whose last lease has ended, each with one attempt more. It asks for one status
// at a time, in the order of the index, and passes over rows that others hold.
func (o *Outbox) claimDue(tx *database.Tx, operation models.Operation, token string, limit int, ttl time.Duration) ([]Lease, error) {
	asked := time.Now()
	now, err := tx.Now()
	if err != nil {
		return nil, err
	}
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
		err := candidates(tx.SkipLocked()).Where("operation = ? AND dispatch_namespace IN ?", operation, o.scope.Namespaces()).
			Limit(limit - len(claimed)).Find(&rows).Error
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, rows...)
	}
	leases := make([]Lease, len(claimed))
	for i, row := range claimed {
		leases[i] = Lease{
			OutboxID: row.ID, Tenant: models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID},
			Token: token, Attempts: row.Attempts + 1, Asked: asked, Row: row,
		}
	}
	return leases, take(tx, leases, now.Add(ttl))
}

// take leases rows that the transaction has locked.
func take(tx *database.Tx, leases []Lease, until time.Time) error {
	if len(leases) == 0 {
		return nil
	}
	ids := make([]string, len(leases))
	for i, lease := range leases {
		ids[i] = lease.OutboxID
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	taken := tx.Model(&models.Outbox{}).Where("id IN ?", ids).UpdateColumns(map[string]any{
		"status": models.OutboxLeased, "lease_owner": leases[0].Token, "lease_expires_at": until,
		"attempts": gorm.Expr("attempts + 1"), "next_attempt_at": nil, "updated_at": now,
	})
	if taken.Error == nil && taken.RowsAffected != int64(len(leases)) {
		return fmt.Errorf("lease the rows: %w (%d of %d rows)", models.ErrStaleTransition, taken.RowsAffected, len(leases))
	}
	return taken.Error
}
