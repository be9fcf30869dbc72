package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
)

// S2-187, D11: only an active Worker exists; a paused or draft one is the exact
// 404 at once on both ways in, and is back as soon as it is active.
func TestOnlyActiveWorkersExist(t *testing.T) {
	each(t, func(t *testing.T, h *host) {
		routed := func() error { _, _, err := h.gate.Routed(t.Context(), h.call("POST", "/say", "{}")); return err }
		direct := func() error { _, err := h.direct(t.Context(), "{}"); return err }
		must(t, routed())
		must(t, direct())
		for _, c := range []struct {
			status  models.WorkerStatus
			version string
		}{{models.WorkerPaused, h.version.ID}, {models.WorkerDraft, ""}, {models.WorkerDraft, h.version.ID}, {models.WorkerActive, ""}} {
			h.set(c.status, c.version)
			before := len(h.requests())
			for name, err := range map[string]error{"routed": routed(), "direct": direct()} {
				refused(t, fmt.Sprintf("%s, %s %q", name, c.status, c.version), err, fault.NotFound, "", "Department Worker not found")
			}
			if len(h.requests()) != before {
				t.Error("a request reached the host")
			}
			h.set(models.WorkerActive, h.version.ID)
			must(t, direct())
		}
	})
}

// D4, D11: under other names there is no Worker, and the direct way is the
// caller's own department's only; a colleague of another department comes in.
func TestOthers(t *testing.T) {
	each(t, func(t *testing.T, h *host) {
		admit := func(change func(*gateway.Call)) error {
			in := h.call("POST", "/say", "{}")
			change(&in)
			_, _, err := h.gate.Routed(t.Context(), in)
			return err
		}
		for name, change := range map[string]func(*gateway.Call){
			"no such script": func(c *gateway.Call) { c.ScriptName = models.ScriptName("a", "b") },
			"no script name": func(c *gateway.Call) { c.ScriptName = "" },
			"an odd name":    func(c *gateway.Call) { c.ScriptName += " " },
		} {
			refused(t, name, admit(change), fault.NotFound, "", "Department Worker not found")
		}
		must(t, admit(func(c *gateway.Call) { c.Caller.DepartmentID = "colleagues" }))
		_, err := h.gate.Direct(t.Context(), models.Tenant{CompanyID: "other", DepartmentID: h.Tenant.DepartmentID}, "echo.say", nil, h.caller)
		refused(t, "direct, another company", err, fault.NotFound, "", "Department Worker not found")
		_, err = h.gate.Direct(t.Context(), models.Tenant{CompanyID: h.Tenant.CompanyID, DepartmentID: "other"}, "echo.say", nil, h.caller)
		refused(t, "direct, another department", err, fault.NotFound, "", "Department Worker not found")
		_, err = h.gate.Direct(t.Context(), h.Tenant, "echo.say", nil, h.caller.Anonymous())
		refused(t, "direct, nobody", err, fault.NotFound, "", "Department Worker not found")
		notSignedIn := h.caller
		notSignedIn.Kind = "public" // a company alone makes no member
		_, err = h.gate.Direct(t.Context(), h.Tenant, "echo.say", nil, notSignedIn)
		refused(t, "direct, not signed in", err, fault.NotFound, "", "Department Worker not found")
	})
}

// Routes: the operation and its path parameters, an unknown path, and the
// methods that a known one has.
func TestRoutes(t *testing.T) {
	h := one(t)
	for _, c := range []struct {
		method, path, operation, input string
		methods                        []string
	}{
		{"POST", "/say", "echo.say", `{"a":1}`, nil},
		{"GET", "/orders/7", "orders.get", `{"a":1,"id":"7"}`, nil},
		{"GET", "orders/7", "orders.get", `{"a":1,"id":"7"}`, nil},
		{"PUT", "/orders/a b/items/%", "items.put", `{"a":1,"id":"a b","sku":"%"}`, nil},
		{"GET", "/", "root", `{"a":1}`, nil},
		{"GET", "", "root", `{"a":1}`, nil},
		{"GET", "/say", "", "", []string{"POST"}},
		{"DELETE", "/orders", "", "", []string{"GET", "POST"}},
		{"post", "/say", "", "", []string{"POST"}},
		{"POST", "/nothing", "", "", nil},
		{"POST", "/say/more", "", "", nil},
		{"GET", "/orders//items/1", "", "", nil},
		{"GET", "/orders/{id}/more", "", "", nil},
		{"POST", "/SAY", "", "", nil},
		{"POST", "/__control", "", "", nil},
	} {
		in, methods, err := h.gate.Routed(t.Context(), h.call(c.method, c.path, `{"a":1}`))
		if c.operation == "" {
			refused(t, c.method+" "+c.path, err, fault.NotFound, "", "Operation not found")
			if !slices.Equal(methods, c.methods) {
				t.Errorf("%s %s allows %v", c.method, c.path, methods)
			}
			continue
		}
		if err != nil || in.Operation != c.operation || string(in.Input) != c.input || methods != nil {
			t.Errorf("%s %s: %s %s, %v", c.method, c.path, in.Operation, in.Input, err)
		}
	}
	_, err := h.gate.Direct(t.Context(), h.Tenant, "orders.nothing", nil, h.caller)
	refused(t, "direct", err, fault.NotFound, "", "Operation not found")
}

// A new version's routes hold from the moment it is current.
func TestRoutesFollowTheVersion(t *testing.T) {
	h := one(t)
	second := h.Submit("another")
	admit := func() error { _, _, err := h.gate.Routed(t.Context(), h.call("GET", "/orders", "")); return err }
	must(t, admit())
	h.set(models.WorkerActive, second.ID)
	refused(t, "the new version", admit(), fault.NotFound, "", "Operation not found")
	h.set(models.WorkerActive, h.version.ID)
	must(t, admit())
	h.Exec("UPDATE edge_worker_versions SET manifest = NULL")
	must(t, admit()) // the routes of a version never change: they are kept
}

// Query values, repeated ones and path parameters merge into the input; a name
// in two places is refused with its place.
func TestInput(t *testing.T) {
	h := one(t)
	many := url.Values{}
	for i := range 201 {
		many.Add("n", fmt.Sprint(i))
	}
	for _, c := range []struct {
		name, path, body string
		query            url.Values
		input, problem   string
		loc              []any
	}{
		{"no body", "/orders/7", "", nil, `{"id":"7"}`, "", nil},
		{"a query", "/orders/7", `{"a":[1]}`, url.Values{"q": {"x"}, "r": {"1", "2"}, "e": {""}}, `{"a":[1],"e":"","id":"7","q":"x","r":["1","2"]}`, "", nil},
		{"body and query", "/orders/7", `{"q":1}`, url.Values{"q": {"x"}}, "", "input_conflict", []any{"query", "q"}},
		{"body and path", "/orders/7", `{"id":1}`, nil, "", "input_conflict", []any{"path", "id"}},
		{"query and path", "/orders/7", ``, url.Values{"id": {"8"}}, "", "input_conflict", []any{"path", "id"}},
		{"a list with values", "/orders/7", `[1]`, nil, "", "json_invalid", []any{"body"}},
		{"null with values", "/orders/7", `null`, nil, "", "json_invalid", []any{"body"}},
		{"broken with values", "/orders/7", `{`, nil, "", "json_invalid", []any{"body"}},
		{"broken", "/orders", `{"a":1`, nil, "", "json_invalid", []any{"body"}},
		{"a list", "/orders", ` [1] `, nil, `[1]`, "", nil},
		{"null", "/orders", `null`, nil, `null`, "", nil},
		{"nothing", "/orders", " ", nil, `{}`, "", nil},
		{"200 values", "/orders", "", url.Values{"n": many["n"][:200]}, "any", "", nil},
		{"201 values", "/orders", "", many, "", "query_too_long", []any{"query"}},
	} {
		call := h.call("GET", c.path, c.body)
		call.Query = c.query.Encode()
		in, _, err := h.gate.Routed(t.Context(), call)
		if c.problem == "" {
			if err != nil || (c.input != "any" && string(in.Input) != c.input) {
				t.Errorf("%s: %s, %v", c.name, in.Input, err)
			}
			continue
		}
		f := fault.As(err)
		if f.Kind != fault.Invalid || len(f.Problems) != 1 || f.Problems[0].Type != c.problem || !slices.Equal(f.Problems[0].Loc, c.loc) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A body is JSON or nothing: 415 for another media type.
func TestMediaType(t *testing.T) {
	h := one(t)
	for media, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "application/jsonx": false, ";": false,
	} {
		call := h.call("POST", "/say", "{}")
		call.Header = http.Header{"Content-Type": {media}}
		_, _, err := h.gate.Routed(t.Context(), call)
		if ok && err != nil {
			t.Errorf("%q: %v", media, err)
		}
		if !ok {
			refused(t, media, err, fault.UnsupportedType, "", "An operation takes application/json")
		}
		call.Body = nil // without a body the type does not matter
		if _, _, err := h.gate.Routed(t.Context(), call); err != nil {
			t.Errorf("%q without a body: %v", media, err)
		}
	}
}

// A database that is gone is no 404.
func TestUnreadable(t *testing.T) {
	h := one(t)
	h.Exec("DROP TABLE edge_workers")
	_, err := h.direct(t.Context(), "{}")
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		t.Errorf("%v", err)
	}
}
