package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
)

var tenant = models.Tenant{CompanyID: "company-1", DepartmentID: "department-1"}

// cloud is a scripted Cloudflare API that counts what arrives.
type cloud struct {
	*httptest.Server
	mu      sync.Mutex
	seen    []string
	trusted bool
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, r.Method+" "+r.URL.Path)
		_, name, _ := strings.Cut(r.URL.Path, "/namespaces/")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"success": true, "errors": []any{}, "result": map[string]any{"namespace_name": name, "trusted_workers": c.trusted},
		})
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *cloud) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.seen
	c.seen = nil
	return out
}

// process is one API process from its environment.
type process struct {
	*System
	health *observe.Health
	tokens *auth.Issuer
	log    *bytes.Buffer
}

const secret = "cloudflare-token-of-the-test"

// complete is a good cloud environment.
func complete() map[string]string {
	return map[string]string{
		"EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID":         "0123456789abcdef0123456789abcdef",
		"EDGE_WORKERS_CLOUDFLARE_API_TOKEN":          secret,
		"EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE": "edge-production",
		"EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES":  "shared-1,shared-2",
		"EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL":        "https://workers.example.invalid",
	}
}

// start starts a process with the provider's variables and provisions a tenant.
func start(t *testing.T, variables map[string]string, api *cloud) *process {
	t.Helper()
	store, err := artifact.NewDirectory(filepath.Join(t.TempDir(), "artifacts"))
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return startWith(t, variables, Params{
		Store: artifact.NewFenced(store), Cloud: func(c *cloudflare.Params) { c.Origin = api.URL },
	})
}

// startWith starts a process with what is given in params.
func startWith(t *testing.T, variables map[string]string, params Params) *process {
	t.Helper()
	redisURL := os.Getenv("EDGE_TEST_REDIS_URL")
	if redisURL == "" {
		t.Fatal("EDGE_TEST_REDIS_URL is not set: run `make test`, or set it to a Redis server")
	}
	folder := t.TempDir()
	environment := map[string]string{
		"EDGE_WORKERS_DATABASE_URL":             "sqlite:" + filepath.Join(folder, "edge.db"),
		"EDGE_WORKERS_REDIS_URL":                redisURL,
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": filepath.Join(folder, "control.pem"),
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE":      filepath.Join(folder, "auth.pem"),
	}
	for name, value := range variables {
		environment[name] = value
	}
	_, err := control.LoadOrCreateKey(environment["EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"])
	must(t, err)
	key, err := auth.GenerateKeyFile(environment["EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"])
	must(t, err)
	settings, err := config.Load(environment, config.API)
	must(t, err)
	p := &process{log: &bytes.Buffer{}, health: observe.NewHealth(10*time.Second, nil)}
	p.tokens, err = auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	must(t, err)
	params.Settings, params.Registry, params.Health = settings, prometheus.NewRegistry(), p.health
	params.Log = slog.New(slog.NewTextHandler(p.log, nil))
	p.System, err = New(t.Context(), params)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		must(t, p.Close(ctx))
	})
	actor := audit.Actor{Type: "user", ID: "user:1", Method: "bearer_jwt", RequestID: "r"}
	must(t, p.Directory.PutCompany(t.Context(), actor, tenant.CompanyID, "A company"))
	must(t, p.Directory.PutDepartment(t.Context(), actor, tenant, "A department"))
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask sends one request as the tenant's manager and company admin.
func (p *process) ask(t *testing.T, method, path, media string, body []byte) (int, string) {
	t.Helper()
	token, err := p.tokens.Issue(auth.Principal{
		Subject: "user:1", CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID,
		Roles: []auth.Role{auth.DepartmentManager, auth.CompanyAdmin},
	}, time.Minute)
	must(t, err)
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", media)
	recorder := httptest.NewRecorder()
	p.Handler.ServeHTTP(recorder, request)
	raw, err := io.ReadAll(recorder.Body)
	must(t, err)
	return recorder.Code, strings.TrimSpace(string(raw))
}

func (p *process) submit(t *testing.T) (int, string) {
	t.Helper()
	return p.ask(t, http.MethodPost, "/worker/versions", "application/gzip", projecttest.Archive(t, plane.Project("one")))
}

// S2-001, S2-022, S2-023, S0-22, S1-042: with incomplete cloud settings the API
// comes up and says so on every route that needs the provider; nothing is asked
// of Cloudflare, and what needs no provider works.
func TestIncompleteCloudSettings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]string){
		"nothing set":      func(v map[string]string) { clear(v) },
		"no token":         func(v map[string]string) { delete(v, "EDGE_WORKERS_CLOUDFLARE_API_TOKEN") },
		"wrong account":    func(v map[string]string) { v["EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"] = "teamsync" },
		"wrong namespace":  func(v map[string]string) { v["EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"] = "onprem:0123456789ab" },
		"plain dispatcher": func(v map[string]string) { v["EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL"] = "http://workers.example.invalid" },
		"unknown provider": func(v map[string]string) { v["EDGE_WORKERS_PROVIDER"] = "lambda" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, variables := newCloud(t), complete()
			change(variables)
			p := start(t, variables, api)
			const want = `{"detail":"Edge Worker provider is not configured"}`
			repair := []byte(`{"action":"reconcile_uncertain_deployment","ticket_id":"00000000-0000-4000-8000-000000000001","observed_worker_revision":1}`)
			deploy := []byte(`{"version_id":"00000000-0000-4000-8000-000000000001","base_revision":1}`)
			for path, answer := range map[string]func() (int, string){
				"/worker/versions": func() (int, string) { return p.submit(t) },
				"/worker/deployments": func() (int, string) {
					return p.ask(t, http.MethodPost, "/worker/deployments", "application/json", deploy)
				},
				"repairs": func() (int, string) {
					return p.ask(t, http.MethodPost, "/company/departments/"+tenant.DepartmentID+"/repairs", "application/json", repair)
				},
			} {
				status, body := answer()
				if status != http.StatusServiceUnavailable || body != want {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			if status, body := p.ask(t, http.MethodGet, "/worker/versions", "", nil); status != http.StatusOK {
				t.Errorf("list: %d %s", status, body)
			}
			if failing := p.health.Failing(t.Context()); len(failing) != 0 {
				t.Errorf("not ready: %v", failing)
			}
			if seen := api.requests(); len(seen) != 0 {
				t.Errorf("asked of Cloudflare: %v", seen)
			}
			if !strings.Contains(p.log.String(), "EDGE_WORKERS_") || strings.Contains(p.log.String(), secret) {
				t.Errorf("log: %s", p.log.String())
			}
		})
	}
}

// S1-030, S1-037, D15: complete settings build the provider and its scope with
// no request; the first readiness check is the first one.
func TestCompleteCloudSettings(t *testing.T) {
	t.Parallel()
	api := newCloud(t)
	p := start(t, complete(), api)
	if seen := api.requests(); len(seen) != 0 {
		t.Errorf("asked of Cloudflare at the start: %v", seen)
	}
	scope := p.Outbox.Scope()
	if !scope.Cloud() || !slices.Equal(scope.Namespaces(), []string{"edge-production", "shared-1", "shared-2"}) || scope.Default().Namespace != "edge-production" {
		t.Errorf("scope %+v", scope)
	}
	if status, body := p.submit(t); status != http.StatusCreated {
		t.Errorf("submission: %d %s", status, body)
	}
	if seen := api.requests(); len(seen) != 0 {
		t.Errorf("asked of Cloudflare by a submission: %v", seen)
	}
	for range 2 {
		if failing := p.health.Failing(t.Context()); len(failing) != 0 {
			t.Errorf("not ready: %v", failing)
		}
	}
	if seen := api.requests(); len(seen) != 3 || !strings.HasPrefix(seen[0], "GET /client/v4/accounts/0123456789abcdef0123456789abcdef/workers/dispatch/namespaces/") {
		t.Errorf("asked of Cloudflare: %v", seen)
	}
	if strings.Contains(p.log.String(), secret) {
		t.Error("the log holds the token")
	}
}

// A namespace in trusted mode is a provider that is not configured.
func TestTrustedNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	api := newCloud(t)
	api.trusted = true
	p := start(t, complete(), api)
	if failing := p.health.Failing(t.Context()); !slices.Equal(failing, []string{"dispatch_namespace"}) {
		t.Errorf("failing: %v", failing)
	}
	if status, body := p.submit(t); status != http.StatusServiceUnavailable || body != `{"detail":"Edge Worker provider is not configured"}` {
		t.Errorf("submission: %d %s", status, body)
	}
}

// S1-018, S1-019: the provider that the task gets, and the scope that
// the sweeps claim in, are those of EDGE_WORKERS_PROVIDER.
func TestServingResolvesTheProvider(t *testing.T) {
	t.Parallel()
	settings := config.Provider{
		Name: "cloudflare", CloudflareAccountID: "0123456789abcdef0123456789abcdef", CloudflareAPIToken: config.NewSecret(secret),
		CloudflareDispatchNamespace: "edge-production", CloudflareGatewayURL: "https://workers.example.invalid",
	}
	key, err := control.LoadOrCreateKey(filepath.Join(t.TempDir(), "key.pem"))
	must(t, err)
	signer, err := control.NewSigner(key, nil)
	must(t, err)
	s, err := newServing(settings, signer, observe.Discard(), nil)
	must(t, err)
	target, err := s.provider()
	if _, ok := target.(*cloudflare.Provider); !ok || err != nil || s.dispatchURL != settings.CloudflareGatewayURL || s.client == nil {
		t.Errorf("%T, %v, %s", target, err, s.dispatchURL)
	}
	onPremise := settings
	onPremise.Name, onPremise.EdgeHostURL, onPremise.EdgeHostDispatchURL = "onprem", "http://127.0.0.1:1", "http://127.0.0.1:1"
	onPremise.EdgeHostAPIToken, onPremise.EdgeHostIdentity = config.NewSecret(strings.Repeat("t", 64)), "host-1"
	other, err := newServing(onPremise, signer, observe.Discard(), nil)
	must(t, err)
	host, err := other.provider()
	if _, ok := host.(*onprem.Provider); !ok || err != nil || other.scope.Cloud() || len(other.scope.Namespaces()) != 1 {
		t.Errorf("on-prem: %T, %v, %v", host, err, other.scope.Namespaces())
	}
	onPremise.EdgeHostURL = ""
	other, err = newServing(onPremise, signer, observe.Discard(), nil)
	must(t, err)
	_, err = other.provider()
	if !errors.Is(err, provider.ErrUnavailable) { // S1-069
		t.Errorf("on-prem without an address: %v", err)
	}
	settings.CloudflareAPIToken = config.Secret{}
	s, err = newServing(settings, signer, observe.Discard(), nil)
	must(t, err)
	target, err = s.provider()
	if target != nil || err == nil || errors.Is(err, provider.ErrUnavailable) || s.Probe(t.Context(), "dw-x", strings.Repeat("0", 64)) == nil {
		t.Errorf("incomplete: %v, %v", target, err)
	}
	// S2-124: such a process still knows its own rows, and settles them so.
	if !slices.Equal(s.scope.Namespaces(), []string{"edge-production"}) {
		t.Errorf("scope %+v", s.scope)
	}
}

// S1-004 to S1-006, S1-016, S1-050, S1-343 to S1-345: the 60-second loop sweeps
// stalled deployments, the objects of abandoned submissions, and commands whose
// answer was lost; the 15-second loop retires scripts. On-prem there is also
// what waited for a backup's end, and fences are confirmed.
func TestLoopsHaveTheirLanes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p             *process
		minute, hosts []string
	}{
		"cloud":   {start(t, complete(), newCloud(t)), []string{"deployments", "artifacts", "control"}, []string{"retirement"}},
		"on-prem": {startWith(t, inKit(), Params{}), []string{"deployments", "artifacts", "control", "deferred"}, []string{"fence", "retirement"}},
	} {
		if got := names(c.p.loops.minute.Lanes); !slices.Equal(got, c.minute) {
			t.Errorf("%s: every minute %v", name, got)
		}
		if got := names(c.p.loops.hosts.Lanes); !slices.Equal(got, c.hosts) {
			t.Errorf("%s: every 15 seconds %v", name, got)
		}
	}
}

func names(lanes []reconcile.Lane) []string {
	var all []string
	for _, lane := range lanes {
		all = append(all, lane.Name())
	}
	return all
}
