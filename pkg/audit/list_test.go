package audit_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
)

// stored writes facts of several tenants; those of c1/d1 are f0 to f9, one each
// second but for f4 and f5, which share theirs.
func stored(t *testing.T, db *database.DB) time.Time {
	t.Helper()
	began := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	for i := range 10 {
		at := began.Add(time.Duration(i) * time.Second)
		if i == 5 {
			at = began.Add(4 * time.Second)
		}
		action, resource := "secrets.put", "w1"
		if i%2 == 1 {
			action, resource = "secrets.delete", "w2"
		}
		for _, tenant := range [][2]string{{"c1", "d1"}, {"c1", "d2"}, {"c2", "d1"}} {
			row := models.AuditLog{
				ID: fmt.Sprintf("f%d-%s-%s", i, tenant[0], tenant[1]), CompanyID: tenant[0], DepartmentID: tenant[1], Action: action, ResourceID: resource, CreatedAt: at,
			}
			must(t, db.Read(t.Context()).Create(&row).Error)
		}
	}
	return began
}

func ids(page audit.Page) []string {
	var out []string
	for _, row := range page.Items {
		out = append(out, row.ID[:2])
	}
	return out
}

// D4, S3-57: a department sees its own facts, a company those of its
// departments, newest first; the filters narrow, alone and together.
func TestList(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		began := stored(t, db)
		tenant := models.Tenant{CompanyID: "c1", DepartmentID: "d1"}
		for name, c := range map[string]struct {
			filter audit.Filter
			want   string
		}{
			"all":        {audit.Filter{}, "[f9 f8 f7 f6 f5 f4 f3 f2 f1 f0]"},
			"action":     {audit.Filter{Action: "secrets.put"}, "[f8 f6 f4 f2 f0]"},
			"resource":   {audit.Filter{ResourceID: "w2"}, "[f9 f7 f5 f3 f1]"},
			"since":      {audit.Filter{Since: began.Add(7 * time.Second)}, "[f9 f8 f7]"},
			"until":      {audit.Filter{Until: began.Add(2 * time.Second)}, "[f1 f0]"},
			"other zone": {audit.Filter{Until: began.Add(2 * time.Second).In(time.FixedZone("x", 3600))}, "[f1 f0]"},
			"together":   {audit.Filter{Action: "secrets.put", ResourceID: "w1", Since: began.Add(2 * time.Second), Until: began.Add(6 * time.Second)}, "[f4 f2]"},
			"nothing":    {audit.Filter{Action: "secrets.put", ResourceID: "w2"}, "[]"},
		} {
			page, err := audit.List(t.Context(), db, tenant, c.filter, "", 0)
			if err != nil || fmt.Sprint(ids(page)) != c.want || page.Next != "" {
				t.Errorf("%s: %v, %v", name, ids(page), err)
			}
			for _, row := range page.Items {
				if row.CompanyID != "c1" || row.DepartmentID != "d1" {
					t.Errorf("%s: a fact of %s/%s", name, row.CompanyID, row.DepartmentID)
				}
			}
		}
		company, err := audit.ListCompany(t.Context(), db, "c1", audit.Filter{Action: "secrets.put"}, "", 0)
		if err != nil || len(company.Items) != 10 || slices.ContainsFunc(company.Items, func(r models.AuditLog) bool { return r.CompanyID != "c1" }) {
			t.Errorf("company: %v, %v", company.Items, err)
		}
		for _, other := range []models.Tenant{{CompanyID: "c1", DepartmentID: "d3"}, {CompanyID: "c3", DepartmentID: "d1"}, {}} {
			if page, err := audit.List(t.Context(), db, other, audit.Filter{}, "", 0); err != nil || len(page.Items) != 0 {
				t.Errorf("%v: %v, %v", other, page.Items, err)
			}
		}
	})
}

// Pages meet without a gap or a repetition, also within one moment and while
// newer facts arrive; the limit has its bounds.
func TestListPages(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		stored(t, db)
		tenant := models.Tenant{CompanyID: "c1", DepartmentID: "d1"}
		for size := 1; size <= 11; size++ {
			var seen []string
			cursor := ""
			for {
				page, err := audit.List(t.Context(), db, tenant, audit.Filter{}, cursor, size)
				must(t, err)
				seen = append(seen, ids(page)...)
				row := models.AuditLog{ID: fmt.Sprintf("n%d-%d", size, len(seen)), CompanyID: "c1", DepartmentID: "d1", CreatedAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
				must(t, db.Read(t.Context()).Create(&row).Error)
				if page.Next == "" {
					break
				}
				cursor = page.Next
			}
			if fmt.Sprint(seen) != "[f9 f8 f7 f6 f5 f4 f3 f2 f1 f0]" {
				t.Errorf("pages of %d: %v", size, seen)
			}
			must(t, db.Read(t.Context()).Exec("DELETE FROM edge_worker_audit_logs WHERE id LIKE 'n%'").Error)
		}
		for i := range 110 {
			row := models.AuditLog{ID: fmt.Sprintf("m%d", i), CompanyID: "c1", DepartmentID: "d1", CreatedAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
			must(t, db.Read(t.Context()).Create(&row).Error)
		}
		for limit, want := range map[int]int{0: audit.DefaultPage, -1: audit.DefaultPage, 1000: audit.MaxPage, 7: 7} {
			if page, err := audit.List(t.Context(), db, tenant, audit.Filter{}, "", limit); err != nil || len(page.Items) != want {
				t.Errorf("limit %d: %d, %v", limit, len(page.Items), err)
			}
		}
	})
}

// A cursor that no list gave is refused.
func TestListCursor(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		for _, text := range []string{"", "x", "1", "1 ", " f1", "-1 f1", "99999999999999999999 f1", "253402300800000000 f1", "1.5 f1"} {
			cursor := base64.RawURLEncoding.EncodeToString([]byte(text))
			if text == "" {
				cursor = "!"
			}
			if _, err := audit.List(t.Context(), db, models.Tenant{}, audit.Filter{}, cursor, 0); err == nil {
				t.Errorf("%q was taken", text)
			}
		}
	})
}
