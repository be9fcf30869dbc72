package edgehost

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/provider"
)

func (r *rig) fenceURL(id string) string { return r.control.URL + "/edge-host/v1/fence" + id }

func (r *rig) wantFence(a answer, want provider.Fence) {
	r.t.Helper()
	var got struct{ Result provider.Fence }
	if a.status != http.StatusOK {
		r.t.Fatalf("%d %s", a.status, a.text)
	}
	a.decode(r.t, &got)
	if got.Result != want {
		r.t.Fatalf("fence %+v, want %+v", got.Result, want)
	}
}

// S2-223: while a backup fence is up no script changes, also after a restart of
// the host; Workers go on serving.
func TestFence(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), scriptName(90)
	r := openRig(t, dir, nil)
	r.deploy(name, bundle("one"))
	r.wantFence(r.must(http.MethodGet, r.fenceURL(""), "", nil), provider.Fence{})
	r.wantFence(r.must(http.MethodPut, r.fenceURL("/first"), "", nil), provider.Fence{Active: "first"})
	r.wantFence(r.must(http.MethodPut, r.fenceURL("/first"), "", nil), provider.Fence{Active: "first"}) // a repetition

	standsStill := func(r *rig) {
		t.Helper()
		wantCode(t, r.put(name, bundle("two")), http.StatusLocked, `"edge_host_fenced"`)
		wantCode(t, r.must(http.MethodDelete, r.scriptURL(name, "?force=true"), "", nil), http.StatusLocked, `"edge_host_fenced"`)
		r.wantText(name, "version", "one")
		if n := r.counted("edge_host_backup_fence"); n != 1 {
			t.Errorf("edge_host_backup_fence %v", n)
		}
	}
	standsStill(r)
	r.stop()
	r = openRig(t, dir, nil)
	standsStill(r)

	wantCode(t, r.must(http.MethodPut, r.fenceURL("/second"), "", nil), http.StatusConflict, `"edge_host_fence_conflict"`)
	wantCode(t, r.must(http.MethodDelete, r.fenceURL("/second"), "", nil), http.StatusConflict, `"edge_host_fence_conflict"`)
	standsStill(r)
	r.wantFence(r.must(http.MethodDelete, r.fenceURL("/first"), "", nil), provider.Fence{Ended: "first"})
	r.wantFence(r.must(http.MethodDelete, r.fenceURL("/first"), "", nil), provider.Fence{Ended: "first"}) // a repetition
	wantCode(t, r.must(http.MethodPut, r.fenceURL("/first"), "", nil), http.StatusConflict, `"edge_host_fence_conflict"`)
	r.deploy(name, bundle("two"))
	r.wantText(name, "version", "two")
	if n := r.counted("edge_host_backup_fence"); n != 0 {
		t.Errorf("edge_host_backup_fence %v", n)
	}
}

// A beginning that was lost cannot come after its end.
func TestFenceEndsBeforeItsBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.wantFence(r.must(http.MethodDelete, r.fenceURL("/lost"), "", nil), provider.Fence{Ended: "lost"})
	wantCode(t, r.must(http.MethodPut, r.fenceURL("/lost"), "", nil), http.StatusConflict, `"edge_host_fence_conflict"`)
	r.deploy(scriptName(91), bundle("one"))
}

// A fence is up for whoever comes, and confirmed once the upload under way has
// ended.
func TestFenceWaitsForTheUploadUnderWay(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	r := newRig(t, func(p *Params) { p.Egress = g.policy })
	name := scriptName(92)
	r.deploy(name, bundle("one"))
	answers := make(chan answer, 3)
	send := func(do func() (answer, error)) {
		go func() {
			a, err := do()
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	send(func() (answer, error) {
		return r.do(http.MethodPost, r.invokeURL(name, "wait"), "text/plain", strings.NewReader(g.url))
	})
	<-g.arrived // the serving process has a request in flight, for which an upload waits
	source := bundle("two")
	contentType, body := multipartOf(uploadParts(metadataOf(tagOf(source)), source)...)
	send(func() (answer, error) { return r.do(http.MethodPut, r.scriptURL(name, ""), contentType, body) })
	fence := r.host.fleet.fence
	eventually(t, func() bool { fence.mu.Lock(); defer fence.mu.Unlock(); return fence.changes == 1 })
	send(func() (answer, error) { return r.do(http.MethodPut, r.fenceURL("/first"), "", nil) })
	eventually(t, func() bool { return fence.get().Active == "first" })
	wantCode(t, r.put(scriptName(93), bundle("other")), http.StatusLocked, `"edge_host_fenced"`)
	close(g.open)
	for range 3 {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	r.wantText(name, "version", "two")
}

// A beginning whose caller cannot wait any longer is no confirmation, and the
// fence stays up; asked again once all is quiet, it is.
func TestFenceIsNotConfirmedWhileAChangeIsUnderWay(t *testing.T) {
	t.Parallel()
	store, err := scriptstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f, err := openFence(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.enter(), f.enter()); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := f.begin(gone, "first"); !errors.Is(err, errFenceDraining) {
			t.Errorf("two changes under way: %v", err)
		}
		f.leave()
	}
	if err := f.enter(); !errors.Is(err, errFenced) {
		t.Errorf("a new change: %v", err)
	}
	if err := f.begin(t.Context(), "first"); err != nil {
		t.Errorf("quiet: %v", err)
	}
}

func TestFenceRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	wantCode(t, r.must(http.MethodPut, r.fenceURL("/"+strings.Repeat("a", 65)), "", nil), http.StatusBadRequest, "10016")
	wantCode(t, r.must(http.MethodPut, r.fenceURL("/a%2Fb"), "", nil), http.StatusBadRequest, "10016")
	r.wantFence(r.must(http.MethodPut, r.fenceURL("/"+strings.Repeat("a", 64)), "", nil), provider.Fence{Active: strings.Repeat("a", 64)})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		path := map[bool]string{true: "", false: "/x"}[method == http.MethodGet]
		req, err := http.NewRequestWithContext(t.Context(), method, r.fenceURL(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", method, resp.StatusCode)
		}
	}
}

// A fence that cannot be read stops the host: it must not take uploads into a
// backup.
func TestUnreadableFence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fence.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := scriptstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	_, err = openFence(store)
	if err == nil || !strings.Contains(err.Error(), "read the backup fence") {
		t.Errorf("%v", err)
	}
}
