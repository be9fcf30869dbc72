package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
)

func (a *api) companyAdmin() string {
	a.t.Helper()
	return a.token(auth.Principal{Subject: "user:admin", CompanyID: a.Tenant.CompanyID, Roles: []auth.Role{auth.CompanyAdmin}})
}

func (a *api) repair(token, body string) answer {
	a.t.Helper()
	return a.do("POST", "/company/departments/"+a.Tenant.DepartmentID+"/repairs", request{token: token, media: "application/json", body: strings.NewReader(body)})
}

// uncertainTicket brings a deployment to an uncertain end.
func (a *api) uncertainTicket() string {
	a.t.Helper()
	view := a.Admit(a.Submit("one"))
	a.Provider.OnReadBack = func(provider.Release) error { return &provider.UnreadableError{Cause: errors.New("away")} }
	messages := a.Published.Messages()
	a.must(a.Task(nil).Handle(context.Background(), messages[len(messages)-1]))
	a.Provider.OnReadBack = nil
	return view.TicketID
}

// S2-249 to S2-253, S2-258: the repair's exact body and role, and the ticket
// as it is afterwards.
func TestRepairRoute(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		ticketID := a.uncertainTicket()
		good := fmt.Sprintf(`{"action":"reconcile_uncertain_deployment","ticket_id":%q,"observed_worker_revision":1}`, ticketID)
		for _, token := range []string{a.manager(), a.member(), a.platform()} {
			a.repair(token, good).is(http.StatusForbidden, `{"detail":"Not enough permissions"}`)
		}
		a.repair("", good).is(http.StatusUnauthorized, `{"detail":"Not authenticated"}`)
		stranger := a.token(auth.Principal{Subject: "user:x", CompanyID: "another", Roles: []auth.Role{auth.CompanyAdmin}})
		a.repair(stranger, good).is(http.StatusNotFound, `{"detail":"Department not found"}`)
		a.repair(a.companyAdmin(), `{}`).problems(problem{"missing", `["body","action"]`}, problem{"missing", `["body","observed_worker_revision"]`}, problem{"missing", `["body","ticket_id"]`})
		a.repair(a.companyAdmin(), strings.Replace(good, `{`, `{"force":true,`, 1)).problems(problem{"extra_forbidden", `["body","force"]`})
		a.repair(a.companyAdmin(), strings.Replace(good, "reconcile_", "redo_", 1)).problems(problem{"enum", `["body","action"]`})
		a.repair(a.companyAdmin(), strings.Replace(good, `:1}`, `:7}`, 1)).is(http.StatusConflict, `{"detail":"Worker revision is stale; refresh department state"}`)
		if a.Row(ticketID).Status != models.OutboxUncertain {
			t.Fatalf("a refused repair changed the row: %s", a.Row(ticketID).Status)
		}
		var view gen.Ticket
		a.repair(a.companyAdmin(), good).into(http.StatusAccepted, &view)
		if view.TicketID != ticketID || view.Status != gen.TicketStatusSubmitting {
			t.Errorf("%+v", view)
		}
		a.repair(a.companyAdmin(), good).is(http.StatusConflict, `{"detail":{"code":"deployment_not_uncertain","message":"Only an uncertain deployment can be reconciled"}}`)
	})
}

// D4, S3-69: what a company admin sees of its departments, and of no others.
func TestCompanyRoutes(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		get := func(token, target string) answer { return a.do("GET", target, request{token: token}) }
		var page gen.CompanyDepartmentPage
		get(a.companyAdmin(), "/company/departments").into(http.StatusOK, &page)
		if len(page.Items) != 1 || page.Items[0].ID != a.Tenant.DepartmentID || page.Items[0].Worker != nil || page.Items[0].LatestDeployment != nil || page.NextCursor != nil {
			t.Errorf("%+v", page)
		}
		ticketID := a.uncertainTicket()
		second := models.Tenant{CompanyID: a.Tenant.CompanyID, DepartmentID: "zz-" + a.Tenant.DepartmentID}
		a.Provision(second)
		get(a.companyAdmin(), "/company/departments?limit=1").into(http.StatusOK, &page)
		latest := page.Items[0].LatestDeployment
		if page.NextCursor == nil || latest == nil || latest.TicketID != ticketID || latest.Status != gen.TicketStatusUncertain || latest.ErrorCode == nil {
			t.Fatalf("%+v", page)
		}
		get(a.companyAdmin(), "/company/departments?limit=1&cursor="+*page.NextCursor).into(http.StatusOK, &page)
		if len(page.Items) != 1 || page.Items[0].ID != second.DepartmentID || page.NextCursor != nil {
			t.Errorf("second page %+v", page)
		}
		var one gen.CompanyDepartment
		get(a.companyAdmin(), "/company/departments/"+a.Tenant.DepartmentID).into(http.StatusOK, &one)
		if one.Worker == nil || one.Worker.Status != gen.Paused {
			t.Errorf("%+v", one)
		}
		get(a.companyAdmin(), "/company/departments?cursor=!").problems(problem{"cursor_invalid", `["query","cursor"]`})
		get(a.companyAdmin(), "/company/departments?limit=101").problems(problem{"limit_invalid", `["query","limit"]`})
		stranger := a.token(auth.Principal{Subject: "user:x", CompanyID: "another", Roles: []auth.Role{auth.CompanyAdmin}})
		get(stranger, "/company/departments").into(http.StatusOK, &page)
		if len(page.Items) != 0 {
			t.Errorf("another company sees %+v", page.Items)
		}
		get(stranger, "/company/departments/"+a.Tenant.DepartmentID).is(http.StatusNotFound, `{"detail":"Department not found"}`)
		get(a.manager(), "/company/departments").is(http.StatusForbidden, `{"detail":"Not enough permissions"}`)
	})
}

// S2-070: no route returns the record of where a Worker is served.
func TestServingRecordStaysHome(t *testing.T) {
	a := on(t)
	ticketID := a.uncertainTicket()
	row := a.Row(ticketID)
	if row.Payload == nil || !strings.Contains(*row.Payload, plane.Namespace) || row.DispatchNamespace != plane.Namespace {
		t.Fatal("the row has no record") // the control
	}
	v := a.Version(row.VersionID)
	for _, got := range []answer{
		a.get("/worker"), a.get("/worker/versions"), a.get("/worker/versions/" + v.ID), a.get("/worker/deployments/" + ticketID), a.deploy(v),
		a.do("GET", "/company/departments", request{token: a.companyAdmin()}),
		a.do("GET", "/company/departments/"+a.Tenant.DepartmentID, request{token: a.companyAdmin()}),
		a.repair(a.companyAdmin(), fmt.Sprintf(`{"action":"reconcile_uncertain_deployment","ticket_id":%q,"observed_worker_revision":1}`, ticketID)),
	} {
		if got.code >= 500 || strings.Contains(string(got.body), plane.Namespace) || strings.Contains(string(got.body), "serving") {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
}
