package outbox

import (
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Settle ends the caller's work on a leased row in the caller's transaction:
// one UPDATE fenced by (id, leased, owner). A lost lease is ErrLeaseLost and
// nothing changes. The lease's end time is not asked again: whoever took the
// row over has changed the owner.
func Settle(tx *database.Tx, lease Lease, to models.OutboxStatus, code, text string) error {
	err := mayEnd(to)
	if err != nil {
		return err
	}
	err = endLease(tx, lease, map[string]any{"status": to, "next_attempt_at": nil, "last_error_code": code, "last_error": nullable(text)})
	if err != nil {
		return fmt.Errorf("settle the row as %s: %w", to, err)
	}
	return nil
}

// Return puts a leased row back to pending without a delay: retryable results
// write next_attempt_at = NULL and leave the pace to the transport's
// redelivery and the recovery sweep (S2-230, S2-231). attempts replaces the
// count, for a result that is not counted.
func Return(tx *database.Tx, lease Lease, attempts int, code string) error {
	err := endLease(tx, lease, map[string]any{
		"status": models.OutboxPending, "next_attempt_at": nil, "attempts": attempts, "last_error_code": code,
	})
	if err != nil {
		return fmt.Errorf("return the row to pending: %w", err)
	}
	return nil
}

// mayEnd checks that a lease may end in a status.
func mayEnd(to models.OutboxStatus) error {
	if !models.Permits(models.OutboxEdges, models.OutboxLeased, to) {
		return models.ErrForbiddenTransition{From: string(models.OutboxLeased), To: string(to)}
	}
	return nil
}

// endLease is the one UPDATE by which an owner leaves a row: fenced by (id,
// leased, owner), it clears the lease and writes columns. ErrLeaseLost says
// that nothing changed.
func endLease(tx *database.Tx, lease Lease, columns map[string]any) error {
	now, err := tx.Now()
	if err != nil {
		return err
	}
	columns["lease_owner"], columns["lease_expires_at"], columns["updated_at"] = "", nil, now
	ended := tx.Model(&models.Outbox{}).
		Where("id = ? AND status = ? AND lease_owner = ?", lease.OutboxID, models.OutboxLeased, lease.Token).
		UpdateColumns(columns)
	return leaseFence(ended.RowsAffected, ended.Error)
}

// Reopen puts an uncertain row back to pending for a company's repair, with its
// attempts counted anew (S2-252, D19). code is the row's new last_error_code:
// CodeFenced behind a backup fence, else empty. It returns the row as it now
// stands.
func Reopen(tx *database.Tx, row models.Outbox, code string) (models.Outbox, error) {
	now, err := tx.Now()
	if err != nil {
		return models.Outbox{}, err
	}
	reopened := tx.Model(&models.Outbox{}).
		Where("id = ? AND status = ?", row.ID, models.OutboxUncertain).
		UpdateColumns(map[string]any{
			"status": models.OutboxPending, "lease_owner": "", "lease_expires_at": nil, "next_attempt_at": nil,
			"attempts": 0, "last_error_code": code, "last_error": nil, "updated_at": now,
		})
	err = database.Exactly(reopened, "reopen the row")
	if err != nil {
		return models.Outbox{}, err
	}
	row.Status, row.Attempts, row.LastErrorCode, row.LastError = models.OutboxPending, 0, code, nil
	return row, nil
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}
