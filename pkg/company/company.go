// Package company is what a company's administration sees of its departments:
// each with its Worker and its latest deployment.
package company

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/tenancy"
)

// Page bounds.
const (
	DefaultPage = 50
	MaxPage     = 100
)

// Department is one department as its company sees it. Worker and Latest are
// nil where there is none yet.
type Department struct {
	models.Department
	Worker *models.Worker
	Latest *models.Outbox
}

// Page is one page, ordered by department id. Next is empty at the end, else
// the id after which the next page begins.
type Page struct {
	Items []Department
	Next  string
}

// List reads a page of the company's departments, deleted ones included: their
// rows are kept (S3-73). limit 0 means DefaultPage.
func List(ctx context.Context, db *database.DB, companyID, after string, limit int) (Page, error) {
	if limit <= 0 {
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	var rows []models.Department
	err := db.Read(ctx).Where("company_id = ? AND id > ?", companyID, after).Order("id").Limit(limit + 1).Find(&rows).Error
	if err != nil {
		return Page{}, fmt.Errorf("list the departments: %w", err)
	}
	page := Page{}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = rows[limit-1].ID
	}
	for _, row := range rows {
		item, err := describe(db.Read(ctx), row)
		if err != nil {
			return Page{}, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// Of reads one of the company's departments.
func Of(ctx context.Context, db *database.DB, tenant models.Tenant) (Department, error) {
	var rows []models.Department
	err := db.Read(ctx).Where("id = ? AND company_id = ?", tenant.DepartmentID, tenant.CompanyID).Limit(1).Find(&rows).Error
	if err != nil {
		return Department{}, fmt.Errorf("read the department: %w", err)
	}
	if len(rows) == 0 {
		return Department{}, tenancy.ErrNoDepartment
	}
	return describe(db.Read(ctx), rows[0])
}

func describe(query *gorm.DB, row models.Department) (Department, error) {
	item := Department{Department: row}
	var workers []models.Worker
	tenant := models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.ID}
	err := tenant.Own(query).Limit(1).Find(&workers).Error
	if err != nil {
		return Department{}, fmt.Errorf("read the department's Worker: %w", err)
	}
	if len(workers) == 0 {
		return item, nil
	}
	item.Worker = &workers[0]
	item.Latest, err = latest(query, workers[0].ID)
	return item, err
}

// latest is the Worker's latest deployment: by sequence with 0 last, then by
// creation, then by the raw bytes of the id, each descending (S3-82, S3-83).
func latest(query *gorm.DB, workerID string) (*models.Outbox, error) {
	var rows []models.Outbox
	err := query.Where("worker_id = ? AND operation = ?", workerID, models.OperationDeploy).
		Order("admission_sequence DESC, created_at DESC, id DESC").Limit(1).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read the latest deployment: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // no deployment yet is no error
	}
	return &rows[0], nil
}
