package runtime_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// workerdBinary finds the pinned workerd.
func workerdBinary(t testing.TB) string {
	t.Helper()
	const pattern = "../tools/npm/node_modules/@cloudflare/workerd-*/bin/workerd"
	matches, err := filepath.Glob(pattern)
	if err != nil || len(matches) != 1 {
		t.Fatalf("workerd is missing at %s: run `make tools`", pattern)
	}
	absolute, err := filepath.Abs(matches[0])
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

const workerdConfig = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .tenant), (name = "disk", disk = (path = "%s", writable = true)),
    (name = "nowhere", %s) ],
  sockets = [ (name = "http", address = "unix:%s", http = (), service = "main") ],
);
const tenant :Workerd.Worker = (
  modules = [ (name = "index.mjs", esModule = embed "index.mjs") ],
  compatibilityDate = "%s",
  durableObjectNamespaces = [ (className = "TeamSyncDepartmentStorage", uniqueKey = "department", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [ (name = "TEAMSYNC_DEPARTMENT_STORAGE", durableObjectNamespace = "TeamSyncDepartmentStorage") ],
  globalOutbound = "nowhere",
);
`

// worker is one workerd process that serves one bundle.
type worker struct {
	dir    string
	cmd    *exec.Cmd
	client *http.Client
	stderr *logLines
	ended  chan struct{}
}

// startWorker starts workerd on a storage folder and waits for its listen
// event. An error is what workerd wrote when it refused the bundle.
func startWorker(t testing.TB, bundle []byte, storage string) (*worker, error) {
	t.Helper()
	return startAt(t, bundle, storage, "2026-11-01")
}

// startAt is startWorker with a compatibility date.
func startAt(t testing.TB, bundle []byte, storage, date string) (*worker, error) {
	t.Helper()
	return startOut(t, bundle, storage, date, "network = (allow = [])")
}

// mustStartOut is mustStart for a Worker whose requests all go to an address.
func mustStartOut(t testing.TB, bundle []byte, address string) *worker {
	t.Helper()
	w, err := startOut(t, bundle, t.TempDir(), "2026-11-01", fmt.Sprintf("external = (address = %q, http = ())", address))
	if err != nil {
		t.Fatalf("workerd refused the bundle: %v", err)
	}
	return w
}

// startOut is startAt with the service that takes the Worker's own requests.
func startOut(t testing.TB, bundle []byte, storage, date, outbound string) (*worker, error) {
	t.Helper()
	// A short path: a socket's has at most 108 bytes.
	dir, err := os.MkdirTemp("", "wd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	config := fmt.Sprintf(workerdConfig, storage, outbound, socket, date)
	for name, content := range map[string][]byte{"index.mjs": bundle, "config.capnp": []byte(config)} {
		err := os.WriteFile(filepath.Join(dir, name), content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	control, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	w := &worker{dir: dir, stderr: newLogLines(), ended: make(chan struct{})}
	w.cmd = exec.Command(workerdBinary(t), "serve", "--control-fd=3", filepath.Join(dir, "config.capnp"))
	w.cmd.Stdout, w.cmd.Stderr = w.stderr, w.stderr
	w.cmd.ExtraFiles = []*os.File{theirs}
	err = w.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait()
		close(w.ended)
	}()
	t.Cleanup(w.kill)
	// The pipe ends when the process does: no listen event means refused.
	line, err := bufio.NewReader(control).ReadString('\n')
	if err != nil || !strings.Contains(line, `"listen"`) {
		<-w.ended
		return nil, errors.New(w.stderr.String())
	}
	w.client = &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}},
	}
	return w, nil
}

// mustStart is startWorker for bundles that have to start.
func mustStart(t testing.TB, bundle []byte, storage string) *worker {
	t.Helper()
	w, err := startWorker(t, bundle, storage)
	if err != nil {
		t.Fatalf("workerd refused the bundle: %v", err)
	}
	return w
}

// kill ends the process as a power cut would.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.ended
}

// answer is what a door answered.
type answer struct {
	status int
	body   string
	// refusal is the header by which a door marks what it says itself.
	refusal string
}

// value decodes the answer's JSON.
func (a answer) value(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	err := json.Unmarshal([]byte(a.body), &v)
	if err != nil {
		t.Fatalf("answer %d is not a JSON object: %q", a.status, a.body)
	}
	return v
}

// code is detail.code of the answer.
func (a answer) code(t testing.TB) string {
	t.Helper()
	detail, _ := a.value(t)["detail"].(map[string]any)
	code, _ := detail["code"].(string)
	return code
}

func (w *worker) do(t testing.TB, method, path, authorization string, body io.Reader) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://worker"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	return w.send(t, request)
}

// doWith posts an empty body with more headers.
func (w *worker) doWith(t testing.TB, path, authorization string, headers map[string]string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://worker"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Authorization", authorization)
	return w.send(t, request)
}

func (w *worker) send(t testing.TB, request *http.Request) answer {
	t.Helper()
	response, err := w.client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", request.Method, request.URL.Path, err, w.stderr)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, string(text), response.Header.Get("X-Edge-Workers-Refusal")}
}

// logLines collects what the process writes.
type logLines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed and renewed by each write
}

func newLogLines() *logLines { return &logLines{written: make(chan struct{})} }

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.written)
	l.written = make(chan struct{})
	return l.text.Write(p)
}

func (l *logLines) String() string {
	text, _ := l.state()
	return text
}

func (l *logLines) state() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String(), l.written
}

// await waits until the process has written the text.
func (l *logLines) await(t testing.TB, want string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		text, more := l.state()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("the log has no %s:\n%s", want, text)
		}
	}
}

// list decodes an answer that is a JSON list of texts.
func (a answer) list(t testing.TB) []string {
	t.Helper()
	var v []string
	err := json.Unmarshal([]byte(a.body), &v)
	if err != nil {
		t.Fatalf("answer %d is not a list of texts: %q", a.status, a.body)
	}
	return v
}
