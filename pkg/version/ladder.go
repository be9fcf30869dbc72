package version

import (
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Evidence is the part of a revision that a deployment may change besides its
// state (S2-007). The zero value clears the error and keeps deployed_at.
type Evidence struct {
	ErrorCode    string
	ErrorMessage string
	DeployedAt   *time.Time
}

// Move takes one edge of the ladder in the caller's transaction: an UPDATE
// that is fenced by the state it leaves. Another state is
// models.ErrStaleTransition; a step that is no edge is a defect.
func Move(tx *database.Tx, versionID string, from, to models.VersionState, evidence Evidence) error {
	if !models.Permits(models.VersionEdges, from, to) {
		return models.ErrForbiddenTransition{From: string(from), To: string(to)}
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	change := map[string]any{"state": to, "error_code": evidence.ErrorCode, "error_message": nil, "updated_at": now}
	if evidence.ErrorMessage != "" {
		change["error_message"] = evidence.ErrorMessage
	}
	if evidence.DeployedAt != nil {
		change["deployed_at"] = *evidence.DeployedAt
	}
	moved := tx.Model(&models.Version{}).Where("id = ? AND state = ?", versionID, from).UpdateColumns(change)
	return database.Exactly(moved, fmt.Sprintf("move the version %s → %s", from, to))
}

// SettledStatus is the status to which a Worker returns when nothing holds
// it: active with a deployed version, else draft (S2-221, S2-222).
func SettledStatus(worker models.Worker) models.WorkerStatus {
	if worker.CurrentVersionID != "" {
		return models.WorkerActive
	}
	return models.WorkerDraft
}

// SetWorker changes a Worker that the caller has locked. It must exist.
func SetWorker(tx *database.Tx, workerID string, change map[string]any) error {
	now, err := tx.Now()
	if err != nil {
		return err
	}
	change["updated_at"] = now
	return database.Exactly(tx.Model(&models.Worker{}).Where("id = ?", workerID).UpdateColumns(change), "update the Worker")
}
