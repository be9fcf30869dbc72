package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func (a *api) fact(tenant models.Tenant, action string) string {
	a.t.Helper()
	id := uuid.NewString()
	a.must(a.DB.Tx(a.t.Context(), func(tx *database.Tx) error {
		return audit.Write(tx, audit.Fact{
			ID: id, Tenant: tenant, Actor: audit.Actor{Type: "user", ID: "user:x", Method: "bearer_jwt", RequestID: "req-x"},
			Action: action, ResourceType: "edge_worker", ResourceID: "w-" + action, Result: audit.Succeeded, Digest: strings.Repeat("d", 64),
		})
	}))
	return id
}

// D4, D6: a manager sees the department's facts, a company admin those of all of
// the company's departments, nobody another tenant's, and others are refused.
func TestAuditRoutes(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		get := func(token, target string) answer { return a.do("GET", target, request{token: token}) }
		sibling := models.Tenant{CompanyID: a.Tenant.CompanyID, DepartmentID: "sibling-" + a.Tenant.DepartmentID}
		foreign := models.Tenant{CompanyID: "foreign-" + a.Tenant.CompanyID, DepartmentID: a.Tenant.DepartmentID}
		mine := a.fact(a.Tenant, "secrets.put")
		theirs := a.fact(sibling, "secrets.put")
		a.fact(foreign, "secrets.put")
		a.Exec("UPDATE edge_worker_audit_logs SET created_at = ? WHERE id = ?", time.Now().UTC().Add(-time.Second), mine) // SQLite counts in milliseconds
		var page gen.AuditPage
		get(a.manager(), "/worker/audit?action=secrets.put").into(http.StatusOK, &page)
		if len(page.Items) != 1 || page.NextCursor != nil {
			t.Fatalf("%+v", page)
		}
		f := page.Items[0]
		if f.ID != mine || *f.DepartmentID != a.Tenant.DepartmentID || f.ActorType != "user" || f.ActorID != "user:x" || f.AuthMethod != "bearer_jwt" || f.Action != "secrets.put" ||
			f.ResourceType != "edge_worker" || f.ResourceID != "w-secrets.put" || f.Result != "succeeded" || f.ReasonCode != nil || *f.Digest != strings.Repeat("d", 64) ||
			*f.RequestID != "req-x" || f.CreatedAt.IsZero() {
			t.Errorf("%+v", f)
		}
		get(a.companyAdmin(), "/company/audit?action=secrets.put").into(http.StatusOK, &page)
		if len(page.Items) != 2 || page.Items[0].ID != theirs || page.Items[1].ID != mine {
			t.Errorf("company: %+v", page.Items)
		}
		get(a.companyAdmin(), "/company/audit?action=secrets.put&limit=1").into(http.StatusOK, &page)
		if len(page.Items) != 1 || page.NextCursor == nil {
			t.Fatalf("first page: %+v", page)
		}
		get(a.companyAdmin(), "/company/audit?action=secrets.put&limit=1&cursor="+url.QueryEscape(*page.NextCursor)).into(http.StatusOK, &page)
		if len(page.Items) != 1 || page.Items[0].ID != mine || page.NextCursor != nil {
			t.Errorf("second page: %+v", page)
		}
		for query, want := range map[string]int{
			"resource=w-secrets.put": 1, "resource=other": 0, "action=other": 0, "since=2000-01-01T00:00:00Z&action=secrets.put": 1, "until=2000-01-01T00:00:00Z": 0,
			"since=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)): 0, "resource=" + url.QueryEscape("' OR 1=1 --"): 0,
		} {
			get(a.manager(), "/worker/audit?"+query).into(http.StatusOK, &page)
			if len(page.Items) != want {
				t.Errorf("%s: %d facts", query, len(page.Items))
			}
		}
		for _, token := range []string{a.companyAdmin(), a.member(), a.platform()} {
			get(token, "/worker/audit").is(http.StatusForbidden, `{"detail":"Not enough permissions"}`)
		}
		for _, token := range []string{a.manager(), a.member(), a.platform()} {
			get(token, "/company/audit").is(http.StatusForbidden, `{"detail":"Not enough permissions"}`)
		}
		get("", "/worker/audit").is(http.StatusUnauthorized, `{"detail":"Not authenticated"}`)
		stranger := a.token(auth.Principal{Subject: "user:x", CompanyID: "another", Roles: []auth.Role{auth.CompanyAdmin}})
		get(stranger, "/company/audit").into(http.StatusOK, &page)
		if len(page.Items) != 0 {
			t.Errorf("a stranger sees %+v", page.Items)
		}
	})
}

// Wrong filters are refused, each with its place.
func TestAuditFilters(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		for _, c := range []struct{ token, path string }{{a.manager(), "/worker/audit"}, {a.companyAdmin(), "/company/audit"}} {
			get := func(query string) answer { return a.do("GET", c.path+"?"+query, request{token: c.token}) }
			get("since=yesterday&until=2026").problems(problem{"time_invalid", `["query","since"]`}, problem{"time_invalid", `["query","until"]`})
			get("since=0001-01-01T00:00:00Z").problems(problem{"time_invalid", `["query","since"]`})
			get("action=" + strings.Repeat("x", 129)).problems(problem{"filter_invalid", `["query","action"]`})
			get("resource=%ff").problems(problem{"filter_invalid", `["query","resource"]`})
			get("cursor=x").problems(problem{"cursor_invalid", `["query","cursor"]`})
			get("limit=101").problems(problem{"limit_invalid", `["query","limit"]`})
			var page gen.AuditPage
			get("limit=100&since=2026-01-01T00:00:00%2B01:00").into(http.StatusOK, &page)
		}
	})
}
