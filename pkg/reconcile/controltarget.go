package reconcile

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
)

// ActionRetired is the fact that a retirement leaves (D18).
const ActionRetired = "department.worker_retired"

// isRetired asks whether the row's Worker is retired: its department is
// soft-deleted and a successful retirement is on record, or its company was
// hard-deleted, which leaves no department row of that id in any company and
// no Worker row (S1-193, S1-194).
func isRetired(query func() *gorm.DB, row models.Outbox) (bool, error) {
	var departments []models.Department
	err := query().Select("id", "company_id", "deleted_at").Where("id = ?", row.DepartmentID).Find(&departments).Error
	if err != nil {
		return false, fmt.Errorf("read the department: %w", err)
	}
	var n int64
	if len(departments) == 0 {
		err := query().Model(&models.Worker{}).Where("id = ?", row.WorkerID).Count(&n).Error
		if err != nil {
			return false, fmt.Errorf("look for the Worker: %w", err)
		}
		return n == 0, nil
	}
	if departments[0].CompanyID != row.CompanyID || departments[0].DeletedAt == nil {
		return false, nil
	}
	tenant := models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID}
	err = tenant.Own(query().Model(&models.AuditLog{})).Where("action = ? AND result = ?", ActionRetired, audit.Succeeded).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("look for the retirement: %w", err)
	}
	return n > 0, nil
}

// The reasons why a row's receipt cannot be asked for now.
var (
	errLegacyTarget = errors.New("the Worker's serving location is not the row's")
	errMoved        = errors.New("the Worker is no longer served where the command was sent")
	errTarget       = errors.New("the Worker is not the row's, or has no deployed release")
)

// target finds where the row's receipt is: the tenant's Worker, which must be
// the row's, at the location of the row, with the release that is deployed now
// (S1-206 to S1-208). A row without a recorded location must be of the
// namespace where the Worker is served; if not, or if that is not known, the
// answer is errLegacyTarget (S1-221 to S1-224).
func (c *ControlAuditor) target(ctx context.Context, row models.Outbox, payload outbox.ControlPayload) (control.ReceiptQuery, error) {
	tenant := models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID}
	worker, err := version.WorkerOf(c.p.DB.Read(ctx), tenant)
	if err != nil && !errors.Is(err, version.ErrNoWorker) {
		return control.ReceiptQuery{}, err
	}
	at := outbox.Location{Kind: worker.ServingKind, Namespace: worker.ServingNamespace}
	switch {
	case payload.Serving == nil && at.Namespace != row.DispatchNamespace, payload.Serving == nil && !named(at):
		return control.ReceiptQuery{}, errLegacyTarget
	case payload.Serving != nil && at != *payload.Serving: // S1-225
		return control.ReceiptQuery{}, errMoved
	case worker.ID != row.WorkerID || worker.ScriptName != row.ScriptName:
		return control.ReceiptQuery{}, errTarget
	}
	generation, err := c.generation(ctx, tenant, worker)
	if err != nil {
		return control.ReceiptQuery{}, err
	}
	return control.ReceiptQuery{Script: row.ScriptName, Generation: generation, MutationID: row.ID, CommandDigest: payload.CommandDigest}, nil
}

func named(at outbox.Location) bool {
	return at.Namespace != "" && (at.Kind == outbox.ServingShared || at.Kind == outbox.ServingLegacy)
}

// generation computes the release generation of the version that is deployed
// at this moment (S1-208).
func (c *ControlAuditor) generation(ctx context.Context, tenant models.Tenant, worker models.Worker) (string, error) {
	if worker.CurrentVersionID == "" {
		return "", errTarget
	}
	v, err := version.Of(c.p.DB.Read(ctx), tenant, worker.CurrentVersionID)
	if errors.Is(err, version.ErrNoVersion) || (err == nil && (v.State != models.VersionDeployed || v.WorkerID != worker.ID)) {
		return "", errTarget
	}
	if err != nil {
		return "", err
	}
	generation, err := version.Generation(v)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errTarget, err)
	}
	return generation, nil
}
