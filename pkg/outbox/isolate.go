package outbox

import (
	"context"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Codes of rows that a sweep could not publish.
const (
	// CodePayloadInvalid is that of a row whose payload cannot be used.
	CodePayloadInvalid = "deployment_payload_invalid"
	// CodeDispatchRefused is that of a row which the transport definitely did
	// not take; the next round publishes it again.
	CodeDispatchRefused = "dispatch_refused"
)

// claimed fences a change by all that a claim knows of the row: a publisher
// that another claim or a lease has overtaken changes nothing (S1-289, S1-293).
func claimed(tx *database.Tx, row models.Outbox, change map[string]any, what string) error {
	now, err := tx.Now()
	if err != nil {
		return err
	}
	change["updated_at"] = now
	return database.Exactly(tx.Model(&models.Outbox{}).
		Where("id = ? AND status = ? AND lease_owner = ? AND next_attempt_at = ?", row.ID, row.Status, row.LeaseOwner, row.NextAttemptAt).
		UpdateColumns(change), what)
}

// Refused takes back the mark of a claimed row that the transport definitely
// refused, so that the next round takes it up without waiting for the grace
// again. A row that somebody has taken meanwhile is models.ErrStaleTransition.
func (o *Outbox) Refused(ctx context.Context, row models.Outbox) error {
	return o.db.Tx(ctx, func(tx *database.Tx) error {
		return database.Exactly(tx.Model(&models.Outbox{}).
			Where("id = ? AND status = ? AND lease_owner = ? AND next_attempt_at = ?", row.ID, row.Status, row.LeaseOwner, row.NextAttemptAt).
			UpdateColumns(map[string]any{"next_attempt_at": nil, "last_error_code": CodeDispatchRefused}), "take back the refused row's mark")
	})
}

// Isolate ends a claimed row whose payload cannot be used. A row that was once
// leased, or whose version is deploying, may have reached the provider: it
// becomes uncertain and its Worker is paused. Any other becomes failed, with
// no pause (S1-283 to S1-285). A deployed version is never touched (S1-286).
// settle changes version and Worker in the same transaction; it gets the
// status that the row takes.
func (o *Outbox) Isolate(ctx context.Context, row models.Outbox, settle func(*database.Tx, models.OutboxStatus) error) (models.OutboxStatus, error) {
	var status models.OutboxStatus
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		var held []models.Outbox
		err := tx.Locked().Select("id").Where("id = ?", row.ID).Find(&held).Error
		if err != nil {
			return err
		}
		reached, err := isDeploying(tx, row)
		if err != nil {
			return err
		}
		status = models.OutboxFailed
		if reached || row.Attempts > 0 || row.LeaseOwner != "" {
			status = models.OutboxUncertain
		}
		err = claimed(tx, row, map[string]any{
			"status": status, "lease_owner": "", "lease_expires_at": nil, "next_attempt_at": nil,
			"last_error_code": CodePayloadInvalid, "last_error": "the row's payload is not valid",
		}, "isolate the row")
		if err != nil {
			return err
		}
		return settle(tx, status)
	})
	if err != nil {
		return "", fmt.Errorf("isolate the row: %w", err)
	}
	return status, nil
}

// isDeploying locks a row's Worker and version and reports whether the version
// is past its fence.
func isDeploying(tx *database.Tx, row models.Outbox) (bool, error) {
	var workers []models.Worker
	err := tx.Locked().Select("id").Where("id = ?", row.WorkerID).Find(&workers).Error
	if err != nil {
		return false, err
	}
	var versions []models.Version
	err = tx.Locked().Select("id", "state").Where("id = ? AND worker_id = ?", row.VersionID, row.WorkerID).Find(&versions).Error
	if err != nil {
		return false, err
	}
	return len(versions) == 1 && versions[0].State == models.VersionDeploying, nil
}
