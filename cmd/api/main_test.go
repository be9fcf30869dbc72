package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
)

func TestMain(m *testing.M) { processtest.Main(m, main) }

// settings is the least environment of an api, changed by the pairs; an empty
// value takes a variable away.
func settings(t *testing.T, pairs ...string) map[string]string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "auth.pem")
	_, err := auth.GenerateKeyFile(key)
	must(t, err)
	return processtest.Environment(t, append([]string{
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE", key, "EDGE_WORKERS_LISTEN_ADDR", "127.0.0.1:0", "EDGE_WORKERS_NPM_CACHE_DIR", t.TempDir(),
	}, pairs...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// token signs in as somebody with all roles.
func token(t *testing.T, environment map[string]string) string {
	t.Helper()
	key, err := auth.LoadPrivateKey(environment["EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"])
	must(t, err)
	issuer, err := auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	must(t, err)
	text, err := issuer.Issue(auth.Principal{Subject: "user:1", CompanyID: "c", DepartmentID: "d", Roles: auth.Roles()}, time.Hour)
	must(t, err)
	return text
}

// answer is what a server says to a request.
type answer struct {
	status int
	body   string
}

func ask(t *testing.T, method, url, token, body string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	must(t, err)
	return answer{response.StatusCode, string(raw)}
}

// D1, D5, S1-250: one process on MariaDB and Redis is a whole control plane: it
// serves, tells whether it is ready, sweeps, and ends cleanly when it is told
// to; what it has written is there for the next one, also after a kill.
func TestServesAndStops(t *testing.T) {
	t.Parallel()
	environment := settings(t)
	manager := token(t, environment)
	first := processtest.Start(t, 2, environment)
	if got := ask(t, "GET", first.URL("metrics")+"/readyz", "", ""); got.status != 200 {
		t.Errorf("readyz: %v", got)
	}
	if got := ask(t, "PUT", first.URL("api")+"/platform/companies/c", manager, `{"name":"A company"}`); got.status >= 300 {
		t.Errorf("company: %v", got)
	}
	if got := ask(t, "PUT", first.URL("api")+"/platform/departments/d", manager, `{"name":"A department","company_id":"c"}`); got.status >= 300 {
		t.Errorf("department: %v", got)
	}
	if got := ask(t, "GET", first.URL("api")+"/worker", manager, ""); got.status != 404 || !strings.Contains(got.body, "Department Worker not found") {
		t.Errorf("worker: %v", got)
	}
	if got := ask(t, "GET", first.URL("metrics")+"/metrics", "", ""); !strings.Contains(got.body, `edge_workers_build_info{binary="api"`) {
		t.Errorf("metrics: %.300s", got.body)
	}
	first.AwaitLog(`Edge Worker control audit: claimed=0`) // the first round of the sweeps
	if code := first.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, first.Log())
	}
	if log := first.Log(); strings.Contains(log, processtest.HostToken) || strings.Contains(log, manager) || !strings.Contains(log, `"server stopped"`) {
		t.Errorf("the log has a secret, or no end:\n%s", log)
	}

	second := processtest.Start(t, 2, environment)
	listed := func(p *processtest.Process) answer {
		return ask(t, "GET", p.URL("api")+"/company/departments", manager, "")
	}
	if got := listed(second); got.status != 200 || !strings.Contains(got.body, "A department") {
		t.Errorf("after the restart: %v", got)
	}
	second.Kill()
	third := processtest.Start(t, 2, environment)
	if got := listed(third); got.status != 200 || !strings.Contains(got.body, "A department") {
		t.Errorf("after the kill: %v", got)
	}
	if code := third.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// D11: a gateway alone serves calls and nothing else, and runs no sweeps.
func TestGatewayAlone(t *testing.T) {
	t.Parallel()
	environment := settings(t, "EDGE_WORKERS_ROLES", "gateway")
	p := processtest.Start(t, 2, environment)
	if got := ask(t, "GET", p.URL("api")+"/worker", token(t, environment), ""); got.status != 404 || !strings.Contains(got.body, "Not Found") {
		t.Errorf("management: %v", got)
	}
	if got := ask(t, "POST", p.URL("api")+"/w/dw-"+strings.Repeat("ab", 24)+"/x", "", ""); got.status != 404 || !strings.Contains(got.body, "Department Worker not found") {
		t.Errorf("gateway: %v", got)
	}
	if code := p.Stop(); code != 0 || strings.Contains(p.Log(), "Edge Worker control audit") {
		t.Errorf("exit code %d\n%s", code, p.Log())
	}
}

// A setting that cannot be right stops the start and is named; its value is not
// when it is a secret.
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pairs []string
		args  []string
		code  int
		says  string
	}{
		"no database":       {[]string{"EDGE_WORKERS_DATABASE_URL", ""}, nil, process.ExitUsage, "EDGE_WORKERS_DATABASE_URL is not set"},
		"misspelt":          {[]string{"EDGE_WORKERS_REDIS", "x"}, nil, process.ExitUsage, "EDGE_WORKERS_REDIS is not a setting"},
		"role":              {[]string{"EDGE_WORKERS_ROLES", "all"}, []string{"--check-config"}, process.ExitUsage, "EDGE_WORKERS_ROLES"},
		"transport":         {[]string{"DEFAULT_BACKGROUND_WORKER_TYPE", "pubsub"}, nil, process.ExitUsage, "EDGE_WORKERS_PUBSUB_PROJECT is not set"},
		"argument":          {nil, []string{"serve"}, process.ExitUsage, "takes no arguments"},
		"no key":            {[]string{"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE", "/nowhere/key.pem"}, nil, process.ExitFailed, "EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"},
		"database is away":  {[]string{"EDGE_WORKERS_DATABASE_URL", "root:hunter2@tcp(127.0.0.1:9)/x"}, nil, process.ExitFailed, "127.0.0.1:9"},
		"another's address": {[]string{"EDGE_WORKERS_LISTEN_ADDR", "192.0.2.1:8080"}, nil, process.ExitFailed, "server api: listen on 192.0.2.1:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := processtest.Run(t, settings(t, c.pairs...), c.args...)
			if code != c.code || !strings.Contains(out, c.says) || strings.Contains(out, "hunter2") {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}

func TestFlagsThatOnlyAnswer(t *testing.T) {
	t.Parallel()
	for flag, says := range map[string]string{"--check-config": "api: the settings are valid", "--version": "api ", "--help": "-check-config"} {
		code, out := processtest.Run(t, settings(t), flag)
		if code != 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d: %s", flag, code, out)
		}
	}
}
