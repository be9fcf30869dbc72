package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/runtime"
)

// backend is an API in the real forms. Each ticket poll gets the next status.
type backend struct {
	*httptest.Server
	mu        sync.Mutex
	statuses  []string
	errorCode string
	override  map[string]http.HandlerFunc // by "METHOD path"
	archive   []byte
	requests  []string
	bodies    map[string]string
}

func newBackend(t testing.TB, statuses ...string) *backend {
	t.Helper()
	b := &backend{statuses: statuses, override: map[string]http.HandlerFunc{}, bodies: map[string]string{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	b.requests = append(b.requests, key)
	b.bodies[key] = string(body)
	w.Header().Set("X-Request-Id", "request-7")
	if r.Header.Get("Authorization") != "Bearer manager" {
		fail(401, `{"detail":"Not authenticated"}`)(w, r)
		return
	}
	if handler := b.override[key]; handler != nil {
		handler(w, r)
		return
	}
	switch key {
	case "GET /worker":
		_, _ = io.WriteString(w, `{"id":"w1","script_name":"ew-1","status":"active","latest_revision":3,"current_version_id":"v2","created_at":"2026-03-01T12:00:00Z","updated_at":"2026-03-01T12:00:00Z"}`)
	case "POST /worker/versions":
		b.archive = body
		w.WriteHeader(201)
		_, _ = io.WriteString(w, b.version("v3", 3, "ready"))
	case "GET /worker/versions/v3":
		_, _ = io.WriteString(w, b.version("v3", 3, "ready"))
	case "GET /worker/versions/v3/source":
		_, _ = w.Write(b.archive)
	case "GET /worker/versions":
		_, _ = fmt.Fprintf(w, `{"items":[%s,%s],"next_cursor":"next"}`, b.version("v3", 3, "ready"), b.version("v2", 2, "deployed"))
	case "POST /worker/deployments":
		w.WriteHeader(202)
		_, _ = io.WriteString(w, b.ticket("submitting", ""))
	case "GET /worker/deployments/t1":
		status := b.statuses[0]
		if len(b.statuses) > 1 {
			b.statuses = b.statuses[1:]
		}
		_, _ = io.WriteString(w, b.ticket(status, b.errorCode))
	case "POST /worker/invoke/orders.list":
		_, _ = fmt.Fprintf(w, `{"got":%s}`, body)
	default:
		fail(404, `{"detail":"Not Found"}`)(w, r)
	}
}

// seen gives the requests so far.
func (b *backend) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// body gives what was last sent to "METHOD path".
func (b *backend) body(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bodies[key]
}

func (b *backend) ticket(status, code string) string {
	encoded := "null"
	if code != "" {
		encoded = `"` + code + `"`
	}
	return fmt.Sprintf(`{"ticket_id":"t1","operation":"deploy","company_id":"c","department_id":"d","status":%q,"worker_id":"w1","version_id":"v3","error_code":%s}`, status, encoded)
}

func (b *backend) version(id string, revision int, state string) string {
	return fmt.Sprintf(`{"id":%q,"revision":%d,"state":%q,"language":"javascript","entry":"index.js","compatibility_date":"2026-01-01",
"builder_policy":"department-worker-project-v2.8","project_digest":%q,"project_size":%d,"bundle_size":2048,"operations":[],
"error_code":null,"error_message":"line 1\u2028","created_by":"user:1","created_at":"2026-03-01T12:00:00Z","deployed_at":null}`,
		id, revision, state, canonical.SHA256(b.archive), len(b.archive))
}

func fail(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// result is what one run left.
type result struct {
	code     int
	out, err string
}

// runner runs commands against a backend with a clock that each poll moves by
// one second.
type runner struct {
	env   map[string]string
	stdin string
	live  bool
	ctx   context.Context
	onOut func()
}

func (r runner) run(t testing.TB, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	var mu sync.Mutex
	clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ctx := r.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	code := run(ctx, args, console{
		in: strings.NewReader(r.stdin), out: &out, err: &errOut, live: r.live,
		getenv: func(name string) string { return r.env[name] },
		now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return clock
		},
		pause: func(ctx context.Context, _ time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			clock = clock.Add(time.Second)
			if r.onOut != nil {
				r.onOut()
			}
			return ctx.Err()
		},
	})
	return result{code, out.String(), errOut.String()}
}

func against(b *backend) runner {
	return runner{env: map[string]string{envURL: b.URL, envToken: "manager"}}
}

func (r result) want(t testing.TB, code int, out, errOut string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if r.out != out {
		t.Errorf("output\n%s\nwant\n%s", r.out, out)
	}
	if r.err != errOut {
		t.Errorf("error output\n%s\nwant\n%s", r.err, errOut)
	}
}

// projectFolder is a folder whose archive is `size` bytes.
func projectFolder(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "worker.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestHelpAndUsage(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	if r := against(b).run(t, "--help"); r.code != exitOK || !strings.Contains(r.out, "deploy") {
		t.Errorf("help: %d\n%s%s", r.code, r.out, r.err)
	}
	for _, args := range [][]string{
		{"nonsense"}, {"--nonsense"}, {"deploy"}, {"deploy", "a", "b"}, {"deploy", ".", "--version", "v1"}, {"deploy", ".", "--base-revision", "3"},
		{"deploy", ".", "--wait-uncertain"}, {"invoke"}, {"invoke", "op", "--input", "{"}, {"invoke", "op", "--input", "@/does/not/exist"},
		{"versions", "--limit", "0"}, {"versions", "--limit", "x"}, {"source"}, {"status", "--wait"}, {"status", "extra"}, {"init"},
		{"token", "--role", "root"}, {"token", "--key-file", "/does/not/exist"}, {"token", "--ttl", "x"},
	} {
		r := against(b).run(t, args...)
		if r.code != exitUsage || !strings.HasPrefix(r.err, "Error: ") || !strings.Contains(r.err, "next:") || r.out != "" {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	if len(b.seen()) != 0 {
		t.Errorf("wrong command lines made requests: %v", b.seen())
	}
}

func TestNoAPI(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	runner{}.run(t, "status", "--dev-data", empty).want(t, exitUsage, "",
		"Error: there is no API to talk to\n  next:  Give --api-url or EDGE_WORKERS_API_URL, or start `edgectl dev` in this folder.\n")
	runner{}.run(t, "status", "--dev-data", empty, "--api-url", "http://127.0.0.1:1").want(t, exitUsage, "",
		"Error: there is no token\n  where: http://127.0.0.1:1\n  next:  Give --token or EDGE_WORKERS_TOKEN; `edgectl token` makes one from a local key.\n")
	r := runner{}.run(t, "status", "--dev-data", empty, "--api-url", "http://api.example", "--token", "secret-token")
	if r.code != exitUsage || strings.Contains(r.err, "secret-token") || !strings.Contains(r.err, "unencrypted") {
		t.Errorf("http to another host: %d\n%s", r.code, r.err)
	}
}

func writeReady(t testing.TB, apiURL string) string {
	t.Helper()
	folder := t.TempDir()
	content := fmt.Sprintf(`{"api_url":%q,"manager_token":"manager","company_admin_token":"admin","platform_admin_token":"platform"}`, apiURL)
	if err := os.WriteFile(filepath.Join(folder, "ready.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestDefaultsComeFromTheReadyFile(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	data := writeReady(t, b.URL)
	if r := (runner{}).run(t, "status", "--dev-data", data); r.code != exitOK {
		t.Errorf("ready file: %d\n%s", r.code, r.err)
	}
	r := runner{env: map[string]string{envToken: "other"}}.run(t, "status", "--dev-data", data)
	if r.code != exitRefused {
		t.Errorf("the environment's token must win over the ready file's: %d", r.code)
	}
	r = runner{env: map[string]string{envToken: "other"}}.run(t, "status", "--dev-data", data, "--token", "manager")
	if r.code != exitOK {
		t.Errorf("the flag's token must win: %d\n%s", r.code, r.err)
	}
	another := newBackend(t, "completed")
	r = runner{}.run(t, "status", "--dev-data", data, "--api-url", another.URL)
	if r.code != exitUsage || len(another.seen()) != 0 {
		t.Errorf("the ready file's token went to another API: %d, %v", r.code, another.seen())
	}
	if err := os.WriteFile(filepath.Join(data, "ready.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := (runner{}).run(t, "status", "--dev-data", data); r.code != exitFailed || !strings.Contains(r.err, "ready.json") {
		t.Errorf("damaged ready file: %d\n%s", r.code, r.err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "uncertain")
	against(b).run(t, "status").want(t, exitOK, `worker           w1
script name      ew-1
status           active
latest revision  3
current version  v2
updated          2026-03-01T12:00:00Z
`, "")
	against(b).run(t, "status", "--ticket", "t1").want(t, exitOK, `ticket   t1
version  v3
status   uncertain: paused, waiting for the company's repair
error    none
`, "")
	r := against(b).run(t, "status", "--ticket", "t1", "--json")
	var ticket map[string]any
	if err := json.Unmarshal([]byte(r.out), &ticket); err != nil || ticket["status"] != "uncertain" || len(ticket) != 8 {
		t.Errorf("JSON %s, %v", r.out, err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	against(b).run(t, "versions").want(t, exitOK, `REVISION  STATE     VERSION  CREATED               DEPLOYED  ERROR
3         ready     v3       2026-03-01T12:00:00Z  -         -
2         deployed  v2       2026-03-01T12:00:00Z  -         -
more: edgectl versions --limit 20 --cursor next
`, "")
	r := against(b).run(t, "versions", "--json")
	var page struct {
		Items []struct{ Revision int }
	}
	if err := json.Unmarshal([]byte(r.out), &page); err != nil || len(page.Items) != 2 {
		t.Errorf("JSON %s, %v", r.out, err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.archive = []byte("exact archive")
	digest := canonical.SHA256(b.archive)
	name := filepath.Join(t.TempDir(), "out.tar.gz")
	against(b).run(t, "source", "v3", "-o", name).want(t, exitOK, name+": 13 bytes, sha256 "+digest+"\n", "")
	if content, err := os.ReadFile(name); err != nil || string(content) != "exact archive" {
		t.Errorf("file %q, %v", content, err)
	}
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	against(b).run(t, "source", "v3", "-o", name).want(t, exitFailed, "",
		"Error: the file exists already\n  where: "+name+"\n  next:  Choose another name with -o, or replace it with --force.\n")
	if content, _ := os.ReadFile(name); string(content) != "mine" {
		t.Errorf("the file was replaced by %q", content)
	}
	if r := against(b).run(t, "source", "v3", "-o", name, "--force"); r.code != exitOK {
		t.Errorf("--force: %d\n%s", r.code, r.err)
	}
	against(b).run(t, "source", "v3", "-o", "-").want(t, exitOK, "exact archive", "")
	if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}

	b.override["GET /worker/versions/v3/source"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other archive") }
	r := against(b).run(t, "source", "v3", "-o", name, "--force")
	if r.code != exitFailed || !strings.Contains(r.err, "digest differs") {
		t.Errorf("another archive: %d\n%s", r.code, r.err)
	}
	if content, _ := os.ReadFile(name); string(content) != "exact archive" {
		t.Errorf("a wrong archive was written: %q", content)
	}
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	file := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(file, []byte(`{"file":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	against(b).run(t, "invoke", "orders.list").want(t, exitOK, "{\"got\":null}\n", "")
	against(b).run(t, "invoke", "orders.list", "--input", `{"a":1}`).want(t, exitOK, "{\"got\":{\"a\":1}}\n", "")
	against(b).run(t, "invoke", "orders.list", "--input", "@"+file).want(t, exitOK, "{\"got\":{\"file\":1}}\n", "")
	r := against(b)
	r.stdin = "[7]"
	r.run(t, "invoke", "orders.list", "--input", "-").want(t, exitOK, "{\"got\":[7]}\n", "")

	for _, c := range []struct {
		answer http.HandlerFunc
		code   int
		text   string
	}{
		{fail(422, `{"detail":[{"type":"schema_violation","loc":["body","items",0,"id"],"msg":"must be a string"}]}`), exitRefused, "- body.items:0.id: must be a string (schema_violation)"},
		{fail(409, `{"detail":{"code":"out_of_stock","message":"None left"}}`), exitRefused, "out_of_stock: None left (HTTP 409)"},
		{fail(500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`), exitFailed, "operation_failed"},
		{fail(503, ``), exitUnreachable, "request-7"},
		{fail(502, `<html>`), exitUnreachable, "it is not known whether the operation ran"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, exitUnreachable, "it is not known whether the operation ran"},
	} {
		b.override["POST /worker/invoke/orders.list"] = c.answer
		before := len(b.seen())
		got := against(b).run(t, "invoke", "orders.list")
		if got.code != c.code || !strings.Contains(got.err, c.text) || got.out != "" {
			t.Errorf("exit %d, want %d with %q\n%s", got.code, c.code, c.text, got.err)
		}
		if n := len(b.seen()) - before; n != 1 {
			t.Errorf("%d invocations, want 1", n)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.override["GET /worker"] = fail(409, `{"detail":{"code":"deployment_in_progress","message":"Busy"}}`)
	r := against(b).run(t, "status", "--json")
	var body struct {
		Error struct {
			Code, Where, Next, Message string
			Status                     int
			Exit                       int `json:"exit_code"`
		}
	}
	if err := json.Unmarshal([]byte(r.err), &body); err != nil {
		t.Fatalf("%s: %v", r.err, err)
	}
	e := body.Error
	if r.code != exitRefused || e.Exit != exitRefused || e.Code != "deployment_in_progress" || e.Status != 409 || e.Next == "" || !strings.HasSuffix(e.Where, "request request-7") {
		t.Errorf("exit %d, %+v", r.code, e)
	}
}

func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.override["GET /worker"] = fail(422, `{"detail":[{"type":"t","loc":["a\u001b[2J.js",1],"msg":"m\r\u009b2J"}]}`)
	r := against(b).run(t, "status")
	if strings.ContainsAny(r.err, "\x1b\r\u009b") || !strings.Contains(r.err, "  - a?[2J.js:1: m??2J (t)\n") {
		t.Errorf("%q", r.err)
	}
}

// The code decides, whatever the text says.
func TestCodesDecideNotTexts(t *testing.T) { // S2-040
	t.Parallel()
	next := func(message string) string {
		b := newBackend(t, "completed")
		b.override["GET /worker"] = fail(409, `{"detail":{"code":"deployment_in_progress","message":"`+message+`"}}`)
		r := against(b).run(t, "status")
		_, step, _ := strings.Cut(r.err, "next:")
		return step
	}
	if a, b := next("Operation settings cannot change during a deployment"), next("altered"); a != b || !strings.Contains(a, "other deployment") {
		t.Errorf("next steps %q and %q", a, b)
	}
}

func TestRefusedIdentity(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	r := runner{env: map[string]string{envURL: b.URL, envToken: "bad"}}.run(t, "status")
	r.want(t, exitRefused, "", "Error: Not authenticated (HTTP 401)\n  where: "+b.URL+", request request-7\n"+
		"  next:  Get a valid token (see `edgectl token --help`) and give it with --token or EDGE_WORKERS_TOKEN.\n")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.Close()
	r := against(b).run(t, "status")
	if r.code != exitUnreachable || !strings.Contains(r.err, "no answer from 127.0.0.1") || !strings.Contains(r.err, "Check that the API runs") {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
}

// The dispatcher Worker is printed as it is to be uploaded.
func TestDispatcher(t *testing.T) {
	t.Parallel()
	got := (runner{}).run(t, "dispatcher")
	if got.code != exitOK || got.out != runtime.Dispatcher() || !strings.Contains(got.out, "DISPATCHER") {
		t.Errorf("exit %d, %d bytes\n%s", got.code, len(got.out), got.err)
	}
}
