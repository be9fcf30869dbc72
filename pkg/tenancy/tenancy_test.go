package tenancy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/test/plane"
)

func each(t *testing.T, run func(t *testing.T, db *database.DB, d *tenancy.Directory)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, db, tenancy.New(db)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	operator = audit.Actor{Type: "user", ID: "user:op", Method: "bearer_jwt"}
	tenant   = models.Tenant{CompanyID: "c1", DepartmentID: "d1"}
)

func count(t *testing.T, db *database.DB, table string) int64 {
	t.Helper()
	var n int64
	must(t, db.Read(t.Context()).Table(table).Count(&n).Error)
	return n
}

// Each change of the directory is one fact; repeating it is no change.
func TestPut(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, d *tenancy.Directory) {
		ctx := t.Context()
		facts := int64(0)
		step := func(err error, more int64, what string) {
			t.Helper()
			facts += more
			if err != nil || count(t, db, "edge_worker_audit_logs") != facts {
				t.Errorf("%s: %v, %d facts", what, err, count(t, db, "edge_worker_audit_logs"))
			}
		}
		step(d.PutCompany(ctx, operator, "c1", "A"), 1, "create")
		step(d.PutCompany(ctx, operator, "c1", "A"), 0, "repeat")
		step(d.PutCompany(ctx, operator, "c1", "B"), 1, "rename")
		step(d.PutDepartment(ctx, operator, tenant, "A"), 1, "create a department")
		step(d.PutDepartment(ctx, operator, tenant, "A"), 0, "repeat")
		step(d.PutDepartment(ctx, operator, tenant, strings.Repeat("部", 255)), 1, "rename")
		step(d.PutCompany(ctx, operator, "c2", "A"), 1, "another company")
		for name, c := range map[string]struct {
			err  error
			want *fault.Error
		}{
			"no such company":           {d.PutDepartment(ctx, operator, models.Tenant{CompanyID: "c9", DepartmentID: "d9"}, "A"), tenancy.ErrNoCompany},
			"another company's":         {d.PutDepartment(ctx, operator, models.Tenant{CompanyID: "c2", DepartmentID: "d1"}, "A"), tenancy.ErrForeignDepartment},
			"delete no company":         {d.DeleteCompany(ctx, operator, "c9"), tenancy.ErrNoCompany},
			"delete no department":      {d.DeleteDepartment(ctx, operator, "d9"), tenancy.ErrNoDepartment},
			"no name":                   {d.PutCompany(ctx, operator, "c3", ""), fault.Refuse()},
			"a long name":               {d.PutCompany(ctx, operator, "c3", strings.Repeat("部", 256)), fault.Refuse()},
			"a department with no name": {d.PutDepartment(ctx, operator, tenant, ""), fault.Refuse()},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		step(nil, 0, "refusals")
		if count(t, db, "companies") != 2 || count(t, db, "departments") != 1 {
			t.Error("a refusal left a row")
		}
	})
}

// D4: a tenant lives only as a department of its own company that is not
// deleted. A deleted one never comes back: its script's name would.
func TestAlive(t *testing.T) {
	each(t, func(t *testing.T, _ *database.DB, d *tenancy.Directory) {
		ctx := t.Context()
		must(t, d.PutCompany(ctx, operator, "c1", "A"))
		must(t, d.PutCompany(ctx, operator, "c2", "A"))
		must(t, d.PutDepartment(ctx, operator, tenant, "A"))
		must(t, d.Alive(ctx, tenant))
		for _, other := range []models.Tenant{{CompanyID: "c2", DepartmentID: "d1"}, {CompanyID: "c1", DepartmentID: "d2"}, {CompanyID: "c1"}, {DepartmentID: "d1"}} {
			if err := d.Alive(ctx, other); !errors.Is(err, tenancy.ErrNoDepartment) {
				t.Errorf("%+v: %v", other, err)
			}
		}
		must(t, d.DeleteDepartment(ctx, operator, "d1"))
		must(t, d.DeleteDepartment(ctx, operator, "d1"))
		if err := d.Alive(ctx, tenant); !errors.Is(err, tenancy.ErrNoDepartment) {
			t.Errorf("deleted: %v", err)
		}
		if err := d.PutDepartment(ctx, operator, tenant, "A"); !errors.Is(err, tenancy.ErrDepartmentDeleted) {
			t.Errorf("put again: %v", err)
		}
	})
}

// S3-73, S3-74: a department is marked deleted and every row of it remains,
// its script left to the retirement.
func TestDepartmentIsOnlyMarked(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, d *tenancy.Directory) {
		p := plane.New(t, db)
		p.Admit(p.Submit("one"))
		before := map[string]int64{}
		for _, table := range []string{"departments", "edge_workers", "edge_worker_versions", "edge_worker_outbox"} {
			before[table] = count(t, db, table)
		}
		worker := p.Worker()
		must(t, d.DeleteDepartment(t.Context(), operator, p.Tenant.DepartmentID))
		for table, n := range before {
			if n == 0 || count(t, db, table) != n {
				t.Errorf("%s: %d rows of %d", table, count(t, db, table), n)
			}
		}
		if p.Worker() != worker {
			t.Error("the Worker changed")
		}
		var row models.Department
		must(t, db.Read(t.Context()).Where("id = ?", p.Tenant.DepartmentID).Take(&row).Error)
		if row.DeletedAt == nil || len(p.Provider.Calls()) != 0 {
			t.Errorf("deleted at %v, provider calls %v", row.DeletedAt, p.Provider.Calls())
		}
	})
}

// S3-75 to S3-78: a company's hard delete takes departments, Workers and
// revisions; outbox and audit rows stay, and so does another company.
func TestCompanyIsDeleted(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, d *tenancy.Directory) {
		p, other := plane.New(t, db), plane.New(t, db)
		p.Admit(p.Submit("one"))
		other.Admit(other.Submit("one"))
		outbox, facts := count(t, db, "edge_worker_outbox"), count(t, db, "edge_worker_audit_logs")
		must(t, d.DeleteCompany(t.Context(), operator, p.Tenant.CompanyID))
		for _, table := range []string{"companies", "departments", "edge_workers", "edge_worker_versions"} {
			if n := count(t, db, table); n != 1 {
				t.Errorf("%s: %d rows instead of the other company's", table, n)
			}
		}
		if count(t, db, "edge_worker_outbox") != outbox || count(t, db, "edge_worker_audit_logs") != facts+1 {
			t.Error("outbox or audit rows went")
		}
		if other.Worker().CompanyID != other.Tenant.CompanyID {
			t.Error("the other company's Worker is gone")
		}
	})
}

// A change and its fact are one transaction.
func TestChangeAndFactAreOne(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, d *tenancy.Directory) {
		actor := operator
		actor.ID = strings.Repeat("a", 129) // no audit column can hold it
		if err := d.PutCompany(t.Context(), actor, "c1", "A"); err == nil || fault.KindOf(err) != fault.Internal || count(t, db, "companies") != 0 {
			t.Errorf("%v, %d companies", err, count(t, db, "companies"))
		}
		must(t, d.PutCompany(t.Context(), operator, "c1", "A"))
	})
}

// Equal requests at once all succeed: one makes the row, the other, which had
// looked before that, finds it in a second try.
func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	var looked, wg sync.WaitGroup
	var seen atomic.Int32
	looked.Add(2)
	db := databasetest.Open(t, database.Params{URL: databasetest.MySQLURL(t), Trace: func(sql string) {
		if strings.Contains(sql, "FROM `companies`") && strings.Contains(sql, "FOR UPDATE") && seen.Add(1) <= 2 {
			looked.Done()
			looked.Wait()
		}
	}})
	d := tenancy.New(db)
	for range 2 {
		wg.Go(func() {
			if err := d.PutCompany(context.Background(), operator, "c1", "A"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if seen.Load() != 3 || count(t, db, "companies") != 1 || count(t, db, "edge_worker_audit_logs") != 1 {
		t.Errorf("looked %d times, %d companies, %d facts", seen.Load(), count(t, db, "companies"), count(t, db, "edge_worker_audit_logs"))
	}
}
