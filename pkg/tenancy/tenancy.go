// Package tenancy keeps the minimal companies and departments tables and
// answers whether a tenant lives (D3, D4). A host platform may own the tables
// instead; then only the reads of this package are used.
package tenancy

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// The refusals of this package.
var (
	ErrNoCompany         = fault.New(fault.NotFound, "Company not found")
	ErrNoDepartment      = fault.New(fault.NotFound, "Department not found")
	ErrForeignDepartment = fault.Coded(fault.Conflict, "department_belongs_to_another_company", "The department belongs to another company")
	ErrDepartmentDeleted = fault.Coded(fault.Conflict, "department_deleted", "The department was deleted; use a new id")
)

// maxName is the width of the name columns in characters.
const maxName = 255

// Directory reads and writes companies and departments.
type Directory struct{ db *database.DB }

// New returns the directory of a database.
func New(db *database.DB) *Directory { return &Directory{db: db} }

// Alive fails with ErrNoDepartment unless the tenant's department exists, is
// of that company and is not deleted.
func (d *Directory) Alive(ctx context.Context, tenant models.Tenant) error {
	alive, err := Alive(d.db.Read(ctx), tenant)
	if err != nil {
		return err
	}
	if !alive {
		return ErrNoDepartment
	}
	return nil
}

// Alive reports whether the tenant's department exists and is not deleted.
func Alive(query *gorm.DB, tenant models.Tenant) (bool, error) {
	var n int64
	err := query.Model(&models.Department{}).
		Where("id = ? AND company_id = ? AND deleted_at IS NULL", tenant.DepartmentID, tenant.CompanyID).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("read the department: %w", err)
	}
	return n == 1, nil
}

// PutCompany creates the company or gives it another name. Doing it again is
// no change and writes no fact.
func (d *Directory) PutCompany(ctx context.Context, actor audit.Actor, id, name string) error {
	err := checkName(name)
	if err != nil {
		return err
	}
	return d.change(ctx, func(tx *database.Tx) error {
		var rows []models.Company
		err := tx.Locked().Where("id = ?", id).Find(&rows).Error
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		switch {
		case len(rows) == 0:
			err = tx.Create(&models.Company{ID: id, Name: name, CreatedAt: now, UpdatedAt: now}).Error
		case rows[0].Name == name:
			return nil
		default:
			err = database.Exactly(tx.Model(&models.Company{}).Where("id = ?", id).
				UpdateColumns(map[string]any{"name": name, "updated_at": now}), "rename the company")
		}
		if err != nil {
			return err
		}
		return audit.Write(tx, fact(actor, models.Tenant{CompanyID: id}, "company.put", "company", id))
	})
}

// DeleteCompany is the root-level hard delete: departments, Workers and
// revisions go with it; outbox and audit rows stay (S3-75 to S3-78).
func (d *Directory) DeleteCompany(ctx context.Context, actor audit.Actor, id string) error {
	return d.change(ctx, func(tx *database.Tx) error {
		deleted := tx.Where("id = ?", id).Delete(&models.Company{})
		if deleted.Error != nil {
			return deleted.Error
		}
		if deleted.RowsAffected == 0 {
			return ErrNoCompany
		}
		return audit.Write(tx, fact(actor, models.Tenant{CompanyID: id}, "company.deleted", "company", id))
	})
}

// PutDepartment creates the department or gives it another name. A department
// never moves to another company and a deleted one never comes back: its
// script name would be used again.
func (d *Directory) PutDepartment(ctx context.Context, actor audit.Actor, tenant models.Tenant, name string) error {
	err := checkName(name)
	if err != nil {
		return err
	}
	return d.change(ctx, func(tx *database.Tx) error {
		changed, err := putDepartment(tx, tenant, name)
		if err != nil || !changed {
			return err
		}
		return audit.Write(tx, fact(actor, tenant, "department.put", "department", tenant.DepartmentID))
	})
}

func putDepartment(tx *database.Tx, tenant models.Tenant, name string) (bool, error) {
	var companies int64
	err := tx.Model(&models.Company{}).Where("id = ?", tenant.CompanyID).Count(&companies).Error
	if err != nil {
		return false, err
	}
	if companies == 0 {
		return false, ErrNoCompany
	}
	var rows []models.Department
	err = tx.Locked().Where("id = ?", tenant.DepartmentID).Find(&rows).Error
	if err != nil {
		return false, err
	}
	now, err := tx.Now()
	if err != nil {
		return false, err
	}
	switch {
	case len(rows) == 0:
		return true, tx.Create(&models.Department{
			ID: tenant.DepartmentID, CompanyID: tenant.CompanyID, Name: name, CreatedAt: now, UpdatedAt: now,
		}).Error
	case rows[0].CompanyID != tenant.CompanyID:
		return false, ErrForeignDepartment
	case rows[0].DeletedAt != nil:
		return false, ErrDepartmentDeleted
	case rows[0].Name == name:
		return false, nil
	}
	return true, database.Exactly(tx.Model(&models.Department{}).Where("id = ?", tenant.DepartmentID).
		UpdateColumns(map[string]any{"name": name, "updated_at": now}), "rename the department")
}

// DeleteDepartment is a soft delete: no row goes (S3-73). Its script is
// retired separately (S3-74).
func (d *Directory) DeleteDepartment(ctx context.Context, actor audit.Actor, id string) error {
	return d.change(ctx, func(tx *database.Tx) error {
		var rows []models.Department
		err := tx.Locked().Where("id = ?", id).Find(&rows).Error
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNoDepartment
		}
		if rows[0].DeletedAt != nil {
			return nil
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		err = database.Exactly(tx.Model(&models.Department{}).Where("id = ? AND deleted_at IS NULL", id).
			UpdateColumns(map[string]any{"deleted_at": now, "updated_at": now}), "delete the department")
		if err != nil {
			return err
		}
		tenant := models.Tenant{CompanyID: rows[0].CompanyID, DepartmentID: id}
		return audit.Write(tx, fact(actor, tenant, "department.deleted", "department", id))
	})
}

func (d *Directory) change(ctx context.Context, fn func(*database.Tx) error) error {
	err := d.db.Tx(ctx, fn)
	if database.IsDuplicate(err) { // another request made the row first: now it is there to be found
		err = d.db.Tx(ctx, fn)
	}
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return fmt.Errorf("change the directory: %w", err)
}

func checkName(name string) error {
	if name == "" || len([]rune(name)) > maxName {
		return fault.Refuse(fault.Problem{Type: "name_invalid", Loc: []any{"body", "name"}, Msg: fmt.Sprintf("name must have 1 to %d characters", maxName)})
	}
	return nil
}

// fact has a fresh id: each provisioning change is an event of its own, and
// its transaction is the only writer of it.
func fact(actor audit.Actor, tenant models.Tenant, action, kind, id string) audit.Fact {
	return audit.Fact{
		ID: uuid.NewString(), Tenant: tenant, Actor: actor, Action: action,
		ResourceType: kind, ResourceID: id, Result: audit.Succeeded,
	}
}
