package edgehost

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestForwarding(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.MaxBodyBytes = 1000 })
	name := scriptName(40)
	r.deploy(name, bundle("one"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.invokeURL(name, "echo")+"?unsigned=1", strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"Authorization": "Bearer a.b.c", "Content-Type": "application/json", "X-Request-Id": "req-1",
		"Cookie": "secret=1", "X-Forwarded-For": "10.0.0.1", "Idempotency-Key": "k",
	} {
		req.Header.Set(key, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Body, Method, URL string
		Headers           map[string]string
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("X-From") != "worker" {
		t.Errorf("answer: %d %v", resp.StatusCode, resp.Header)
	}
	if got.Body != `{"a":1}` || got.Method != http.MethodPut || got.URL != "http://worker/__invoke/echo" {
		t.Errorf("request: %+v", got)
	}
	for key, want := range map[string]string{"authorization": "Bearer a.b.c", "content-type": "application/json", "x-request-id": "req-1", "cookie": "", "x-forwarded-for": "", "idempotency-key": ""} {
		if got.Headers[key] != want {
			t.Errorf("header %s: got %q, want %q", key, got.Headers[key], want)
		}
	}
	wantCode(t, r.invoke(name, "echo", strings.Repeat("x", 1001)), http.StatusRequestEntityTooLarge, `"body_too_large"`)
	if a := r.invoke(name, "echo", strings.Repeat("x", 1000)); a.status != http.StatusCreated {
		t.Errorf("largest body: %d", a.status)
	}
	// Without a length the bound is met while reading.
	a, err := r.do(http.MethodPost, r.invokeURL(name, "echo"), "", struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", 4000))})
	if err == nil && a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked body: %d %s", a.status, a.text)
	}
	for _, path := range []string{"/", "/" + name, "/" + name + "/", "/" + name + "/__invoke/", "/" + name + "/__invoke/a/b", "/" + name + "/other", "/" + name + "/%5f_control", "/__control", "/" + name + "/__invoke/UP"} {
		if a := r.must(http.MethodPost, r.gateway.URL+path, "", nil); a.status != http.StatusNotFound || strings.TrimSpace(a.text) != `{"detail":"Not Found"}` {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	for _, unknown := range []string{scriptName(41), "dw-short", ".."} {
		wantCode(t, r.must(http.MethodPost, r.gateway.URL+"/"+unknown+"/__control", "", nil), http.StatusNotFound, `"worker_not_found"`)
	}
	if r.counted("edge_host_requests_total", "invoke", "2xx") < 2 || r.counted("edge_host_requests_total", "invoke", "4xx") < 1 {
		t.Error("requests are not counted")
	}
}

// A Worker that dies under a request gives 502, never a made-up answer, and
// the next request gets a new process.
func TestCrashUnderARequest(t *testing.T) {
	t.Parallel()
	gate := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = gate.policy })
	name := scriptName(42)
	r.deploy(name, bundle("one"))
	answered := make(chan answer, 1)
	go func() {
		a, _ := r.do(http.MethodPost, r.invokeURL(name, "wait"), "", strings.NewReader(gate.url))
		answered <- a
	}()
	<-gate.arrived
	if err := syscall.Kill(r.instanceOf(name).server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-answered, http.StatusBadGateway, `"worker_crashed"`)
	r.wantText(name, "version", "one")
}

// A response that breaks off must not look complete to the client, and its
// first part must arrive before the rest exists.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name := scriptName(43)
	r.deploy(name, bundle("one"))
	resp, err := http.Post(r.invokeURL(name, "stream"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 5)
	if _, err := resp.Body.Read(buf); err != nil || string(buf) != "first" {
		t.Fatalf("first part: %q %v", buf, err)
	}
	r.instanceOf(name).server.Kill()
	if n, err := resp.Body.Read(buf); err == nil || err.Error() == "EOF" {
		t.Fatalf("the broken response ended as if it were complete: %d %v", n, err)
	}
}

func TestSlowRequestIsCutOff(t *testing.T) {
	t.Parallel()
	gate := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = gate.policy; p.Limits.RequestTimeout = 2e9 })
	name := scriptName(44)
	r.deploy(name, bundle("one"))
	wantCode(t, r.invoke(name, "wait", gate.url), http.StatusGatewayTimeout, `"worker_timeout"`)
	r.wantText(name, "version", "one")
}

func TestRequestBounds(t *testing.T) {
	t.Parallel()
	gate := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = gate.policy; p.Limits.MaxInFlight = 1; p.Limits.MaxProcesses = 1 })
	name, other := scriptName(45), scriptName(46)
	r.deploy(name, bundle("one"))
	r.deploy(other, bundle("other"))
	done := make(chan answer, 1)
	go func() {
		a, _ := r.do(http.MethodPost, r.invokeURL(name, "wait"), "", strings.NewReader(gate.url))
		done <- a
	}()
	<-gate.arrived
	wantCode(t, r.invoke(name, "version", ""), http.StatusServiceUnavailable, `"worker_busy"`)
	wantCode(t, r.invoke(other, "version", ""), http.StatusServiceUnavailable, `"edge_host_busy"`)
	// An upload needs no free process: the release is current and starts later.
	r.deploy(other, bundle("later"))
	close(gate.open)
	if a := <-done; a.status != http.StatusOK {
		t.Fatalf("the running request: %d %s", a.status, a.text)
	}
	r.wantText(other, "version", "later")
}

func TestDamagedBundleIsNotServed(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), scriptName(47)
	first := openRig(t, dir, nil)
	first.deploy(name, bundle("one"))
	script, err := first.host.fleet.store.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	path := filepath.Join(dir, "scripts", name, "versions", script.Version, "index.mjs")
	if err := os.WriteFile(path, bundle("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := openRig(t, dir, nil)
	wantCode(t, r.invoke(name, "version", ""), http.StatusServiceUnavailable, `"worker_start_failed"`)
	r.deploy(name, bundle("one")) // the same release again mends it
	r.wantText(name, "version", "one")
}

func TestRepeatedFailuresBackOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name := scriptName(48)
	r.deploy(name, bundle("one"))
	w := r.host.fleet.worker(name)
	for range 8 {
		w.mu.Lock()
		w.countFailure(context.DeadlineExceeded)
		w.mu.Unlock()
	}
	inst := r.instanceOf(name)
	inst.server.Kill()
	<-inst.gone
	a := r.invoke(name, "version", "")
	wantCode(t, a, http.StatusServiceUnavailable, `"worker_start_failed"`)
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	r.deploy(name, bundle("two")) // an upload ends the back-off
	r.wantText(name, "version", "two")
}

// Close kills what does not end in time, and later requests are refused.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	gate := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = gate.policy })
	name := scriptName(49)
	r.deploy(name, bundle("one"))
	inst := r.instanceOf(name)
	answered := make(chan answer, 1)
	go func() {
		a, _ := r.do(http.MethodPost, r.invokeURL(name, "wait"), "", strings.NewReader(gate.url))
		answered <- a
	}()
	<-gate.arrived
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.host.Close(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-inst.gone:
	default:
		t.Fatal("a process outlived Close")
	}
	wantCode(t, <-answered, http.StatusBadGateway, `"worker_crashed"`)
	wantCode(t, r.invoke(name, "version", ""), http.StatusServiceUnavailable, `"edge_host_unavailable"`)
	wantCode(t, r.put(name, bundle("two")), http.StatusServiceUnavailable, "10013")
}
