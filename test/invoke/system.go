// Package invoke runs the control plane with an edge host on real workerd,
// real MariaDB and real Redis in the test's process, and calls Workers through
// it as clients do.
package invoke

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/setup"
)

// patience bounds every wait; it is no measure of speed.
const patience = time.Minute

// System is one running control plane with its data plane.
type System struct {
	T testing.TB
	// URL is the API's, Dispatch the edge host's data plane's.
	URL, Dispatch string
	// HostFolder is the edge host's.
	HostFolder string
	Signer     *control.Signer
	Control    *control.Client
	Directory  interface {
		PutCompany(ctx context.Context, actor audit.Actor, id, name string) error
		PutDepartment(ctx context.Context, actor audit.Actor, tenant models.Tenant, name string) error
	}
	Log *observetest.Log

	issuer *auth.Issuer
}

// Start starts a system with more settings than it needs by itself.
func Start(t testing.TB, settings map[string]string) *System {
	t.Helper()
	s := &System{T: t, HostFolder: t.TempDir(), Log: &observetest.Log{}}
	log := observe.NewLogger(s.Log, slog.LevelInfo)
	token := uuid.NewString()
	host := edgehosttest.Start(s.T, edgehost.Params{DataDir: s.HostFolder, Token: token, Logger: log})
	controlPlane := httptest.NewServer(host.ControlHandler())
	t.Cleanup(controlPlane.Close)
	dispatch := httptest.NewServer(host.DispatchHandler())
	t.Cleanup(dispatch.Close)
	s.Dispatch = dispatch.URL

	folder := t.TempDir()
	environment := map[string]string{
		"EDGE_WORKERS_DATABASE_URL":             databasetest.MySQLURL(t),
		"EDGE_WORKERS_REDIS_URL":                redisURL(t),
		"EDGE_WORKERS_PROVIDER":                 "onprem",
		"EDGE_WORKERS_EDGE_HOST_URL":            controlPlane.URL,
		"EDGE_WORKERS_EDGE_HOST_API_TOKEN":      token,
		"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL":   dispatch.URL,
		"EDGE_WORKERS_EDGE_HOST_IDENTITY":       "host-1",
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": filepath.Join(folder, "control.pem"),
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE":      filepath.Join(folder, "auth.pem"),
	}
	for name, value := range settings {
		environment[name] = value
	}
	key, err := control.LoadOrCreateKey(environment["EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"])
	s.Must(err)
	s.Signer, err = control.NewSigner(key, nil)
	s.Must(err)
	s.Control, err = control.NewClient(s.Dispatch, s.Signer)
	s.Must(err)
	private, err := auth.GenerateKeyFile(environment["EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"])
	s.Must(err)
	s.issuer, err = auth.NewIssuer(private, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	s.Must(err)
	s.startAPI(environment, log)
	return s
}

func redisURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("EDGE_TEST_REDIS_URL")
	if url == "" {
		t.Fatal("EDGE_TEST_REDIS_URL is not set: run `make test`, or set it to a Redis server")
	}
	return url
}

func (s *System) startAPI(environment map[string]string, log *slog.Logger) {
	s.T.Helper()
	settings, err := config.Load(environment, config.API)
	s.Must(err)
	store, err := artifact.NewDirectory(filepath.Join(s.T.TempDir(), "artifacts"))
	s.Must(err)
	s.closing(func(context.Context) error { return store.Close() })
	system, err := setup.New(s.T.Context(), setup.Params{
		Settings: settings, Store: artifact.NewFenced(store), Registry: prometheus.NewRegistry(),
		Health: observe.NewHealth(patience, log), Log: log,
	})
	s.Must(err)
	s.closing(system.Close)
	s.Directory = system.Directory
	api := httptest.NewServer(system.Handler)
	s.T.Cleanup(api.Close)
	s.URL = api.URL
}

func (s *System) closing(end func(context.Context) error) {
	s.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := end(ctx)
		if err != nil {
			s.T.Error(err)
		}
	})
}

// Must ends the test on an error.
func (s *System) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Token is a token of a member of the tenant with the roles.
func (s *System) Token(tenant models.Tenant, roles ...auth.Role) string {
	s.T.Helper()
	token, err := s.issuer.Issue(auth.Principal{
		Subject: "user:1", CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID, Roles: roles,
	}, 10*time.Minute)
	s.Must(err)
	return token
}

// Worker is a deployed project.
type Worker struct {
	*System
	Tenant     models.Tenant
	ScriptName string
	Generation string
	policy     int // revisions of what was changed
	operations int
}

// Deploy provisions a tenant and deploys a project of the files as its Worker.
func (s *System) Deploy(files map[string]string) *Worker {
	s.T.Helper()
	w := &Worker{System: s, Tenant: models.Tenant{CompanyID: "c-" + uuid.NewString(), DepartmentID: "d-" + uuid.NewString()}}
	actor := audit.System("test")
	s.Must(s.Directory.PutCompany(s.T.Context(), actor, w.Tenant.CompanyID, "A company"))
	s.Must(s.Directory.PutDepartment(s.T.Context(), actor, w.Tenant, "A department"))
	token := "Bearer " + s.Token(w.Tenant, auth.DepartmentManager)
	var version gen.Version
	s.Call("POST", "/worker/versions", string(projecttest.Archive(s.T, files)), "Authorization", token, "Content-Type", "application/gzip").into(201, &version)
	w.Generation = version.ReleaseGeneration
	var ticket gen.Ticket
	wanted := fmt.Sprintf(`{"version_id":%q,"base_revision":%d}`, version.ID, version.Revision)
	s.Call("POST", "/worker/deployments", wanted, "Authorization", token).into(202, &ticket)
	deadline := time.After(patience)
	for ticket.Status != gen.TicketStatusCompleted {
		select {
		case <-deadline:
			s.T.Fatalf("the deployment is %s\n%s", ticket.Status, s.Log)
		case <-time.After(20 * time.Millisecond):
			s.Call("GET", "/worker/deployments/"+ticket.TicketID, "", "Authorization", token).into(200, &ticket)
		}
	}
	w.ScriptName = models.ScriptName(w.Tenant.CompanyID, w.Tenant.DepartmentID)
	return w
}

// Answer is what came back.
type Answer struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   string
}

func (a Answer) into(status int, target any) {
	a.t.Helper()
	if a.Status != status || json.Unmarshal([]byte(a.Body), target) != nil {
		a.t.Fatalf("got %d %s, want %d", a.Status, a.Body, status)
	}
}

// Call sends one request, as JSON unless a header says otherwise. Headers are
// names and values in turn; a name may come several times.
func (s *System) Call(method, path, body string, headers ...string) Answer {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), method, s.URL+path, strings.NewReader(body))
	s.Must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	if body != "" && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := (&http.Client{Timeout: patience}).Do(request)
	s.Must(err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	s.Must(err)
	return Answer{t: s.T, Status: response.StatusCode, Header: response.Header, Body: strings.TrimSpace(string(raw))}
}

// command changes the Worker's state with a signed command.
func (w *Worker) command(operation string, payload map[string]any) {
	w.T.Helper()
	result, err := w.Control.Call(w.T.Context(), control.Command{
		Script: w.ScriptName, Generation: w.Generation, Subject: "user:1", Operation: operation, MutationID: uuid.NewString(), Payload: payload,
	})
	w.Must(err)
	var said struct{ Conflict bool }
	w.Must(json.Unmarshal(result, &said))
	if said.Conflict {
		w.T.Fatalf("%s: conflict: %s", operation, result)
	}
}

// Policy sets the Worker's access policy.
func (w *Worker) Policy(mode string, ranges ...string) {
	w.T.Helper()
	w.command("access_policy.replace", map[string]any{"baseRevision": w.policy, "mode": mode, "ipAllowlist": append([]string{}, ranges...)})
	w.policy++
}

// Key sets the Worker's API key by its digest.
func (w *Worker) Key(digest string) {
	w.T.Helper()
	w.command("access_policy.api_key.rotate", map[string]any{"baseRevision": w.policy, "keyDigest": digest, "lastFour": "abcd"})
	w.policy++
}

// Operations sets the access of operations; all others inherit.
func (w *Worker) Operations(access map[string]string) {
	w.T.Helper()
	rows := map[string]any{}
	for id, value := range access {
		rows[id] = map[string]any{"access": value, "service_account_id": nil}
	}
	w.command("operation_settings.replace", map[string]any{
		"baseRevision": w.operations, "releaseGeneration": w.Generation, "defaultServiceAccountId": nil, "operations": rows,
	})
	w.operations++
}

// OperationKey sets an operation's own API key by its digest.
func (w *Worker) OperationKey(id, digest string) {
	w.T.Helper()
	w.command("operation_settings.api_key.rotate", map[string]any{
		"baseRevision": w.operations, "operationId": id, "keyDigest": digest, "lastFour": "abcd",
	})
	w.operations++
}
