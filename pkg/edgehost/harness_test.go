package edgehost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/pkg/provider"
)

const (
	testToken = "test-token-0123456789"
	testDate  = "2026-11-01"
)

func scriptName(n int) string { return fmt.Sprintf("dw-%048x", n) }

// bundle is a Worker in the form of a real one. version is what it answers;
// the paths below __invoke/ are small experiments on real workerd.
func bundle(version string) []byte {
	return []byte(strings.ReplaceAll(`
import { DurableObject } from "cloudflare:workers";
export class TeamSyncDepartmentStorage extends DurableObject {
  async fetch() {
    const sql = this.ctx.storage.sql;
    sql.exec("CREATE TABLE IF NOT EXISTS n (v INTEGER)");
    sql.exec("INSERT INTO n VALUES (1)");
    return new Response(String(sql.exec("SELECT count(*) AS c FROM n").one().c));
  }
}
const actions = {
  version: () => new Response("VERSION"),
  count: (r, env) => env.TEAMSYNC_DEPARTMENT_STORAGE.get(env.TEAMSYNC_DEPARTMENT_STORAGE.idFromName("x")).fetch("http://do/"),
  loop: () => { for (;;) {} },
  eat: async () => { const all = []; for (;;) { all.push(new Uint8Array(16 << 20).fill(1)); await scheduler.wait(1); } },
  heap: () => { const all = []; for (;;) all.push(Array.from({length: 1000}, (_, i) => ({ i }))); },
  async echo(r) { return Response.json({ body: await r.text(), method: r.method, url: r.url, headers: Object.fromEntries(r.headers) }, { status: 201, headers: { "x-from": "worker" } }); },
  async fetch(r) { const a = await fetch(await r.text(), { redirect: "manual" }); return new Response(await a.text(), { status: a.status, headers: { "x-egress": a.headers.get("x-edge-host-egress") ?? "" } }); },
  async tcp(r) { const { connect } = await import("cloudflare:sockets"); const s = connect(await r.text()); await s.opened; return new Response("opened"); },
  async wait(r) { await fetch(await r.text()); return new Response("VERSION"); },
  stream() { const { readable, writable } = new TransformStream(); const w = writable.getWriter(); (async () => { await w.write(new TextEncoder().encode("first")); await new Promise(() => {}); })(); return new Response(readable); },
  env: () => new Response(JSON.stringify(typeof process === "undefined" ? {} : process.env)),
};
export default { async fetch(request, env) {
  const path = new URL(request.url).pathname;
  if (path === "/__control") return new Response("control VERSION");
  const action = actions[path.slice("/__invoke/".length)];
  return action ? action(request, env) : new Response("no", { status: 404 });
} };
`, "VERSION", version))
}

// rig is a host with both listeners on real sockets.
type rig struct {
	t        *testing.T
	host     *Host
	params   Params
	control  *httptest.Server
	gateway  *httptest.Server
	registry *prometheus.Registry
	closed   bool
}

func findWorkerd(t *testing.T) string {
	t.Helper()
	path, err := workerd.Find("")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newRig starts a host in a fresh folder; change may alter its Params.
func newRig(t *testing.T, change func(*Params)) *rig {
	t.Helper()
	return openRig(t, t.TempDir(), change)
}

func openRig(t *testing.T, dir string, change func(*Params)) *rig {
	t.Helper()
	registry := prometheus.NewRegistry()
	p := Params{DataDir: dir, Workerd: findWorkerd(t), Token: testToken, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Registerer: registry}
	if change != nil {
		change(&p)
	}
	host, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, host: host, params: p, registry: registry}
	r.control = httptest.NewServer(host.ControlHandler())
	r.gateway = httptest.NewServer(host.DispatchHandler())
	t.Cleanup(r.stop)
	return r
}

func (r *rig) stop() {
	if r.closed {
		return
	}
	r.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.host.Close(ctx); err != nil {
		r.t.Errorf("close host: %v", err)
	}
	r.gateway.Close()
	r.control.Close()
}

func metadataOf(tag string) map[string]any {
	return map[string]any{
		"main_module": provider.MainModule, "compatibility_date": testDate, "compatibility_flags": []string{},
		"bindings": provider.Bindings(), "exports": provider.Exports(), "tags": []string{tag},
	}
}

func tagOf(source []byte) string { return provider.TagPrefix + canonical.SHA256(source) }

type part struct{ name, file, contentType, body string }

func multipartOf(parts ...part) (string, *bytes.Buffer) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, p := range parts {
		header := textproto.MIMEHeader{}
		disposition := fmt.Sprintf(`form-data; name=%q`, p.name)
		if p.file != "" {
			disposition += fmt.Sprintf(`; filename=%q`, p.file)
		}
		header.Set("Content-Disposition", disposition)
		header.Set("Content-Type", p.contentType)
		pw, _ := w.CreatePart(header)
		_, _ = io.WriteString(pw, p.body)
	}
	_ = w.Close()
	return w.FormDataContentType(), &body
}

func uploadParts(metadata any, source []byte) []part {
	raw, _ := json.Marshal(metadata)
	return []part{
		{"metadata", "", "application/json", string(raw)},
		{provider.MainModule, provider.MainModule, "application/javascript+module", string(source)},
	}
}

func (r *rig) scriptURL(name, rest string) string {
	return r.control.URL + "/client/v4/accounts/" + DefaultAccount + "/workers/dispatch/namespaces/" + DefaultNamespace + "/scripts/" + name + rest
}

type answer struct {
	status int
	header http.Header
	text   string
}

func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.text), into); err != nil {
		t.Fatalf("answer %q: %v", a.text, err)
	}
}

func (r *rig) do(method, url, contentType string, body io.Reader) (answer, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(raw)}, err
}

func (r *rig) must(method, url, contentType string, body io.Reader) answer {
	r.t.Helper()
	a, err := r.do(method, url, contentType, body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) put(name string, source []byte) answer {
	r.t.Helper()
	contentType, body := multipartOf(uploadParts(metadataOf(tagOf(source)), source)...)
	return r.must(http.MethodPut, r.scriptURL(name, ""), contentType, body)
}

func (r *rig) deploy(name string, source []byte) {
	r.t.Helper()
	if a := r.put(name, source); a.status != http.StatusOK {
		r.t.Fatalf("upload: %d %s", a.status, a.text)
	}
}

func (r *rig) invokeURL(name, operation string) string {
	return r.gateway.URL + "/" + name + "/__invoke/" + operation
}

func (r *rig) invoke(name, operation, body string) answer {
	r.t.Helper()
	return r.must(http.MethodPost, r.invokeURL(name, operation), "application/json", strings.NewReader(body))
}

func (r *rig) wantText(name, operation, want string) {
	r.t.Helper()
	if a := r.invoke(name, operation, ""); a.status != http.StatusOK || a.text != want {
		r.t.Fatalf("%s: got %d %q, want 200 %q", operation, a.status, a.text, want)
	}
}

func wantCode(t *testing.T, a answer, status int, code string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.text, `"code":`+code) {
		t.Fatalf("got %d %s, want %d code %s", a.status, a.text, status, code)
	}
}

// instanceOf gives the running process of a script.
func (r *rig) instanceOf(name string) *instance {
	r.t.Helper()
	w := r.host.fleet.worker(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inst == nil {
		r.t.Fatal("no process runs")
	}
	return w.inst
}

// counted reads one counter or the observations of one histogram.
func (r *rig) counted(metric string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetValue()] = true
			}
			matches := true
			for _, l := range labels {
				matches = matches && have[l]
			}
			if matches {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}
