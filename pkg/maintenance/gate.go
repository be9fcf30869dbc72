// Package maintenance is the one reader and writer of edge_worker_maintenance:
// the durable resync epoch, restore marker and backup fence of an on-prem
// environment, and the gate that follows from them (D16). A cloud environment
// has no row that anybody reads; its gate is always open (S3-51, S3-52).
package maintenance

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// Gate says what an environment may do with deployments now.
type Gate string

// The gates. Only an open one lets a deployment reach the edge host.
const (
	// Open lets everything pass.
	Open Gate = "open"
	// Maintenance refuses admissions and repairs: a resync is under way, or the
	// scope's row is missing (S2-043, S3-55).
	Maintenance Gate = "maintenance"
	// Restore refuses admissions and repairs: a backup was restored and nobody
	// has confirmed yet that database and edge host agree (S2-044).
	Restore Gate = "restore"
	// Fenced takes admissions and repairs in and runs none of them: a backup is
	// being made (S2-072).
	Fenced Gate = "fenced"
)

// The refusals of a closed gate (S1-313).
var (
	ErrMaintenance = fault.Coded(fault.Conflict, "edge_workers_maintenance",
		"Edge Workers are under maintenance; try again when the platform's operator has ended it")
	ErrRestorePending = fault.Coded(fault.Conflict, "edge_workers_restore_pending",
		"Edge Workers were restored from a backup that is still being checked; try again when the platform's operator has ended the restore")
)

// Refusal is the answer to an admission or a repair: nil through an open gate,
// and through a backup fence, behind which it only waits.
func (g Gate) Refusal() error {
	switch g {
	case Open, Fenced:
		return nil
	case Restore:
		return ErrRestorePending
	case Maintenance:
	}
	return ErrMaintenance
}

// decide gives the gate of a scope's row, nil when there is none: maintenance
// before restore before fence.
func decide(row *models.Maintenance) Gate {
	switch {
	case row == nil || row.State != models.MaintenanceIdle:
		return Maintenance
	case row.RestorePending:
		return Restore
	case row.FenceID != "":
		return Fenced
	}
	return Open
}

// Hold reads the gate of a scope and keeps it as it is until the transaction
// ends: no fence, restore or resync begins between the check and what depends
// on it. Others may hold it at the same time.
func Hold(tx *database.Tx, scope string) (Gate, error) {
	var rows []models.Maintenance
	err := tx.Raw("SELECT * FROM edge_worker_maintenance WHERE scope = ?"+tx.ForShare(), scope).Scan(&rows).Error
	return gateOf(rows, err)
}

// Peek reads the gate of a scope as it is at this moment.
func Peek(query *gorm.DB, scope string) (Gate, error) {
	var rows []models.Maintenance
	err := query.Where("scope = ?", scope).Limit(1).Find(&rows).Error
	return gateOf(rows, err)
}

func gateOf(rows []models.Maintenance, err error) (Gate, error) {
	if err != nil {
		return Maintenance, fmt.Errorf("read the maintenance gate: %w", err)
	}
	if len(rows) == 0 {
		return decide(nil), nil
	}
	return decide(&rows[0]), nil
}
