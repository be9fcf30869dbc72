// Package e2e_test runs the whole system as people run it: the real edgectl
// binary, one data folder, real workerd, and nothing but HTTP and the command
// line to look at it.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// patience bounds every wait. It is no measure of speed: it tells a test that
// hangs from one that is slow.
const patience = 60 * time.Second

// edgectl is the binary under test.
var edgectl string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	folder, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	edgectl = filepath.Join(folder, "edgectl")
	build := exec.Command("go", "build", "-trimpath", "-o", edgectl, "../../cmd/edgectl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	if err != nil {
		return 1, fmt.Errorf("build edgectl: %w\n%s", err, text)
	}
	return m.Run(), nil
}

// dev is one life of `edgectl dev` on a data folder.
type dev struct {
	devkit.Ready
	t       testing.TB
	data    string
	command *exec.Cmd
	done    chan struct{} // closed when the process has ended
	log     *os.File
}

// start runs `edgectl dev` and waits until it says that all is up. The log of
// every life of a folder is appended to one file beside it.
func start(t testing.TB, data string, arguments ...string) *dev {
	t.Helper()
	d := &dev{t: t, data: data, done: make(chan struct{})}
	var err error
	d.log, err = os.OpenFile(data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	readyFile := filepath.Join(t.TempDir(), "ready.json")
	arguments = append([]string{"dev", "--json", "--data", data, "--addr", "127.0.0.1:0", "--ready-file", readyFile}, arguments...)
	d.command = exec.Command(edgectl, arguments...)
	d.command.Stderr = d.log
	d.command.SysProcAttr = attributes()
	stdout, err := d.command.StdoutPipe()
	must(t, err)
	d.spawn()
	announced := make(chan error, 1)
	go func() {
		var said devkit.Ready
		announced <- json.NewDecoder(stdout).Decode(&said)
		_, _ = io.Copy(io.Discard, stdout)
		_ = d.command.Wait()
		close(d.done)
	}()
	t.Cleanup(d.kill)
	select {
	case err = <-announced:
	case <-time.After(patience):
		err = errors.New("it says nothing")
	}
	if err != nil {
		t.Fatalf("edgectl dev does not come up: %v\n%s", err, tail(data+".log"))
	}
	raw, err := os.ReadFile(readyFile)
	must(t, err)
	must(t, json.Unmarshal(raw, &d.Ready))
	return d
}

// spawn starts the process from a thread that lives as long as it does: Linux
// sends the death signal when the parent's thread ends.
func (d *dev) spawn() {
	d.t.Helper()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- d.command.Start()
		<-d.done
	}()
	must(d.t, <-started)
}

// kill ends the process with SIGKILL and waits until it is gone.
func (d *dev) kill() {
	select {
	case <-d.done:
		return
	default:
	}
	_ = d.command.Process.Kill()
	<-d.done
	_ = d.log.Close()
}

// stop asks the process to end, as Ctrl-C does, and gives its exit code.
func (d *dev) stop() int {
	d.t.Helper()
	must(d.t, d.command.Process.Signal(os.Interrupt))
	select {
	case <-d.done:
	case <-time.After(patience):
		d.t.Fatalf("edgectl dev does not stop\n%s", tail(d.data+".log"))
	}
	_ = d.log.Close()
	return d.command.ProcessState.ExitCode()
}

func tail(name string) string {
	raw, _ := os.ReadFile(name)
	return string(raw[max(0, len(raw)-4000):])
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs another edgectl command against the folder's system.
func (d *dev) run(arguments ...string) (string, string, int) {
	d.t.Helper()
	return run(d.t, append([]string{"--dev-data", d.data}, arguments...)...)
}

func run(t testing.TB, arguments ...string) (string, string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, edgectl, arguments...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("edgectl %s: %v", arguments, err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// answer is what the API said. A request that got no answer has code 0.
type answer struct {
	code int
	body []byte
	err  error
}

// seen keeps every body that the tests were sent, for the search for secrets.
var seen struct {
	sync.Mutex
	bytes.Buffer
}

var browser = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// call sends one request, once.
func (d *dev) call(method, path, token, media, body string) answer {
	d.t.Helper()
	request, err := http.NewRequest(method, d.APIURL+path, strings.NewReader(body))
	must(d.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	if media != "" {
		request.Header.Set("Content-Type", media)
	}
	response, err := browser.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{err: err}
	}
	seen.Lock()
	_ = response.Header.Write(&seen)
	seen.Write(raw)
	seen.Unlock()
	return answer{code: response.StatusCode, body: raw}
}

func (d *dev) json(method, path, token, body string) answer {
	d.t.Helper()
	return d.call(method, path, token, "application/json", body)
}

// into decodes an answer that must have the status.
func (a answer) into(t testing.TB, code int, target any) {
	t.Helper()
	if a.code != code {
		t.Fatalf("got %d %s %v, want %d", a.code, a.body, a.err, code)
	}
	must(t, json.Unmarshal(a.body, target))
}

// submit submits an archive as the token's manager.
func (d *dev) submit(token string, archive []byte) answer {
	d.t.Helper()
	return d.call("POST", "/worker/versions", token, "application/gzip", string(archive))
}

// deploy asks for the deployment of a version.
func (d *dev) deploy(token string, v gen.Version) answer {
	d.t.Helper()
	return d.json("POST", "/worker/deployments", token, fmt.Sprintf(`{"version_id":%q,"base_revision":%d}`, v.ID, v.Revision))
}

// follow polls a ticket until nothing more happens to it by itself. It fails
// the test when that does not come, and gives false when the API is gone.
func (d *dev) follow(token, ticket string) (gen.Ticket, bool) {
	d.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := d.call("GET", "/worker/deployments/"+ticket, token, "", "")
		if got.err != nil {
			return gen.Ticket{}, false
		}
		var t gen.Ticket
		got.into(d.t, http.StatusOK, &t)
		switch t.Status {
		case gen.TicketStatusCompleted, gen.TicketStatusFailed, gen.TicketStatusCancelled, gen.TicketStatusUncertain:
			return t, true
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("ticket %s stays %s\n%s", ticket, t.Status, tail(d.data+".log"))
		}
		select {
		case <-d.done:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// release submits and deploys an archive and gives the version and the ended ticket.
func (d *dev) release(token string, archive []byte) (gen.Version, gen.Ticket) {
	d.t.Helper()
	var v gen.Version
	var t gen.Ticket
	d.submit(token, archive).into(d.t, http.StatusCreated, &v)
	d.deploy(token, v).into(d.t, http.StatusAccepted, &t)
	ended, alive := d.follow(token, t.TicketID)
	if !alive {
		d.t.Fatal("the API is gone")
	}
	return v, ended
}
