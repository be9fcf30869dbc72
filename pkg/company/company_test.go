package company_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/company"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/test/plane"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

func deployRow(p *plane.Plane, worker, id string, sequence int64, created string) {
	p.T.Helper()
	p.Exec(`INSERT INTO edge_worker_outbox (id, operation, dedupe_key, ticket_id, status, worker_id, admission_sequence, created_at)
		VALUES (?, 'deploy', ?, ?, 'completed', ?, ?, ?)`, id, id, id, worker, sequence, created)
}

// S3-82, S3-83: the latest deployment is the one with the highest sequence,
// rows with 0 come after all others, then the newest, then the highest raw id.
func TestLatestDeployment(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Submit("one")
		worker := p.Worker().ID
		latest := func() string {
			d, err := company.Of(context.Background(), p.DB, p.Tenant)
			if err != nil {
				t.Fatal(err)
			}
			if d.Latest == nil {
				return ""
			}
			return d.Latest.ID
		}
		if got := latest(); got != "" {
			t.Errorf("without deployments: %q", got)
		}
		steps := []struct {
			id       string
			sequence int64
			created  string
			want     string
		}{
			{"b10", 0, "2026-01-01 00:00:00", "b10"},
			{"b9", 0, "2026-01-01 00:00:00", "b9"},  // equal in all else: "b9" > "b10" as raw text
			{"B99", 0, "2026-01-01 00:00:00", "b9"}, // upper case sorts before lower case
			{"a", 0, "2026-01-02 00:00:00", "a"},    // newer
			{"z", 1, "2025-01-01 00:00:00", "z"},    // any sequence beats 0, however old
			{"zz", 0, "2027-01-01 00:00:00", "z"},   // a newer row with 0 loses
			{"y", 2, "2024-01-01 00:00:00", "y"},    // the sequence decides
			{"zzz", 1, "2027-01-01 00:00:00", "y"},
		}
		for _, s := range steps {
			deployRow(p, worker, s.id, s.sequence, s.created)
			if got := latest(); got != s.want {
				t.Errorf("after %s: %q, want %q", s.id, got, s.want)
			}
		}
	})
}

// D4, S3-73: a company sees all of its own departments, deleted ones too, page
// by page, and none of another company's.
func TestList(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		ctx := context.Background()
		var want []string
		for i := range 5 {
			id := fmt.Sprintf("%s-%d", p.Tenant.DepartmentID, i)
			p.Provision(models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: id})
			want = append(want, id)
		}
		want = append(want, p.Tenant.DepartmentID)
		slices.Sort(want)
		if err := p.Directory.DeleteDepartment(ctx, p.Actor, want[1]); err != nil {
			t.Fatal(err)
		}
		other := plane.New(t, p.DB)
		p.Submit("one")
		var got []string
		after := ""
		for {
			page, err := company.List(ctx, p.DB, p.Tenant.CompanyID, after, 4)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Items {
				got = append(got, d.ID)
				if (d.Worker != nil) != (d.ID == p.Tenant.DepartmentID) || (d.DeletedAt != nil) != (d.ID == want[1]) {
					t.Errorf("%s: Worker %v, deleted %v", d.ID, d.Worker, d.DeletedAt)
				}
			}
			if page.Next == "" {
				break
			}
			after = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		_, err := company.Of(ctx, p.DB, models.Tenant{CompanyID: other.Tenant.CompanyID, DepartmentID: p.Tenant.DepartmentID})
		if !errors.Is(err, tenancy.ErrNoDepartment) {
			t.Errorf("another company's department: %v", err)
		}
	})
}
