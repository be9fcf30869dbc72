package retirement

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
)

var tombstone = []byte("export default { fetch: () => new Response(null, { status: 410 }) };")

var errLost = errors.New("the answer was lost")

// host is a provider that holds whole scripts and notes what it is asked. fail,
// when set, gets each call before and after its effect; its error is the answer.
type host struct {
	mu      sync.Mutex
	scripts map[string]string // name → bundle digest
	calls   []string
	fail    func(call, script string, after bool) error
}

func newHost() *host { return &host{scripts: map[string]string{}} }

func (h *host) call(name, script string, effect func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, name)
	for _, after := range []bool{false, true} {
		if h.fail != nil {
			err := h.fail(name, script, after)
			if err != nil {
				return err
			}
		}
		if !after {
			effect()
		}
	}
	return nil
}

func (h *host) Upload(_ context.Context, r provider.Release) error {
	return h.call("PUT", r.ScriptName, func() { h.scripts[r.ScriptName] = r.BundleDigest })
}

func (h *host) ReadBack(_ context.Context, r provider.Release) error {
	var got string
	err := h.call("GET", r.ScriptName, func() { got = h.scripts[r.ScriptName] })
	if err == nil && got != r.BundleDigest {
		err = &provider.MismatchError{Detail: "tag"}
	}
	return err
}

func (h *host) Exists(_ context.Context, _, script string) (bool, error) {
	there := false
	err := h.call("EXISTS", script, func() { _, there = h.scripts[script] })
	return there, err
}

func (h *host) Delete(_ context.Context, _, script string) error {
	return h.call("DELETE", script, func() { delete(h.scripts, script) })
}

// asked lists the calls since it was asked last.
func (h *host) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func (h *host) stands(script string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.scripts[script] == canonical.SHA256(tombstone)
}

// world is a control plane with its host and the lane of one replica.
type world struct {
	*plane.Plane
	t    *testing.T
	host *host
	lane *Lane
	now  time.Time
}

func newWorld(t *testing.T, db *database.DB) *world {
	t.Helper()
	w := &world{Plane: plane.New(t, db), t: t, host: newHost(), now: time.Now()}
	w.lane = w.replica()
	return w
}

// replica is the lane of another process.
func (w *world) replica() *Lane {
	w.t.Helper()
	l, err := New(Params{DB: w.DB, Outbox: w.Outbox, Scripts: func() (Scripts, error) { return w.host, nil }, Tombstone: tombstone, Log: w.Log})
	if err != nil {
		w.t.Fatal(err)
	}
	l.now = func() time.Time { return w.now }
	return l
}

// department is a new department of the company with a deployed Worker.
func (w *world) department() *world {
	w.t.Helper()
	one := w.tenant()
	one.Admit(one.Submit("one"))
	one.finish()
	return one
}

// tenant is a new department of the company without a Worker.
func (w *world) tenant() *world {
	w.t.Helper()
	one, p := *w, *w.Plane
	one.Plane = &p
	one.Tenant = models.Tenant{CompanyID: w.Tenant.CompanyID, DepartmentID: "dept-" + uuid.NewString()}
	one.Provision(one.Tenant)
	return &one
}

// finish runs the deployment that was published last.
func (w *world) finish() {
	w.t.Helper()
	messages := w.Published.Messages()
	err := w.Task(nil).Handle(w.t.Context(), messages[len(messages)-1])
	if err != nil {
		w.t.Fatal(err)
	}
	w.host.mu.Lock()
	w.host.scripts[w.script()] = "the department's own"
	w.host.mu.Unlock()
}

func (w *world) script() string { return models.ScriptName(w.Tenant.CompanyID, w.Tenant.DepartmentID) }

func (w *world) delete() {
	w.t.Helper()
	err := w.Directory.DeleteDepartment(w.t.Context(), w.Actor, w.Tenant.DepartmentID)
	if err != nil {
		w.t.Fatal(err)
	}
}

// deleted are n departments with a deployed Worker that were deleted.
func (w *world) deleted(n int) []*world {
	w.t.Helper()
	var all []*world
	for range n {
		one := w.department()
		one.delete()
		all = append(all, one)
	}
	return all
}

// round runs one round and wants this of it; a round that is to fail has
// "failed" in it.
func (w *world) round(want reconcile.Result) {
	w.t.Helper()
	got, err := w.lane.RunOnce(w.t.Context(), 10*time.Second)
	if (err != nil) != (want[failed] > 0) || len(got) != len(want) {
		w.t.Fatalf("%v, %v, want %v", got, err, want)
	}
	for what, n := range want {
		if got[what] != n {
			w.t.Fatalf("%v, want %v", got, want)
		}
	}
}

// recorded counts the facts of an action.
func (w *world) recorded(action string) int {
	w.t.Helper()
	n := 0
	for _, fact := range w.Facts() {
		if fact.Action == action {
			n++
			if fact.Result != audit.Succeeded || fact.ResourceType != "edge_worker" || fact.ActorType != "system" {
				w.t.Errorf("fact %+v", fact)
			}
		}
	}
	return n
}
