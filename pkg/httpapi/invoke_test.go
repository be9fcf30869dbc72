package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// ordersProject has paths with parameters.
func ordersProject() map[string]string {
	p := plane.Project("orders")
	p["worker.json"] = `{"schema_version": 1, "name": "orders", "language": "javascript", "entry": "src/index.js",
		"compatibility_date": "2026-01-01", "operations": [
			{"id": "orders.get", "method": "GET", "path": "/orders/{id}"}, {"id": "orders.create", "method": "POST", "path": "/orders"}]}`
	p["src/index.js"] = "export default { 'orders.get': (i) => i, 'orders.create': (i) => i };\n"
	return p
}

// live submits and activates the orders project and gives its script name.
func (a *api) live() models.Worker {
	a.t.Helper()
	v, err := a.Submitter.Submit(a.t.Context(), version.Submission{Tenant: a.Tenant, Actor: a.Actor, Archive: strings.NewReader(string(projecttest.Archive(a.t, ordersProject())))})
	a.must(err)
	a.activate(v)
	return a.Worker()
}

// Both doors send the same signed call, with the caller that the token names
// and the live generation; the Worker's answer comes back as it is (D11).
func TestInvoke(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		w := a.live()
		token := a.token(a.principal(auth.CompanyAdmin))
		got := a.do("POST", "/worker/invoke/orders.create", request{token: token, media: "application/json", body: strings.NewReader(` {"a":[1]} `), header: map[string]string{"X-Request-Id": "r-1"}})
		got.is(200, `{"ok":true}`)
		a.do("POST", "/w/"+w.ScriptName+"/orders?x=1&y=2&y=3", request{token: token, media: "application/json", body: strings.NewReader(`{"a":1}`)}).is(200, `{"ok":true}`)
		a.do("GET", "/w/"+w.ScriptName+"/orders/7%2525%20z", request{token: token}).is(200, `{"ok":true}`)
		a.do("POST", "/worker/invoke/orders.create", request{token: token}).is(200, `{"ok":true}`)
		a.do("POST", "/worker/invoke/orders.create", request{token: token, media: "application/json", body: strings.NewReader("null")}).is(200, `{"ok":true}`)
		want := []seen{
			{path: "orders.create", body: `{"a":[1]}`}, {path: "orders.create", body: `{"a":1,"x":"1","y":["2","3"]}`}, {path: "orders.get", body: `{"id":"7%25 z"}`},
			{path: "orders.create", body: `{}`}, {path: "orders.create", body: "null"},
		}
		if len(a.host.seen) != len(want) {
			t.Fatalf("%d calls at the host, want %d", len(a.host.seen), len(want))
		}
		for i, s := range a.host.seen {
			if s.path != "/"+w.ScriptName+"/__invoke/"+want[i].path || s.body != want[i].body {
				t.Errorf("call %d: %s %s", i, s.path, s.body)
			}
		}
		var said struct {
			Script, Generation, Operation string
			Caller                        map[string]any
		}
		a.must(json.Unmarshal([]byte(a.host.seen[0].assertion), &said))
		caller := said.Caller
		if said.Script != w.ScriptName || said.Generation != a.Version(w.CurrentVersionID).ReleaseGeneration || caller["kind"] != "member" ||
			caller["sub"] != "user:1" || caller["company_id"] != a.Tenant.CompanyID || caller["department_id"] != a.Tenant.DepartmentID || caller["request_id"] != "r-1" {
			t.Errorf("asserted %+v", said)
		}
	})
}

// A member of another department of the company may call by the script's name
// (private mode), and never by the direct door, which is his own department's.
func TestInvokeByOthers(t *testing.T) {
	a := on(t)
	w := a.live()
	sibling := models.Tenant{CompanyID: a.Tenant.CompanyID, DepartmentID: "sibling"}
	a.Provision(sibling)
	direct := request{token: a.of(sibling), media: "application/json", body: strings.NewReader("{}")}
	a.do("POST", "/worker/invoke/orders.create", direct).is(404, `{"detail":"Department Worker not found"}`)
	a.do("GET", "/w/"+w.ScriptName+"/orders/1", request{token: a.of(sibling)}).is(200, `{"ok":true}`)
	companyWide := auth.Principal{Subject: "user:2", CompanyID: a.Tenant.CompanyID}
	a.do("GET", "/w/"+w.ScriptName+"/orders/1", request{token: a.token(companyWide)}).is(200, `{"ok":true}`)
	direct.token, direct.body = a.token(companyWide), nil
	a.do("POST", "/worker/invoke/orders.create", direct).is(404, `{"detail":"Department Worker not found"}`)
	nobody := auth.Principal{Subject: "user:3", Roles: []auth.Role{auth.PlatformAdmin}}
	a.do("GET", "/w/"+w.ScriptName+"/orders/1", request{token: a.token(nobody)}).is(404, `{"detail":"Department Worker not found"}`)
	if len(a.host.seen) != 3 { // the last one's too, as anybody's
		t.Errorf("%d calls at the host, want 3", len(a.host.seen))
	}
}

// What the gateway refuses by itself never reaches the host.
func TestInvokeRefusals(t *testing.T) {
	a := on(t)
	w := a.live()
	token := a.member()
	base := "/w/" + w.ScriptName
	call := func(method, target, media, body string) answer {
		r := request{token: token, media: media}
		if body != "" {
			r.body = strings.NewReader(body)
		}
		return a.do(method, target, r)
	}
	call("POST", "/worker/invoke/orders.gone", "", "").is(404, `{"detail":"Operation not found"}`)
	call("POST", "/worker/invoke/%00", "", "").is(404, `{"detail":"Operation not found"}`)
	call("GET", base+"/nothing", "", "").is(404, `{"detail":"Operation not found"}`)
	call("GET", base+"/", "", "").is(404, `{"detail":"Operation not found"}`)
	call("GET", base+"/orders/a%2Fb", "", "").is(404, `{"detail":"Operation not found"}`)
	got := call("DELETE", base+"/orders/1", "", "")
	got.is(405, `{"detail":"Method Not Allowed"}`)
	if got.header.Get("Allow") != "GET" {
		t.Errorf("Allow %q", got.header.Get("Allow"))
	}
	call("POST", base+"/orders", "text/plain", "{}").is(415, `{"detail":"An operation takes application/json"}`)
	call("POST", "/worker/invoke/orders.create", "text/plain", "{}").is(415, `{"detail":"The request body must be application/json"}`)
	for _, target := range []string{base + "/orders", "/worker/invoke/orders.create"} {
		call("POST", target, "application/json", "{").problems(problem{"json_invalid", `["body"]`})
		call("POST", target, "application/json", `"`+strings.Repeat("x", 1<<20)+`"`).is(413, `{"detail":"Request body is too large"}`)
	}
	call("POST", base+"/orders?a=1", "application/json", "[]").problems(problem{"json_invalid", `["body"]`})
	call("POST", base+"/orders?a=1", "application/json", `{"a":2}`).problems(problem{"input_conflict", `["query","a"]`})
	call("GET", base+"/orders/1?id=2", "", "").problems(problem{"input_conflict", `["path","id"]`})
	call("GET", base+"/orders/1?%zz", "", "").problems(problem{"query_invalid", `["query"]`})
	call("GET", base+"/orders/1?"+strings.Repeat("a=1&", 201), "", "").problems(problem{"query_too_long", `["query"]`})

	for _, status := range []models.WorkerStatus{models.WorkerPaused, models.WorkerDraft} { // S2-187
		a.Exec("UPDATE edge_workers SET status = ?", status)
		call("GET", base+"/orders/1", "", "").is(404, `{"detail":"Department Worker not found"}`)
		call("POST", "/worker/invoke/orders.create", "", "").is(404, `{"detail":"Department Worker not found"}`)
	}
	if len(a.host.seen) != 0 {
		t.Fatalf("%d refused calls reached the host: %+v", len(a.host.seen), a.host.seen)
	}
	a.Exec("UPDATE edge_workers SET status = 'active'")
	call("GET", base+"/orders/1", "", "").is(200, `{"ok":true}`) // the control
}

// The Worker's own errors come through; the channel's do not look like them.
func TestWorkerAnswers(t *testing.T) {
	a := on(t)
	w := a.live()
	for name, c := range map[string]struct {
		status  int
		refusal string
		body    string
		code    int
		want    string
	}{
		"output":         {200, "", ` [1] `, 200, `[1]`},
		"own refusal":    {409, "", `{"detail":{"code":"order_not_open","message":"Order 1 is cancelled"}}`, 409, `{"detail":{"code":"order_not_open","message":"Order 1 is cancelled"}}`},
		"own 422":        {422, "", `{"detail":[{"type":"t","loc":["body"],"msg":"m"}]}`, 422, `{"detail":[{"type":"t","loc":["body"],"msg":"m"}]}`},
		"own 500":        {500, "", `{"detail":"Internal Server Error"}`, 500, `{"detail":"Internal Server Error"}`},
		"being changed":  {409, "door", `{"detail":{"code":"release_generation_mismatch","message":"x"}}`, 503, `{"detail":{"code":"worker_changing","message":"The Worker is being changed; try again"}}`},
		"not there":      {404, "host", `{"detail":{"code":"worker_not_found","message":"x"}}`, 503, `{"detail":{"code":"worker_changing","message":"The Worker is being changed; try again"}}`},
		"door's refusal": {401, "door", `{"detail":{"code":"assertion_invalid","message":"secret"}}`, 502, `{"detail":{"code":"worker_unreachable","message":"The Worker could not be reached"}}`},
		"a redirect":     {302, "", `{"detail":"x"}`, 502, `{"detail":{"code":"worker_unreachable","message":"The Worker could not be reached"}}`},
		"access refused": {403, "access", `{"detail":{"code":"address_not_allowed","message":"x"}}`, 403, `{"detail":{"code":"address_not_allowed","message":"x"}}`},
		"odd access":     {500, "access", `{"detail":{"code":"address_not_allowed","message":"x"}}`, 502, `{"detail":{"code":"worker_unreachable","message":"The Worker could not be reached"}}`},
		"no JSON":        {200, "", `<html>`, 502, `{"detail":{"code":"worker_unreachable","message":"The Worker could not be reached"}}`},
	} {
		a.host.answer = func(out http.ResponseWriter) {
			out.Header().Set("Set-Cookie", "a=b")
			if c.body == "<html>" {
				out.Header().Set("Content-Type", "text/html")
			}
			if c.refusal != "" {
				out.Header().Set("X-Edge-Workers-Refusal", c.refusal)
			}
			out.WriteHeader(c.status)
			_, _ = out.Write([]byte(c.body))
		}
		before := len(a.host.seen)
		got := a.do("GET", "/w/"+w.ScriptName+"/orders/1", request{token: a.member()})
		got.is(c.code, c.want)
		if got.header.Get("Set-Cookie") != "" || got.header.Get("X-Edge-Workers-Refusal") != "" {
			t.Errorf("%s: headers %v", name, got.header)
		}
		if len(a.host.seen) != before+1 {
			t.Errorf("%s: sent %d times", name, len(a.host.seen)-before)
		}
	}
	a.host.server.Close()
	a.do("GET", "/w/"+w.ScriptName+"/orders/1", request{token: a.member()}).is(502, `{"detail":{"code":"worker_unreachable","message":"The Worker could not be reached"}}`)
}
