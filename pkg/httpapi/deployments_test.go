package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/ticket"
)

// S2-008, S2-024, S2-259, S2-260, S2-267: 202 with the ticket's exact keys, the
// same ticket again for the same request, and each status that a poll may see.
func TestDeploy(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		v := a.Submit("one")
		var raw map[string]any
		a.deploy(v).into(202, &raw)
		keys := []string{"company_id", "department_id", "error_code", "operation", "status", "ticket_id", "version_id", "worker_id"}
		if got := slices.Sorted(maps.Keys(raw)); !slices.Equal(got, keys) {
			t.Errorf("keys %v", got)
		}
		if raw["operation"] != "deploy" || raw["status"] != "submitting" || raw["error_code"] != nil || raw["version_id"] != v.ID {
			t.Errorf("ticket %v", raw)
		}
		var again gen.Ticket
		a.deploy(v).into(202, &again)
		if again.TicketID != raw["ticket_id"] || len(a.Published.Messages()) != 1 {
			t.Errorf("the retry got %+v, %d messages", again, len(a.Published.Messages()))
		}
		target := "/worker/deployments/" + again.TicketID
		statuses := map[string]bool{"submitting": true}
		for _, c := range []struct {
			stored models.OutboxStatus
			finer  ticket.Status
			want   string
		}{
			{"pending", "deploying", "pending"}, {"leased", "", "leased"}, {"leased", "deploying", "deploying"}, {"leased", "completed", "leased"},
			{"completed", "deploying", "completed"}, {"failed", "deploying", "failed"}, {"cancelled", "", "cancelled"}, {"uncertain", "deploying", "uncertain"},
		} {
			a.Exec("UPDATE edge_worker_outbox SET status = ?, last_error_code = ? WHERE ticket_id = ?", c.stored, map[bool]string{true: "a_code"}[c.stored == "failed"], again.TicketID)
			a.Redis.Del(t.Context(), "edge-workers:ticket:"+again.TicketID)
			if c.finer != "" {
				a.must(a.Mirror.Put(t.Context(), a.Row(again.TicketID), c.finer))
			}
			var seen map[string]any
			a.get(target).into(200, &seen)
			statuses[fmt.Sprint(seen["status"])] = true
			if got := slices.Sorted(maps.Keys(seen)); seen["status"] != c.want || !slices.Equal(got, keys) {
				t.Errorf("%v: %v", c, seen)
			}
			if (seen["error_code"] == "a_code") != (c.stored == "failed") || (seen["error_code"] == nil) == (c.stored == "failed") {
				t.Errorf("%v: error_code %v", c, seen["error_code"]) // S3-69
			}
		}
		for _, s := range documentedStatuses(t) {
			if !statuses[s] {
				t.Errorf("the documented status %s was never seen", s)
			}
			delete(statuses, s)
		}
		if len(statuses) != 0 {
			t.Errorf("undocumented: %v", statuses)
		}
	})
}

// documentedStatuses is the enum of the document.
func documentedStatuses(t *testing.T) []string {
	t.Helper()
	var document struct {
		Components struct {
			Schemas struct {
				TicketStatus struct{ Enum []string }
			}
		}
	}
	err := json.Unmarshal(gen.Document(), &document)
	if err != nil || len(document.Components.Schemas.TicketStatus.Enum) == 0 {
		t.Fatalf("the document's statuses: %v", err)
	}
	return document.Components.Schemas.TicketStatus.Enum
}

// S2-016, S2-033, S2-035, S2-039, S2-040, S2-049, S2-053 to S2-055, S2-057:
// refusals as clients parse them, word for word.
func TestDeploymentRefusals(t *testing.T) {
	a := on(t)
	first, v := a.Submit("one"), a.Submit("two")
	body := func(v models.Version, base int64) string {
		return fmt.Sprintf(`{"version_id":%q,"base_revision":%d}`, v.ID, base)
	}
	post := func(body string) answer { return a.send("POST", "/worker/deployments", body) }

	lock, err := claim.Settings(t.Context(), a.Redis, a.Tenant.CompanyID, a.Tenant.DepartmentID)
	a.must(err)
	post(body(v, 2)).is(409, `{"detail":{"code":"deployment_in_progress","message":"Another Worker settings mutation or deployment is in progress"}}`)
	a.must(lock.Release(t.Context()))

	post(body(v, 1)).is(409, `{"detail":"Worker revision changed; refresh before deploying"}`)
	a.Exec("UPDATE edge_workers SET migration_namespace = 'elsewhere'")
	post(body(v, 2)).is(409, `{"detail":{"code":"worker_migration_in_progress","message":"Worker migration is in progress"}}`)
	a.Exec("UPDATE edge_workers SET migration_namespace = '', serving_kind = 'moon', serving_namespace = 'x'")
	post(body(v, 2)).is(409, `{"detail":{"code":"worker_serving_target_unavailable","message":"Worker deployment target cannot be verified"}}`)
	a.Exec("UPDATE edge_workers SET serving_kind = '', serving_namespace = ''")
	a.Exec("UPDATE edge_worker_versions SET state = 'failed' WHERE id = ?", first.ID)
	post(body(first, 2)).is(409, `{"detail":"Worker version cannot deploy from state 'failed'"}`)
	if a.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'") != 0 || len(a.Published.Messages()) != 0 {
		t.Error("a refused request left a row or a message")
	}

	var made gen.Ticket
	post(body(v, 2)).into(202, &made)
	a.Exec("UPDATE edge_worker_versions SET state = 'ready' WHERE id = ?", first.ID)
	post(body(first, 2)).is(409, `{"detail":{"code":"deployment_in_progress","message":"Operation settings cannot change during a deployment"}}`)
	set := func(status string) {
		a.Exec("UPDATE edge_worker_outbox SET status = ? WHERE ticket_id = ?", status, made.TicketID)
	}
	set("uncertain")
	post(body(v, 2)).is(409, `{"detail":"uncertain deployment requires company reconciliation"}`)
	set("completed")
	post(body(v, 2)).is(409, `{"detail":"Worker version was superseded; V2 rollback is not supported"}`)
	set("failed")
	post(body(first, 2)).is(409, `{"detail":"a deployment is already active for this department Worker"}`)
	a.Exec("UPDATE edge_worker_versions SET state = 'failed' WHERE id = ?", v.ID)
	post(body(first, 2)).into(202, &gen.Ticket{}) // the control
}

// One entry for each fault of a body, in a stable order.
func TestDeploymentBodies(t *testing.T) {
	a := on(t)
	v := a.Submit("one")
	good := fmt.Sprintf(`{"version_id":%q,"base_revision":1}`, v.ID)
	post := func(media, body string) answer {
		return a.do("POST", "/worker/deployments", request{token: a.manager(), media: media, body: strings.NewReader(body)})
	}
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json;;"} {
		post(media, good).is(415, `{"detail":"The request body must be application/json"}`)
	}
	invalid := problem{"json_invalid", `["body"]`}
	for _, body := range []string{"", "null", "[]", "7", `"x"`, "{", good + "{}", good + "x", `{"version_id":}`, "\xff"} {
		post("application/json", body).problems(invalid)
	}
	missing := func(name string) problem { return problem{"missing", `["body","` + name + `"]`} }
	wrong := func(name string) problem { return problem{"type_error", `["body","` + name + `"]`} }
	extra := func(name string) problem { return problem{"extra_forbidden", `["body","` + name + `"]`} }
	for body, want := range map[string][]problem{
		`{}`:                                   {missing("base_revision"), missing("version_id")},
		`{"version_id":7,"base_revision":"1"}`: {wrong("base_revision"), wrong("version_id")},
		`{"version_id":null,"base_revision":null}`:                                  {wrong("base_revision"), wrong("version_id")},
		`{"version_id":"x","base_revision":1.5}`:                                    {wrong("base_revision")},
		`{"version_id":"x","base_revision":1e400}`:                                  {wrong("base_revision")},
		`{"version_id":"x","base_revision":9223372036854775808}`:                    {wrong("base_revision")},
		`{"version_id":["x"],"base_revision":true}`:                                 {wrong("base_revision"), wrong("version_id")},
		`{"version_id":"x","base_revision":1,"company_id":"c","operation":"purge"}`: {extra("company_id"), extra("operation")},
		`{"Version_ID":"x","base_revision":1}`:                                      {missing("version_id"), extra("Version_ID")},
	} {
		post("application/json", body).problems(want...)
	}
	post("application/json", good+strings.Repeat(" ", 64<<10)).is(413, `{"detail":"Request body is too large"}`)
	if a.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'") != 0 {
		t.Error("a refused body left a ticket")
	}
	if got := post("Application/JSON; charset=utf-8", good); got.code != 202 { // the control
		t.Errorf("control: %d %s", got.code, got.body)
	}
}

// D5: every line of a request carries its id, once, also the lines of the parts
// below the routes.
func TestRequestIDIsInEveryLine(t *testing.T) {
	a := on(t)
	v := a.Submit("one")
	got := a.do("POST", "/worker/deployments", request{
		token: a.manager(), media: "application/json", body: strings.NewReader(fmt.Sprintf(`{"version_id":%q,"base_revision":7}`, v.ID)),
		header: map[string]string{"X-Request-Id": "given-id_1.2"},
	})
	if got.code != 409 || got.header.Get("X-Request-Id") != "given-id_1.2" {
		t.Errorf("%d %v", got.code, got.header)
	}
	lines := 0
	for line := range strings.Lines(a.log.String()) {
		lines++
		if strings.Count(line, `"request_id":"given-id_1.2"`) != 1 || strings.Count(line, "request_id") != 1 {
			t.Errorf("line %s", line)
		}
	}
	if lines != 2 { // the refusal and the request
		t.Errorf("%d lines: %s", lines, a.log)
	}
	again := a.do("GET", "/worker", request{token: a.manager(), header: map[string]string{"X-Request-Id": "not well-formed"}})
	if id := again.header.Get("X-Request-Id"); len(id) != 36 || !strings.Contains(a.log.String(), id) {
		t.Errorf("created id %q", id)
	}
}
