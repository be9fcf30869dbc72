package httpapi_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/plane"
)

func (a *api) admin(method, target, body string) answer {
	a.t.Helper()
	r := request{token: a.platform()}
	if body != "" {
		r.media, r.body = "application/json", strings.NewReader(body)
	}
	return a.do(method, target, r)
}

func (a *api) facts(action string) int64 {
	a.t.Helper()
	return a.count("SELECT COUNT(*) FROM edge_worker_audit_logs WHERE action = ?", action)
}

// D4, S3-73 to S3-78: provisioning is idempotent, writes one fact for each
// change, and refuses with the state's own words.
func TestPlatform(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		before := a.facts("company.put") + a.facts("department.put")
		for range 2 {
			a.admin("PUT", "/platform/companies/acme", `{"name":"Acme"}`).is(200, `{"id":"acme","name":"Acme"}`)
		}
		a.admin("PUT", "/platform/companies/acme", `{"name":"Acme 東京"}`).is(200, `{"id":"acme","name":"Acme 東京"}`)
		a.admin("PUT", "/platform/companies/other", `{"name":"Other"}`).is(200, `{"id":"other","name":"Other"}`)
		for range 2 {
			a.admin("PUT", "/platform/departments/sales", `{"company_id":"acme","name":"Sales"}`).is(200, `{"company_id":"acme","id":"sales","name":"Sales"}`)
		}
		if n := a.facts("company.put") + a.facts("department.put") - before; n != 4 {
			t.Errorf("%d facts, want one for each change", n)
		}
		a.admin("PUT", "/platform/departments/sales", `{"company_id":"other","name":"Sales"}`).
			is(409, `{"detail":{"code":"department_belongs_to_another_company","message":"The department belongs to another company"}}`)
		a.admin("PUT", "/platform/departments/lost", `{"company_id":"nobody","name":"Lost"}`).is(404, `{"detail":"Company not found"}`)
		a.admin("DELETE", "/platform/companies/nobody", "").is(404, `{"detail":"Company not found"}`)
		a.admin("DELETE", "/platform/departments/nobody", "").is(404, `{"detail":"Department not found"}`)

		sales := models.Tenant{CompanyID: "acme", DepartmentID: "sales"}
		submit := func() answer {
			return a.do("POST", "/worker/versions", request{token: a.of(sales), media: "application/gzip", body: bytes.NewReader(projecttest.Archive(t, plane.Project("x")))})
		}
		submit().into(201, &gen.Version{})
		for range 2 {
			a.admin("DELETE", "/platform/departments/sales", "").is(204, "")
		}
		if a.facts("department.deleted") != 1 || a.count("SELECT COUNT(*) FROM edge_worker_versions") != 1 {
			t.Error("the soft delete has one fact and keeps every row")
		}
		submit().is(404, `{"detail":"Department not found"}`)
		a.admin("PUT", "/platform/departments/sales", `{"company_id":"acme","name":"Sales"}`).
			is(409, `{"detail":{"code":"department_deleted","message":"The department was deleted; use a new id"}}`)
		a.admin("DELETE", "/platform/companies/acme", "").is(204, "")
		a.admin("DELETE", "/platform/companies/acme", "").is(404, `{"detail":"Company not found"}`)
		if a.count("SELECT COUNT(*) FROM edge_worker_versions") != 0 || a.facts("company.deleted") != 1 || a.facts("version.submitted") != 1 {
			t.Error("the hard delete takes the rows and keeps the facts")
		}
	})
}

func TestPlatformInputs(t *testing.T) {
	a := on(t)
	for _, id := range []string{"a%20b", "%00", "a.b", strings.Repeat("a", 65), "%C3%A4"} {
		a.admin("PUT", "/platform/companies/"+id, `{"name":"x"}`).problems(problem{"id_invalid", `["path","company_id"]`})
		a.admin("DELETE", "/platform/companies/"+id, "").problems(problem{"id_invalid", `["path","company_id"]`})
		a.admin("PUT", "/platform/departments/"+id, `{"company_id":"x","name":"x"}`).problems(problem{"id_invalid", `["path","department_id"]`})
		a.admin("DELETE", "/platform/departments/"+id, "").problems(problem{"id_invalid", `["path","department_id"]`})
	}
	a.admin("PUT", "/platform/departments/x", `{"company_id":"a b","name":"x"}`).problems(problem{"id_invalid", `["body","company_id"]`})
	for _, name := range []string{"", strings.Repeat("ä", 256)} {
		a.admin("PUT", "/platform/companies/x", `{"name":"`+name+`"}`).problems(problem{"name_invalid", `["body","name"]`})
		a.admin("PUT", "/platform/departments/x", `{"company_id":"`+a.Tenant.CompanyID+`","name":"`+name+`"}`).problems(problem{"name_invalid", `["body","name"]`})
	}
	a.admin("PUT", "/platform/companies/x", `{"id":"y"}`).problems(problem{"missing", `["body","name"]`}, problem{"extra_forbidden", `["body","id"]`})
	a.admin("PUT", "/platform/companies/x", `{"name":"`+strings.Repeat("x", 64<<10)+`"}`).is(413, `{"detail":"Request body is too large"}`)
	a.do("PUT", "/platform/companies/x", request{token: a.platform(), body: strings.NewReader(`{"name":"x"}`)}).is(415, `{"detail":"The request body must be application/json"}`)
	if a.Count("companies") != 1 || a.Count("departments") != 1 {
		t.Error("a refused request made something")
	}
	longest := strings.Repeat("ä", 255)
	a.admin("PUT", "/platform/companies/x", `{"name":"`+longest+`"}`).is(200, `{"id":"x","name":"`+longest+`"}`)
}
