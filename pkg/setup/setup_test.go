package setup_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/setup"
	"github.com/teamsync/edge-workers/test/plane"
)

// folder holds a process's files and its environment.
type folder struct {
	t           *testing.T
	environment map[string]string
	token       string
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	f := &folder{t: t}
	_, err := control.LoadOrCreateKey(filepath.Join(dir, "control.pem"))
	f.must(err)
	key, err := auth.GenerateKeyFile(filepath.Join(dir, "auth.pem"))
	f.must(err)
	issuer, err := auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	f.must(err)
	f.token, err = issuer.Issue(auth.Principal{Subject: "user:1", CompanyID: "c", DepartmentID: "d", Roles: []auth.Role{auth.DepartmentManager}}, time.Minute)
	f.must(err)
	redis := os.Getenv("EDGE_TEST_REDIS_URL")
	if redis == "" {
		t.Fatal("EDGE_TEST_REDIS_URL is not set: run `make test`, or set it to a Redis server")
	}
	f.environment = map[string]string{
		"EDGE_WORKERS_DATABASE_URL":             "sqlite:" + filepath.Join(dir, "edge.db"),
		"EDGE_WORKERS_REDIS_URL":                redis,
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": filepath.Join(dir, "control.pem"),
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE":      filepath.Join(dir, "auth.pem"),
		"EDGE_WORKERS_PROVIDER":                 "onprem",
		"EDGE_WORKERS_EDGE_HOST_URL":            "http://127.0.0.1:1",
		"EDGE_WORKERS_EDGE_HOST_API_TOKEN":      strings.Repeat("t", 64),
		"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL":   "http://127.0.0.1:1",
		"EDGE_WORKERS_EDGE_HOST_IDENTITY":       "host-1",
	}
	return f
}

func (f *folder) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// open builds the system with the environment changed by the pairs.
func (f *folder) open(log io.Writer, pairs ...string) (*setup.System, *observe.Health, error) {
	f.t.Helper()
	environment := maps.Clone(f.environment)
	for pair := range slices.Chunk(pairs, 2) {
		delete(environment, pair[0])
		if pair[1] != "" {
			environment[pair[0]] = pair[1]
		}
	}
	settings, err := config.Load(environment, config.API)
	f.must(err)
	backend, err := artifact.NewDirectory(f.t.TempDir())
	f.must(err)
	f.t.Cleanup(func() { _ = backend.Close() })
	logger := observe.NewLogger(log, slog.LevelInfo)
	health := observe.NewHealth(0, logger)
	s, err := setup.New(f.t.Context(), setup.Params{
		Settings: settings, Store: artifact.NewFenced(backend), Registry: prometheus.NewRegistry(), Health: health, Log: logger,
	})
	if err == nil {
		f.t.Cleanup(func() { _ = s.Close(context.Background()) })
	}
	return s, health, err
}

// post sends a submission, a deployment and a call, and gives the answers.
func (f *folder) post(s *setup.System) [3]string {
	f.t.Helper()
	var out [3]string
	for i, c := range []struct{ path, media, body string }{
		{"/worker/versions", "application/gzip", string(projecttest.Archive(f.t, plane.Project("one")))},
		{"/worker/deployments", "application/json", `{"version_id":"x","base_revision":1}`},
		{"/worker/invoke/echo.say", "application/json", "{}"},
	} {
		request := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		request.Header.Set("Content-Type", c.media)
		request.Header.Set("Authorization", "Bearer "+f.token)
		recorder := httptest.NewRecorder()
		s.Handler.ServeHTTP(recorder, request)
		out[i] = recorder.Result().Status + " " + strings.TrimSpace(recorder.Body.String())
	}
	return out
}

// S0-22, S2-022, S1-272: wrong provider settings do not stop the process; what
// needs the provider answers 503, and the log names what is wrong.
func TestWrongProviderSettings(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const refused = `503 Service Unavailable {"detail":"Edge Worker provider is not configured"}`
	for name, pairs := range map[string][]string{
		"EDGE_WORKERS_PROVIDER":               {"EDGE_WORKERS_PROVIDER", "moon"},
		"cloudflare":                          {"EDGE_WORKERS_PROVIDER", "cloudflare"},
		"EDGE_WORKERS_EDGE_HOST_URL":          {"EDGE_WORKERS_EDGE_HOST_URL", ""},
		"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL": {"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL", ""},
		"EDGE_WORKERS_EDGE_HOST_API_TOKEN":    {"EDGE_WORKERS_EDGE_HOST_API_TOKEN", "short-secret"},
	} {
		var log strings.Builder
		s, _, err := f.open(&log, pairs...)
		if err != nil {
			t.Errorf("%s stops the process: %v", name, err)
			continue
		}
		for i, got := range f.post(s) {
			if got != refused {
				t.Errorf("%s, request %d: %s", name, i, got)
			}
		}
		if !strings.Contains(log.String(), name) || strings.Contains(log.String(), "short-secret") {
			t.Errorf("%s: log %s", name, log.String())
		}
	}
	s, health, err := f.open(io.Discard)
	f.must(err)
	actor := audit.System("test")
	f.must(s.Directory.PutCompany(t.Context(), actor, "c", "C"))
	f.must(s.Directory.PutDepartment(t.Context(), actor, models.Tenant{CompanyID: "c", DepartmentID: "d"}, "D"))
	got := f.post(s) // the control
	if !strings.HasPrefix(got[0], "201") || !strings.HasPrefix(got[1], "404") || !strings.HasPrefix(got[2], "404") {
		t.Errorf("right settings: %v", got)
	}
	if failing := health.Failing(t.Context()); len(failing) != 0 {
		t.Errorf("not ready: %v", failing)
	}
	f.must(s.Close(t.Context()))
	if failing := health.Failing(t.Context()); !slices.Contains(failing, "database") || !slices.Contains(failing, "redis") {
		t.Errorf("after the end only %v fail", failing)
	}
}

// What a process cannot be without stops it, with the variable's name and
// without the value that may hold a secret.
func TestUnusableSettings(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	missing := filepath.Join(t.TempDir(), "missing")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, value := range map[string]string{
		"EDGE_WORKERS_REDIS_URL":                "redis://:hidden-secret@host:6379/not-a-number",
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": missing,
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE":      missing,
		"EDGE_WORKERS_NPM_CACHE_DIR":            filepath.Join(file, "below"),
	} {
		_, _, err := f.open(io.Discard, variable, value)
		if err == nil || !strings.Contains(err.Error(), variable) || strings.Contains(err.Error(), "hidden-secret") {
			t.Errorf("%s: %v", variable, err)
		}
	}
	_, _, err := f.open(io.Discard, "EDGE_WORKERS_DATABASE_URL", "sqlite:"+filepath.Join(missing, "edge.db"))
	if err == nil || !strings.Contains(err.Error(), "database") {
		t.Errorf("database: %v", err)
	}
}
