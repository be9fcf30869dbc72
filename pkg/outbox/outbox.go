// Package outbox is the only writer of edge_worker_outbox: durable intents
// that are committed before the effect they speak of, leased by one owner at a
// time, and settled once. Every change of a row is one UPDATE that is fenced by
// what the writer believes about it (status, owner, mark) and must change
// exactly one row (D3).
//
// A fence protects the database, not the outside world. What protects the
// outside world is the order: intent first, effect second, read-back last.
package outbox

import (
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Outbox works on the rows of one environment.
type Outbox struct {
	db    *database.DB
	scope Scope
}

// New returns the outbox of an environment's scope.
func New(db *database.DB, scope Scope) *Outbox { return &Outbox{db: db, scope: scope} }

// Scope is the environment's scope.
func (o *Outbox) Scope() Scope { return o.scope }

// DeployIntent is what an admitted deployment asks for.
type DeployIntent struct {
	Tenant         models.Tenant
	Worker         models.Worker
	VersionID      string
	BaseRevision   int64
	Sequence       int64
	SettingsDigest string // empty without settings
	Location       Location
	CreatedBy      string
	// Code is the row's first last_error_code: CodeFenced behind a backup fence,
	// else empty.
	Code string
}

// DedupeKey is the identity of a deployment request: an exact retry has the
// same one (S2-064 to S2-066, S1-307, S1-308).
func DedupeKey(workerID, versionID string, baseRevision int64, settingsDigest string) string {
	key := fmt.Sprintf("deploy:%s:%s:%d", workerID, versionID, baseRevision)
	if settingsDigest != "" {
		key += ":" + settingsDigest
	}
	return key
}

// InsertDeploy writes the pending deploy row in the caller's transaction
// (S2-062). The generated column's unique index refuses a second live row of
// the Worker: database.IsDuplicate tells.
func (o *Outbox) InsertDeploy(tx *database.Tx, in DeployIntent) (models.Outbox, error) {
	now, err := tx.Now()
	if err != nil {
		return models.Outbox{}, err
	}
	row := models.Outbox{
		ID: uuid.NewString(), Operation: models.OperationDeploy, TicketID: uuid.NewString(),
		DedupeKey: DedupeKey(in.Worker.ID, in.VersionID, in.BaseRevision, in.SettingsDigest),
		Status:    models.OutboxPending, CompanyID: in.Tenant.CompanyID, DepartmentID: in.Tenant.DepartmentID,
		WorkerID: in.Worker.ID, VersionID: in.VersionID, ScriptName: in.Worker.ScriptName,
		DispatchNamespace: in.Location.Namespace, AdmissionSequence: in.Sequence, LastErrorCode: in.Code,
		CreatedBy: in.CreatedBy, CreatedAt: now, UpdatedAt: now,
	}
	payload := DeployPayload{
		OutboxID: row.ID, CompanyID: row.CompanyID, DepartmentID: row.DepartmentID, MessageID: uuid.NewString(),
		WorkerID: row.WorkerID, VersionID: row.VersionID, BaseRevision: in.BaseRevision,
	}
	if in.SettingsDigest != "" {
		payload.OperationSettingsDigest = &in.SettingsDigest
	}
	if o.scope.Cloud() {
		payload.Serving = &ServingRecord{Serving: in.Location, DeployedFrom: o.scope.Default(), LiveVersionID: in.Worker.CurrentVersionID}
	}
	row.Payload, err = encodePayload(payload)
	if err != nil {
		return models.Outbox{}, err
	}
	err = tx.Create(&row).Error
	if err != nil {
		return models.Outbox{}, fmt.Errorf("insert the deploy row: %w", err)
	}
	return row, nil
}

// Deploys lists the deploy rows of one version of a Worker, newest first.
func Deploys(query *gorm.DB, workerID, versionID string) ([]models.Outbox, error) {
	var rows []models.Outbox
	err := query.Where("operation = ? AND worker_id = ? AND version_id = ?", models.OperationDeploy, workerID, versionID).
		Order("admission_sequence DESC, id DESC").Limit(maxDeploysOfVersion).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read the version's deployments: %w", err)
	}
	return rows, nil
}

// maxDeploysOfVersion bounds a read; a version is deployed once, and every
// other row of it can only be a defect.
const maxDeploysOfVersion = 50

// HasUnreleased reports whether the Worker has a deploy row that still keeps
// the admission fence (S2-057, S2-080).
func HasUnreleased(query *gorm.DB, workerID string) (bool, error) {
	var n int64
	err := query.Model(&models.Outbox{}).Where("operation = ? AND worker_id = ? AND status IN ?",
		models.OperationDeploy, workerID, unreleased).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("look for live deployments: %w", err)
	}
	return n > 0, nil
}

var unreleased = []models.OutboxStatus{models.OutboxPending, models.OutboxLeased, models.OutboxUncertain}

// TenantHasUnreleased is HasUnreleased for a whole department (S2-035).
func TenantHasUnreleased(query *gorm.DB, tenant models.Tenant) (bool, error) {
	var n int64
	err := tenant.Own(query.Model(&models.Outbox{})).Where("operation = ? AND status IN ?", models.OperationDeploy, unreleased).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("look for live deployments: %w", err)
	}
	return n > 0, nil
}

// ErrNoTicket says that the tenant has no such ticket.
var ErrNoTicket = errors.New("no such ticket")

// Ticket reads the tenant's deploy row by its public id. The row's own id is
// not accepted in its place (S3-34).
func Ticket(query *gorm.DB, tenant models.Tenant, ticketID string) (models.Outbox, error) {
	var rows []models.Outbox
	err := tenant.Own(query).Where("operation = ? AND ticket_id = ?", models.OperationDeploy, ticketID).Limit(1).Find(&rows).Error
	if err != nil {
		return models.Outbox{}, fmt.Errorf("read the ticket: %w", err)
	}
	if len(rows) == 0 {
		return models.Outbox{}, ErrNoTicket
	}
	return rows[0], nil
}
