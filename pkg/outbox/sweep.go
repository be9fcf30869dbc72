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

// take leases rows that the transaction has locked.
func take(tx *database.Tx, rows []models.Outbox, token string, now time.Time, ttl time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	taken := tx.Model(&models.Outbox{}).Where("id IN ?", ids).UpdateColumns(map[string]any{
		"status": models.OutboxLeased, "lease_owner": token, "lease_expires_at": now.Add(ttl),
		"attempts": gorm.Expr("attempts + 1"), "next_attempt_at": nil, "updated_at": now,
	})
	if taken.Error == nil && taken.RowsAffected != int64(len(rows)) {
		return fmt.Errorf("lease the rows: %w (%d of %d rows)", models.ErrStaleTransition, taken.RowsAffected, len(rows))
	}
	return taken.Error
}
