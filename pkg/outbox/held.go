package outbox

import (
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Held is what the rows of a leased deployment say of each other now. Worker
// and Version have only the columns that a deployment decides by; they are
// zero when their row is gone.
type Held struct {
	Worker  models.Worker
	Version models.Version
}

// heldQuery reads and locks outbox row, Worker and version: a LEFT JOIN reads
// its left side first, which is the order in which rows are locked everywhere
// (D3).
const heldQuery = `SELECT %s AS micros,
	w.id AS worker_id, w.script_name, w.status AS worker_status, w.current_version_id, w.serving_kind, w.serving_namespace,
	v.id AS version_id, v.state, v.bundle_digest, v.bundle_object_key, v.bundle_size, v.release_generation, v.compatibility_date, v.main_module
	FROM edge_worker_outbox o
	LEFT JOIN edge_workers w ON w.id = o.worker_id AND w.company_id = o.company_id AND w.department_id = o.department_id
	LEFT JOIN edge_worker_versions v ON v.id = o.version_id AND v.worker_id = w.id AND v.company_id = o.company_id AND v.department_id = o.department_id
	WHERE o.id = ? AND o.company_id = ? AND o.department_id = ? AND o.status = ? AND o.lease_owner = ? AND o.lease_expires_at > %s%s`

// heldColumns is one row of heldQuery.
type heldColumns struct {
	Micros           int64
	WorkerID         string
	ScriptName       string
	WorkerStatus     models.WorkerStatus
	CurrentVersionID string
	ServingKind      string
	ServingNamespace string

	VersionID         string
	State             models.VersionState
	BundleDigest      string
	BundleObjectKey   string
	BundleSize        int64
	ReleaseGeneration string
	CompatibilityDate string
	MainModule        string
}

// Hold verifies the lease and locks the deployment's rows until the
// transaction ends, so that nobody can take the lease over before the commit.
// A lease that is not the caller's any more, or has ended, is ErrLeaseLost.
func Hold(tx *database.Tx, lease Lease) (Held, error) {
	var rows []heldColumns
	query := fmt.Sprintf(heldQuery, tx.MicrosSQL(), tx.NowSQL(), tx.ForUpdate())
	found := tx.Raw(query, lease.OutboxID, lease.Tenant.CompanyID, lease.Tenant.DepartmentID, models.OutboxLeased, lease.Token).Scan(&rows)
	err := leaseFence(int64(len(rows)), found.Error)
	if err != nil {
		return Held{}, err
	}
	c := rows[0]
	tx.At(c.Micros)
	return Held{
		Worker: models.Worker{
			ID: c.WorkerID, CompanyID: lease.Tenant.CompanyID, DepartmentID: lease.Tenant.DepartmentID, ScriptName: c.ScriptName,
			Status: c.WorkerStatus, CurrentVersionID: c.CurrentVersionID, ServingKind: c.ServingKind, ServingNamespace: c.ServingNamespace,
		},
		Version: models.Version{
			ID: c.VersionID, WorkerID: c.WorkerID, CompanyID: lease.Tenant.CompanyID, DepartmentID: lease.Tenant.DepartmentID, State: c.State,
			BundleDigest: c.BundleDigest, BundleObjectKey: c.BundleObjectKey, BundleSize: c.BundleSize,
			ReleaseGeneration: c.ReleaseGeneration, CompatibilityDate: c.CompatibilityDate, MainModule: c.MainModule,
		},
	}, nil
}

// leasableQuery reads and locks a deploy row with its Worker and version. It
// names a column of the Worker: MariaDB leaves a joined table that nobody asks
// for unread and unlocked.
const leasableQuery = `SELECT o.*, %s AS micros, w.status AS worker_status, v.state AS version_state
	FROM edge_worker_outbox o
	LEFT JOIN edge_workers w ON w.id = o.worker_id
	LEFT JOIN edge_worker_versions v ON v.id = o.version_id AND v.worker_id = o.worker_id
	WHERE o.id = ? AND o.company_id = ? AND o.department_id = ? AND o.operation = ?%s`

// leasable is a deploy row with the state of its version.
type leasable struct {
	models.Outbox
	Micros       int64
	VersionState models.VersionState
}

// lockLeasable locks the rows of a request; false if there is no such row.
func lockLeasable(tx *database.Tx, req LeaseRequest) (leasable, bool, error) {
	var rows []leasable
	query := fmt.Sprintf(leasableQuery, tx.MicrosSQL(), tx.ForUpdate())
	err := tx.Raw(query, req.OutboxID, req.Tenant.CompanyID, req.Tenant.DepartmentID, models.OperationDeploy).Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return leasable{}, false, err
	}
	return rows[0], true, nil
}
