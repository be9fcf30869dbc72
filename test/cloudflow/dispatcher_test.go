package cloudflow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/runtime"
)

// namespace stands in for the cloud's dispatch namespace, which workerd does
// not have: the Workers are the edge host's. It is as strict about what it is
// given as the cloud, and a missing Worker throws when it is called.
const namespace = `
import dispatcher from "dispatcher.mjs";
const refuse = (what) => { throw new Error("not as the cloud is called: " + what); };
const binding = (env) => ({
  get(name, args, options) {
    if (Object.keys(args).length !== 0 || !(options.limits.cpuMs > 0) || !(options.limits.subRequests > 0)) refuse("limits");
    return {
      async fetch(request) {
        for (const key of request.headers.keys()) {
          if (!["authorization", "content-type", "accept", "x-request-id", "content-length"].includes(key)) refuse(key);
        }
        const url = new URL(request.url);
        if (url.search !== "" || request.redirect !== "manual") refuse("query or redirect");
        if (name.endsWith("0".repeat(40))) throw new Error("internal error of the platform, with words that nobody is to see");
        const answer = await env.HOST.fetch("http://host/" + name + url.pathname, request);
        if (answer.status === 404 && answer.headers.get("x-edge-workers-refusal") === "host") throw new Error("Worker not found.");
        return answer;
      },
    };
  },
});
export default { fetch: (request, env, ctx) => dispatcher.fetch(request, { DISPATCHER: binding(env) }, ctx) };
`

const dispatcherConfig = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .dispatcher), (name = "host", external = (address = "%s", http = ())) ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "main") ],
);
const dispatcher :Workerd.Worker = (
  modules = [ (name = "entry.mjs", esModule = embed "entry.mjs"), (name = "dispatcher.mjs", esModule = embed "dispatcher.mjs") ],
  compatibilityDate = "2026-01-01",
  bindings = [ (name = "HOST", service = "host") ],
);
`

// startDispatcher runs the dispatcher Worker on real workerd in front of the
// edge host's dispatch address and gives its origin.
func startDispatcher(t *testing.T, host string) string {
	t.Helper()
	binary, err := workerd.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"entry.mjs": namespace, "dispatcher.mjs": runtime.Dispatcher(),
		"config.capnp": fmt.Sprintf(dispatcherConfig, strings.TrimPrefix(host, "http://")),
	} {
		err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	events, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	process := exec.Command(binary, "serve", "--control-fd=3", filepath.Join(dir, "config.capnp"))
	process.Stderr, process.ExtraFiles = os.Stderr, []*os.File{theirs}
	err = process.Start()
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	var listening struct{ Port int }
	line, err := bufio.NewReader(events).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &listening) != nil || listening.Port == 0 {
		t.Fatalf("the dispatcher does not listen: %q %v", line, err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", listening.Port)
}

// The dispatcher passes on what a door has, and nothing else; what it says
// itself is marked, tells nothing of the platform, and is not the Worker's.
func TestDispatcher(t *testing.T) {
	s := newSystem(t)
	s.deploy(s.small("one"))
	script := s.Worker().ScriptName
	other := "dw-" + strings.Repeat("ab", 24)
	for _, c := range []struct {
		method, path, code string
		status             int
		marked             bool
	}{
		{"POST", "/" + script + "/__control", "assertion_invalid", 401, false},
		{"POST", "/" + script + "/__invoke/echo.say?x=1", "assertion_invalid", 401, false},
		{"POST", "/" + other + "/__control", "worker_not_found", 404, true},
		{"POST", "/dw-abababab" + strings.Repeat("0", 40) + "/__control", "worker_crashed", 502, true},
		{"GET", "/" + script + "/__control", "", 404, false},
		{"POST", "/" + script, "", 404, false},
		{"POST", "/" + script + "/", "", 404, false},
		{"POST", "/" + script + "/__internal/context", "", 404, false},
		{"POST", "/" + script + "/__invoke/Echo", "", 404, false},
		{"POST", "/" + script + "/__invoke/%65cho.say", "", 404, false},
		{"POST", "/" + script + "/x/../__control/y", "", 404, false},
		{"POST", "/" + strings.ToUpper(script) + "/__control", "", 404, false},
		{"POST", "/__control", "", 404, false},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, s.dispatch+c.path, strings.NewReader("{}"))
		s.must(err)
		if c.method == http.MethodGet {
			request.Body, request.ContentLength = nil, 0
		}
		request.Header.Set("Cookie", "a=b")
		request.Header.Set("Cloudflare-Workers-Version-Overrides", script+`="x"`)
		request.Header.Set("X-Edge-Workers-Refusal", "door")
		request.Header.Set("X-Shared-Version", "1")
		response, err := http.DefaultTransport.RoundTrip(request)
		s.must(err)
		raw, err := io.ReadAll(response.Body)
		response.Body.Close()
		s.must(err)
		var said struct{ Detail json.RawMessage }
		var coded struct{ Code string }
		if json.Unmarshal(raw, &said) != nil {
			t.Errorf("%s %s: %s", c.method, c.path, raw)
		}
		_ = json.Unmarshal(said.Detail, &coded)
		if response.StatusCode != c.status || coded.Code != c.code || (response.Header.Get("X-Edge-Workers-Refusal") == "host") != c.marked || strings.Contains(string(raw), "nobody") {
			t.Errorf("%s %s: %d %s %v", c.method, c.path, response.StatusCode, raw, response.Header)
		}
	}
	// It is refused by its announced length; nothing of the body need be sent.
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.dispatch, "http://"))
	s.must(err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection, "POST /%s/__control HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", script, 8<<20+1)
	s.must(err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	s.must(err)
	response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d", response.StatusCode)
	}
}
