package edgehost

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// An endless loop is ended by the watchdog and touches no other script.
func TestLoopIsKilledWhileOthersServe(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.HealthInterval = 1e8; p.Limits.HealthTimeout = 2e9 })
	looping, calm := scriptName(60), scriptName(61)
	r.deploy(looping, bundle("looping"))
	r.deploy(calm, bundle("calm"))
	answered := make(chan answer, 1)
	go func() { a, _ := r.do(http.MethodPost, r.invokeURL(looping, "loop"), "", nil); answered <- a }()
	for waiting := true; waiting; {
		select {
		case a := <-answered:
			wantCode(t, a, http.StatusBadGateway, `"worker_crashed"`)
			waiting = false
		default:
			r.wantText(calm, "version", "calm")
		}
	}
	eventually(t, func() bool { return r.counted("edge_host_worker_ends_total", "unresponsive") == 1 })
	r.wantText(looping, "version", "looping")
}

func TestMemoryHogsAreKilled(t *testing.T) {
	t.Parallel()
	if !procMemory() {
		t.Log("this system does not tell a process's memory: V8's heap limit alone is tested")
	}
	r := newRig(t, func(p *Params) { p.Limits.MaxMemoryBytes = 200 << 20; p.Limits.MaxHeapMiB = 64 })
	name := scriptName(62)
	r.deploy(name, bundle("one"))
	r.wantText(name, "count", "1")
	wantCode(t, r.invoke(name, "heap", ""), http.StatusBadGateway, `"worker_crashed"`)
	if procMemory() {
		wantCode(t, r.invoke(name, "eat", ""), http.StatusBadGateway, `"worker_crashed"`)
		eventually(t, func() bool { return r.counted("edge_host_worker_ends_total", "memory") >= 1 })
	}
	r.wantText(name, "count", "2")
}

func procMemory() bool {
	_, err := os.Stat("/proc/self/smaps_rollup")
	return err == nil
}

// Workers reach no private address, whatever way it is named, and what the
// policy allows works.
func TestEgressThroughTheHost(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- r.Host
		_, _ = w.Write([]byte("inside"))
	}))
	t.Cleanup(inside.Close)
	port := portOf(t, inside.URL)
	closed := newRig(t, func(p *Params) { p.Egress.Ports = []uint16{port, 80} })
	name := scriptName(63)
	closed.deploy(name, bundle("one"))
	at := ":" + strconv.Itoa(int(port))
	for _, target := range []string{
		"http://127.0.0.1" + at, "http://localhost" + at, "http://[::1]" + at, "http://[::ffff:127.0.0.1]" + at, "http://2130706433" + at,
		"http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://127.0.0.1:22/", "http://0.0.0.0" + at,
	} {
		a := closed.invoke(name, "fetch", target)
		if a.status != http.StatusForbidden || a.header.Get("X-Egress") != "egress_denied" {
			t.Errorf("%s: %d %s", target, a.status, a.text)
		}
	}
	if a := closed.invoke(name, "tcp", "127.0.0.1"+at); a.text == "opened" || a.status == http.StatusOK {
		t.Errorf("TCP: %d %s", a.status, a.text)
	}
	if len(reached) != 0 {
		t.Fatalf("%d requests reached a private address", len(reached))
	}
	open := newRig(t, func(p *Params) { p.Egress = newGate(t).policy; p.Egress.Ports = []uint16{port} })
	open.deploy(name, bundle("one"))
	if a := open.invoke(name, "fetch", "http://localhost"+at); a.status != http.StatusOK || a.text != "inside" {
		t.Fatalf("allowed target: %d %s", a.status, a.text)
	}
	if host := <-reached; host != "localhost"+at {
		t.Fatalf("Host was %q", host)
	}
}

// Nothing of the host's environment is visible in a Worker.
func TestEnvironmentStaysOutside(t *testing.T) {
	t.Setenv("EDGE_TEST_SECRET", "visible-in-the-host")
	r := newRig(t, nil)
	r.deploy(scriptName(64), bundle("one"))
	if a := r.invoke(scriptName(64), "env", ""); a.status != http.StatusOK || strings.Contains(a.text, "visible-in-the-host") {
		t.Fatalf("%d %s", a.status, a.text)
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(r.instanceOf(scriptName(64)).server.PID()) + "/environ")
	if err == nil && strings.Contains(string(raw), "visible-in-the-host") {
		t.Fatal("the process inherited the environment")
	}
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	if !workerd.IsolationSupported() {
		p := Params{DataDir: t.TempDir(), Workerd: findWorkerd(t), Token: testToken, Isolation: &Isolation{}}
		p.Logger, p.Registerer = newRig(t, nil).params.Logger, newRig(t, nil).registry
		if _, err := New(p); err == nil || !strings.Contains(err.Error(), "isolation needs Linux and root") {
			t.Fatalf("got %v", err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "edge-host-isolation-") // t.TempDir is closed to other uids
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := newRig(t, nil).params
	p.DataDir, p.Registerer, p.Isolation = filepath.Join(dir, "closed"), prometheus.NewRegistry(), &Isolation{}
	if _, err := New(p); err == nil || !strings.Contains(err.Error(), "other uids cannot get through "+dir) {
		t.Fatalf("closed folder: %v", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	gate := newGate(t)
	close(gate.open)
	r := openRig(t, filepath.Join(dir, "data"), func(p *Params) { p.Isolation = &Isolation{}; p.Egress = gate.policy })
	name := scriptName(65)
	r.deploy(name, bundle("one"))
	r.wantText(name, "count", "1")
	if a := r.invoke(name, "fetch", gate.url); a.text != "through the gate" {
		t.Fatalf("egress: %d %s", a.status, a.text)
	}
	inst := r.instanceOf(name)
	proc := "/proc/" + strconv.Itoa(inst.server.PID())
	info, err := os.Stat(proc)
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid < 200000 || uid >= 265536 {
		t.Errorf("uid %d", uid)
	}
	own, _ := os.Readlink("/proc/self/ns/net")
	child, err := os.Readlink(proc + "/ns/net")
	if err != nil || own == child {
		t.Errorf("network namespace %q of the host is shared (%v)", child, err)
	}
	r.deploy(name, bundle("two"))
	r.wantText(name, "count", "2")
}

// Sockets have bounded paths, data folders do not.
func TestLongDataPathStillWorks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-folder-name-", 8))
	r := openRig(t, dir, nil)
	r.deploy(scriptName(66), bundle("one"))
	r.wantText(scriptName(66), "count", "1")
	runDir := r.host.fleet.runDir
	if strings.HasPrefix(runDir, dir) {
		t.Fatalf("sockets are in %s", runDir)
	}
	r.stop()
	if _, err := os.Stat(runDir); !os.IsNotExist(err) {
		t.Fatalf("the run folder is left: %v", err)
	}
}
