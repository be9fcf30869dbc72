package retirement

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
)

// pageSize is how many rows of a table one round looks through. No index leads
// to what was deleted, and none may be added (S3-61 to S3-63), so the rounds
// walk over the primary keys: an installation of 10,000 departments is looked
// through in each round, one of a million in 25 minutes.
const pageSize = 10_000

// maxDue bounds what a round takes from a page; the walk goes on behind it.
const maxDue = 200

// step is what is next for a script.
type step int

const (
	stepNone step = iota
	stepRetire
	stepRemove
)

// candidate is a Worker that nobody owns any more.
type candidate struct {
	Key          string // by which the walk goes on
	WorkerID     string
	CompanyID    string
	DepartmentID string
	ScriptName   string
	Namespace    string

	step     step
	deployed bool // a deployment may have reached the provider
}

// scan is how far the two walks are: over departments and over deployments.
type scan struct{ departments, deployments string }

// due is what can be done now, soft-deleted departments first.
func (l *Lane) due(ctx context.Context) ([]candidate, error) {
	departed, err := l.walk(ctx, &l.scan.departments, deletedDepartments, "departments")
	if err != nil {
		return nil, err
	}
	orphaned, err := l.walk(ctx, &l.scan.deployments, orphanedDeployments, "edge_worker_outbox")
	if err != nil {
		return nil, err
	}
	return l.next(ctx, append(departed, orphaned...))
}

// deletedDepartments are Workers of soft-deleted departments in a page of
// departments (S1-339).
const deletedDepartments = `SELECT p.id AS ` + "`key`" + `, w.id AS worker_id, w.company_id, w.department_id, w.script_name
	FROM (SELECT id, company_id, deleted_at FROM departments WHERE id > ? ORDER BY id LIMIT ?) p
	JOIN edge_workers w ON w.department_id = p.id AND w.company_id = p.company_id
	WHERE p.deleted_at IS NOT NULL ORDER BY p.id LIMIT ?`

// orphanedDeployments are Workers that only a page of deploy rows still speaks
// of: neither their row nor their department is there, in any company (S1-194,
// S1-340, S3-79).
const orphanedDeployments = `SELECT MAX(p.id) AS ` + "`key`" + `, p.worker_id, p.company_id, p.department_id, p.script_name
	FROM (SELECT id, operation, worker_id, company_id, department_id, script_name FROM edge_worker_outbox WHERE id > ? ORDER BY id LIMIT ?) p
	LEFT JOIN edge_workers w ON w.id = p.worker_id
	LEFT JOIN departments d ON d.id = p.department_id
	WHERE p.operation = 'deploy' AND w.id IS NULL AND d.id IS NULL
	GROUP BY p.worker_id, p.company_id, p.department_id, p.script_name ORDER BY ` + "`key`" + ` LIMIT ?`

// walk takes the next page of a table and moves the cursor to its end, or to
// where the result was cut off; after the last page it begins again.
func (l *Lane) walk(ctx context.Context, cursor *string, query, table string) ([]candidate, error) {
	var rows []candidate
	db := l.p.DB.Read(ctx)
	err := db.Raw(query, *cursor, l.pageSize, maxDue).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("look for retirements in %s: %w", table, err)
	}
	if len(rows) == maxDue {
		*cursor = rows[maxDue-1].Key
		return rows, nil
	}
	var last []string
	err = db.Table(table).Where("id > ?", *cursor).Order("id").Offset(l.pageSize-1).Limit(1).Pluck("id", &last).Error
	if err != nil {
		return nil, fmt.Errorf("find the end of the page in %s: %w", table, err)
	}
	*cursor = ""
	if len(last) == 1 {
		*cursor = last[0]
	}
	return rows, nil
}

// next leaves those that have a step to be done now.
func (l *Lane) next(ctx context.Context, found []candidate) ([]candidate, error) {
	found = l.rested(found)
	facts, err := l.facts(ctx, found)
	if err != nil {
		return nil, err
	}
	var due []candidate
	for _, c := range found {
		c.step = decide(facts[factID(ActionRetired, c.WorkerID)], facts[factID(ActionRemoved, c.WorkerID)], l.now())
		if c.step != stepNone {
			due = append(due, c)
		}
	}
	return due, nil
}

// decide is the next step of a script whose retirement and removal are on
// record, or not (nil).
func decide(retirement, removal *models.AuditLog, now time.Time) step {
	switch {
	case retirement == nil:
		return stepRetire
	case removal != nil, retirement.ReasonCode == ReasonNeverDeployed, now.Before(retirement.CreatedAt.Add(Keep)):
		return stepNone
	}
	return stepRemove
}

// rested drops Workers that failed a moment ago, and each but once.
func (l *Lane) rested(found []candidate) []candidate {
	now := l.now()
	for id, until := range l.resting {
		if !now.Before(until) {
			delete(l.resting, id)
		}
	}
	var left []candidate
	seen := map[string]bool{}
	for _, c := range found {
		_, rests := l.resting[c.WorkerID]
		if !rests && !seen[c.WorkerID] {
			left = append(left, c)
		}
		seen[c.WorkerID] = true
	}
	return left
}

// facts reads what is on record of the candidates, by the facts' ids.
func (l *Lane) facts(ctx context.Context, found []candidate) (map[string]*models.AuditLog, error) {
	ids := make([]string, 0, 2*len(found))
	for _, c := range found {
		ids = append(ids, factID(ActionRetired, c.WorkerID), factID(ActionRemoved, c.WorkerID))
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []models.AuditLog
	err := l.p.DB.Read(ctx).Where("id IN ?", ids).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read the retirements: %w", err)
	}
	facts := map[string]*models.AuditLog{}
	for i := range rows {
		facts[rows[i].ID] = &rows[i]
	}
	return facts, nil
}

// place finds where the Worker's last deployment went that the provider may
// have, and reports whether this environment serves that namespace. Without
// such a deployment there is nothing to find, and its last row tells whose it
// is.
func (l *Lane) place(ctx context.Context, c *candidate) (bool, error) {
	var rows []models.Outbox
	err := l.deployments(ctx, *c).Select("status", "dispatch_namespace").
		Order("CASE WHEN status IN ('completed','uncertain') THEN 0 ELSE 1 END, admission_sequence = 0, admission_sequence DESC, created_at DESC").
		Limit(1).Find(&rows).Error
	if err != nil {
		return false, fmt.Errorf("read the deployments of %s: %w", c.ScriptName, err)
	}
	if len(rows) == 0 { // never admitted anywhere: any environment may say so
		return true, nil
	}
	c.Namespace = rows[0].DispatchNamespace
	c.deployed = rows[0].Status == models.OutboxCompleted || rows[0].Status == models.OutboxUncertain
	return l.p.Outbox.Scope().May(c.Namespace), nil
}

// busy reports whether a deployment of the Worker is still on its way: it ends
// by itself, because its department is gone, and might upload until then. None
// can be admitted any more.
func (l *Lane) busy(ctx context.Context, c candidate) (bool, error) {
	var n int64
	err := l.deployments(ctx, c).Where("status IN ?", []models.OutboxStatus{models.OutboxPending, models.OutboxLeased}).Count(&n).Error
	if err != nil {
		return false, fmt.Errorf("look for deployments of %s: %w", c.ScriptName, err)
	}
	return n > 0, nil
}

func (l *Lane) deployments(ctx context.Context, c candidate) *gorm.DB {
	tenant := models.Tenant{CompanyID: c.CompanyID, DepartmentID: c.DepartmentID}
	return tenant.Own(l.p.DB.Read(ctx).Model(&models.Outbox{})).Where("worker_id = ? AND operation = ?", c.WorkerID, models.OperationDeploy)
}
