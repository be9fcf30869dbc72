package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

const operations = `[
	{"id": "echo.say", "method": "POST", "path": "/say"},
	{"id": "orders.list", "method": "GET", "path": "/orders"},
	{"id": "orders.add", "method": "POST", "path": "/orders"},
	{"id": "orders.get", "method": "GET", "path": "/orders/{id}"},
	{"id": "items.put", "method": "PUT", "path": "/orders/{id}/items/{sku}"},
	{"id": "root", "method": "GET", "path": "/"}
]`

const source = `const f = (input) => input;
export default { "echo.say": f, "orders.list": f, "orders.add": f, "orders.get": f, "items.put": f, root: f };
`

// signed is a signer that writes down what it vouches for.
type signed struct {
	mu   sync.Mutex
	last gateway.Assertion
	err  error
}

func (s *signed) SignInvocation(a gateway.Assertion) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = a
	return "token", s.err
}

// seen is a request that reached the host.
type seen struct {
	method, path, body, authorization, contentType, requestID string
}

// host is an edge host whose answers the test gives.
type host struct {
	*plane.Plane
	gate    *gateway.Gateway
	signer  *signed
	version models.Version
	caller  gateway.Caller
	mu      sync.Mutex
	seen    []seen
	answer  http.HandlerFunc
}

func (h *host) requests() []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]seen(nil), h.seen...)
}

// say sets the host's answer from here on.
func (h *host) say(answer http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	h.seen = append(h.seen, seen{r.Method, r.URL.RequestURI(), string(body), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("X-Request-Id")})
	answer := h.answer
	h.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"ok":true}`))
}

// on builds a gateway over an active Worker of the project above.
func on(t *testing.T, db *database.DB) *host {
	t.Helper()
	h := &host{Plane: plane.New(t, db), signer: &signed{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	var err error
	h.gate, err = gateway.New(gateway.Params{DB: db, Signer: h.signer, DispatchURL: server.URL + "/base/", Failures: gateway.NewFailures(h.Redis, h.Log)})
	must(t, err)
	archive := projecttest.Archive(t, map[string]string{
		"worker.json": `{"schema_version": 1, "name": "orders", "language": "javascript", "entry": "index.js", "compatibility_date": "2026-01-01", "operations": ` + operations + `}`,
		"index.js":    source,
	})
	h.version, err = h.Submitter.Submit(t.Context(), version.Submission{Tenant: h.Tenant, Actor: h.Actor, Archive: bytes.NewReader(archive)})
	must(t, err)
	h.caller = gateway.Caller{Kind: "member", Subject: "user:x", CompanyID: h.Tenant.CompanyID, DepartmentID: h.Tenant.DepartmentID, Roles: []string{}, RequestID: "req-1"}
	h.set(models.WorkerActive, h.version.ID)
	return h
}

func each(t *testing.T, run func(t *testing.T, h *host)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, on(t, db)) })
}

func one(t *testing.T) *host {
	t.Helper()
	t.Parallel()
	return on(t, databasetest.SQLite(t))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// set gives the Worker a status and a current version.
func (h *host) set(status models.WorkerStatus, versionID string) {
	h.Exec("UPDATE edge_workers SET status = ?, current_version_id = ? WHERE department_id = ?", status, versionID, h.Tenant.DepartmentID)
}

// call is a routed request with a JSON body.
func (h *host) call(method, path, body string) gateway.Call {
	return gateway.Call{
		ScriptName: models.ScriptName(h.Tenant.CompanyID, h.Tenant.DepartmentID), Method: method, Path: path,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body), Caller: h.caller,
	}
}

// whole is an answer that was read to its end.
type whole struct {
	Status    int
	Body      string
	Challenge string
}

// direct invokes an operation by its id, to the end.
func (h *host) direct(ctx context.Context, input string) (whole, error) {
	in, err := h.gate.Direct(ctx, h.Tenant, "echo.say", []byte(input), h.caller)
	if err != nil {
		return whole{}, err
	}
	return h.send(ctx, in)
}

// routed invokes an operation by its method and path, to the end.
func (h *host) routed(ctx context.Context, in gateway.Call) (whole, error) {
	admitted, _, err := h.gate.Routed(ctx, in)
	if err != nil {
		return whole{}, err
	}
	return h.send(ctx, admitted)
}

func (h *host) send(ctx context.Context, in gateway.Invocation) (whole, error) {
	answer, err := h.gate.Send(ctx, in)
	if err != nil {
		return whole{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return whole{answer.Status, string(body), answer.Challenge}, err
}

// refused checks a fault in all that a client sees of it.
func refused(t *testing.T, name string, err error, kind fault.Kind, code, message string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code || f.Message != message {
		t.Errorf("%s: %v, want %s %s %q", name, err, kind, code, message)
	}
}
