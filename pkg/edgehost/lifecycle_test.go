package edgehost

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// S2-156 to S2-161: an upload is kept as sent and read back at both ends.
func TestUploadServeReadBackDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name, source := scriptName(1), bundle("one")
	wantCode(t, r.invoke(name, "version", ""), http.StatusNotFound, `"worker_not_found"`)
	r.deploy(name, source)
	r.wantText(name, "version", "one")
	if a := r.must(http.MethodPost, r.gateway.URL+"/"+name+"/__control", "", nil); a.text != "control one" {
		t.Fatalf("control door: %d %q", a.status, a.text)
	}
	var read struct {
		Success bool
		Result  struct {
			Tags   []string
			Script struct {
				ID, ETag string
				Handlers []string
				Exports  map[string]map[string]string
			}
		}
	}
	r.must(http.MethodGet, r.scriptURL(name, "/settings"), "", nil).decode(t, &read)
	if len(read.Result.Tags) != 1 || read.Result.Tags[0] != tagOf(source) {
		t.Fatalf("settings: %+v", read)
	}
	r.must(http.MethodGet, r.scriptURL(name, ""), "", nil).decode(t, &read)
	if s := read.Result.Script; s.ID != name || s.Exports["TeamSyncDepartmentStorage"]["state"] != "created" || len(s.ETag) != 64 {
		t.Fatalf("details: %+v", read)
	}
	r.wantText(name, "count", "1")
	wantCode(t, r.must(http.MethodDelete, r.scriptURL(name, ""), "", nil), http.StatusBadRequest, "10064")
	r.wantText(name, "count", "2") // the refused deletion changed nothing
	if a := r.must(http.MethodDelete, r.scriptURL(name, "?force=true"), "", nil); a.status != http.StatusOK {
		t.Fatalf("delete: %d %s", a.status, a.text)
	}
	wantCode(t, r.invoke(name, "version", ""), http.StatusNotFound, `"worker_not_found"`)
	wantCode(t, r.must(http.MethodGet, r.scriptURL(name, "/settings"), "", nil), http.StatusNotFound, "10007")
	wantCode(t, r.must(http.MethodDelete, r.scriptURL(name, "?force=true"), "", nil), http.StatusNotFound, "10007")
	r.deploy(name, source)
	r.wantText(name, "count", "1") // the data went with the script
}

func TestStorageOutlivesVersionsKillsAndHosts(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), scriptName(2)
	r := openRig(t, dir, nil)
	r.deploy(name, bundle("one"))
	r.wantText(name, "count", "1")
	r.deploy(name, bundle("two"))
	r.wantText(name, "version", "two")
	r.wantText(name, "count", "2")
	first := r.instanceOf(name)
	if err := syscall.Kill(first.server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-first.gone
	r.wantText(name, "count", "3")
	if got := r.counted("edge_host_worker_ends_total", "crash"); got != 1 {
		t.Fatalf("crashes counted: %v", got)
	}
	r.stop()
	again := openRig(t, dir, nil)
	again.wantText(name, "version", "two")
	again.wantText(name, "count", "4")
}

func TestIdenticalUploadKeepsTheProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name := scriptName(3)
	r.deploy(name, bundle("one"))
	before := r.instanceOf(name)
	r.deploy(name, bundle("one"))
	if r.instanceOf(name) != before {
		t.Fatal("an identical upload replaced the process")
	}
	r.deploy(name, bundle("two"))
	if r.instanceOf(name) == before {
		t.Fatal("another upload kept the process")
	}
}

// S2-152: a request that is in flight at the swap ends on the old release; one that
// arrives during the swap waits and gets the new one.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	gate := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = gate.policy })
	name := scriptName(4)
	r.deploy(name, bundle("old"))
	old := make(chan answer, 1)
	go func() {
		a, _ := r.do(http.MethodPost, r.invokeURL(name, "wait"), "", strings.NewReader(gate.url))
		old <- a
	}()
	<-gate.arrived
	uploaded := make(chan answer, 1)
	go func() {
		source := bundle("new")
		contentType, body := multipartOf(uploadParts(metadataOf(tagOf(source)), source)...)
		a, _ := r.do(http.MethodPut, r.scriptURL(name, ""), contentType, body)
		uploaded <- a
	}()
	w := r.host.fleet.worker(name)
	eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.held != nil })
	during := make(chan answer, 1)
	go func() { a, _ := r.do(http.MethodPost, r.invokeURL(name, "version"), "", nil); during <- a }()
	eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.waiting == 1 })
	close(gate.open)
	if a := <-old; a.status != http.StatusOK || a.text != "old" {
		t.Fatalf("in flight: %d %q", a.status, a.text)
	}
	if a := <-uploaded; a.status != http.StatusOK {
		t.Fatalf("upload: %d %s", a.status, a.text)
	}
	if a := <-during; a.status != http.StatusOK || a.text != "new" {
		t.Fatalf("during the swap: %d %q", a.status, a.text)
	}
}

func TestConcurrentFirstRequestsShareOneStart(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), scriptName(5)
	first := openRig(t, dir, nil)
	first.deploy(name, bundle("one"))
	first.stop()
	r := openRig(t, dir, nil)
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if a, err := r.do(http.MethodPost, r.invokeURL(name, "version"), "", nil); err != nil || a.text != "one" {
				t.Errorf("got %v %v", a, err)
			}
		})
	}
	clients.Wait()
	if got := r.counted("edge_host_worker_starts_total", "started"); got != 1 {
		t.Fatalf("%v processes were started", got)
	}
}

func TestSecondHostOnTheFolderIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.params
	if _, err := New(p); err == nil || !strings.Contains(err.Error(), "in use by another edge host") {
		t.Fatalf("got %v", err)
	}
}

// The storage lock is taken for each process and lives as long as it.
func TestStorageLockFollowsTheProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name := scriptName(6)
	r.deploy(name, bundle("one"))
	inst := r.instanceOf(name)
	if err := flock(t, r, name); err == nil {
		t.Fatal("the lock was free while the process runs")
	}
	// The child alone keeps it, as after a kill of the host.
	if err := inst.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flock(t, r, name); err == nil {
		t.Fatal("the child did not inherit the lock")
	}
	inst.server.Kill()
	<-inst.gone
	if err := flock(t, r, name); err != nil {
		t.Fatalf("the lock was not given up: %v", err)
	}
	r.wantText(name, "version", "one")
}

func flock(t *testing.T, r *rig, name string) error {
	t.Helper()
	file, err := os.OpenFile(r.host.fleet.store.StorageDir(name)+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func TestStorageInUseElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), scriptName(7)
	first := openRig(t, dir, nil)
	first.deploy(name, bundle("one"))
	first.stop()
	r := openRig(t, dir, func(p *Params) { p.Limits.StartTimeout = 3e9 })
	file, err := os.OpenFile(r.host.fleet.store.StorageDir(name)+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	wantCode(t, r.invoke(name, "version", ""), http.StatusServiceUnavailable, `"worker_start_failed"`)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r.wantText(name, "version", "one")
}

func TestProcessCapEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.MaxProcesses = 2 })
	for n := 10; n < 13; n++ {
		r.deploy(scriptName(n), bundle(fmt.Sprint(n)))
		r.wantText(scriptName(n), "count", "1")
	}
	if got := r.counted("edge_host_worker_processes"); got != 2 {
		t.Fatalf("%v processes run", got)
	}
	if got := r.counted("edge_host_worker_ends_total", "evicted"); got != 1 {
		t.Fatalf("%v processes were evicted", got)
	}
	r.wantText(scriptName(10), "count", "2") // evicted, started again, data kept
}

func TestIdleProcessStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.IdleTimeout = 50e6 })
	name := scriptName(14)
	r.deploy(name, bundle("one"))
	eventually(t, func() bool { return r.counted("edge_host_worker_ends_total", "idle") == 1 })
	r.wantText(name, "count", "1")
}

func TestFinderFindsThePinnedVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if got := r.host.MaxCompatibilityDate(); got < testDate {
		t.Fatalf("newest compatibility date %s of version %s", got, workerd.Version)
	}
}
