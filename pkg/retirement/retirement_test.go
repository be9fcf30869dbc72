package retirement

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
)

// S1-339, S1-341, S2-248: the script of a deleted department gets a tombstone,
// one of a live department is not asked for, and no deployment is touched. The
// tombstone stays when the retirement is on record.
func TestDeletedDepartment(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := newWorld(t, db)
		live, gone := w.department(), w.department()
		gone.delete()
		var before, after []models.Outbox
		w.must(db.Read(t.Context()).Order("id").Find(&before).Error)
		w.round(reconcile.Result{retired: 1})
		if got := w.host.asked(); !slices.Equal(got, []string{"GET", "PUT", "GET"}) || !w.host.stands(gone.script()) || w.host.stands(live.script()) {
			t.Errorf("calls %v", got)
		}
		w.round(nil)
		if got := w.host.asked(); len(got) > 0 || !w.host.stands(gone.script()) {
			t.Errorf("a second round: %v", got)
		}
		if gone.recorded(ActionRetired) != 1 || live.recorded(ActionRetired) != 0 {
			t.Error("it is not on record once")
		}
		w.must(db.Read(t.Context()).Order("id").Find(&after).Error)
		if len(before) == 0 || !slices.EqualFunc(before, after, func(a, b models.Outbox) bool { return a.Status == b.Status && a.UpdatedAt.Equal(b.UpdatedAt) }) {
			t.Error("deployments were touched")
		}
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// S1-340, S1-345, S3-79: after a hard delete the rows of the deployments tell which
// scripts were this database's. A script without such rows is left alone, and
// so is that of another company.
func TestHardDeletedCompany(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w, other := newWorld(t, db), newWorld(t, db)
		other.host = w.host
		gone, live := w.department(), other.department()
		w.host.scripts["dw-of-somebody-else"] = "somebody's"
		w.must(w.Directory.DeleteCompany(t.Context(), w.Actor, w.Tenant.CompanyID))
		w.round(reconcile.Result{retired: 1})
		if !w.host.stands(gone.script()) || w.host.stands(live.script()) || w.host.stands("dw-of-somebody-else") || gone.recorded(ActionRetired) != 1 {
			t.Errorf("scripts %v", w.host.scripts)
		}
		w.round(nil)
	})
}

// The script of a company that was made anew has an owner again.
func TestCompanyMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	gone := w.department()
	w.must(w.Directory.DeleteCompany(t.Context(), w.Actor, w.Tenant.CompanyID))
	gone.Provision(gone.Tenant)
	w.round(nil)
	if got := w.host.asked(); len(got) > 0 {
		t.Errorf("calls %v", got)
	}
}

// S1-337, S1-338: three in a pass, the fourth in the next; with the budget used
// up none is begun, and one that was begun before is ended.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	w.deleted(6)
	w.round(reconcile.Result{retired: 3})
	w.host.fail = func(call, _ string, after bool) error {
		if call == "PUT" && after {
			w.now = w.now.Add(11 * time.Second)
		}
		return nil
	}
	w.round(reconcile.Result{retired: 1})
	result, err := w.lane.RunOnce(t.Context(), 0)
	if err != nil || len(result) > 0 {
		t.Errorf("without a budget: %v, %v", result, err)
	}
	w.host.fail = nil
	w.round(reconcile.Result{retired: 2})
	w.round(nil)
}

// S1-342: a week after the retirement the script is deleted without a request,
// once, and not a minute earlier.
func TestRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	gone, live := w.department(), w.department()
	gone.delete()
	w.round(reconcile.Result{retired: 1})
	began := w.now
	w.now = began.Add(Keep - time.Hour)
	w.round(nil)
	if !w.host.stands(gone.script()) {
		t.Error("the tombstone is gone")
	}
	w.host.asked()
	w.now = began.Add(Keep + time.Hour)
	w.round(reconcile.Result{removed: 1})
	if got := w.host.asked(); !slices.Equal(got, []string{"DELETE", "EXISTS"}) {
		t.Errorf("calls %v", got)
	}
	_, there := w.host.scripts[gone.script()]
	if there || w.host.scripts[live.script()] == "" || gone.recorded(ActionRemoved) != 1 || gone.recorded(ActionRetired) != 1 {
		t.Errorf("scripts %v", w.host.scripts)
	}
	w.round(nil)
	if got := w.host.asked(); len(got) > 0 {
		t.Errorf("a second round: %v", got)
	}
}

// S1-343: what went wrong is read at the provider and tried again: an upload
// that did not arrive, one whose answer was lost, a provider that cannot be
// read, a deletion that did nothing, and a record that could not be written.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call   string
		after  bool
		err    error
		result reconcile.Result // of the round in which it goes wrong
		puts   int              // in all
	}{
		"upload refused":            {"PUT", false, &provider.TerminalError{Code: "edge_host_capacity_exhausted"}, reconcile.Result{failed: 1}, 2},
		"upload fenced":             {"PUT", false, &provider.DeferredError{Code: "edge_host_fenced"}, reconcile.Result{failed: 1}, 2},
		"upload lost on its way":    {"PUT", false, &provider.UncertainError{Cause: errLost}, reconcile.Result{failed: 1}, 2},
		"answer to the upload lost": {"PUT", true, &provider.UncertainError{Cause: errLost}, reconcile.Result{retired: 1}, 1},
		"not readable":              {"GET", false, &provider.UnreadableError{Cause: errLost}, reconcile.Result{failed: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databasetest.MySQL(t))
			gone := w.department()
			gone.delete()
			once := true
			w.host.fail = func(call, _ string, after bool) error {
				if once && call == c.call && after == c.after {
					once = false
					return c.err
				}
				return nil
			}
			w.round(c.result)
			if c.result[failed] > 0 {
				if gone.recorded(ActionRetired) != 0 {
					t.Error("it is on record")
				}
				w.round(nil) // it rests, so that others get their turn
				w.now = w.now.Add(restAfterFailure)
				w.round(reconcile.Result{retired: 1})
			}
			puts := 0
			for _, call := range w.host.asked() {
				if call == "PUT" {
					puts++
				}
			}
			if puts != c.puts || !w.host.stands(gone.script()) || gone.recorded(ActionRetired) != 1 {
				t.Errorf("%d uploads, %d facts", puts, gone.recorded(ActionRetired))
			}
		})
	}
}

func TestFailedRemovals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call   string
		after  bool
		result reconcile.Result
	}{
		"deletion lost on its way":    {"DELETE", false, reconcile.Result{failed: 1}},
		"answer to the deletion lost": {"DELETE", true, reconcile.Result{removed: 1}},
		"not readable":                {"EXISTS", false, reconcile.Result{failed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databasetest.MySQL(t))
			gone := w.department()
			gone.delete()
			w.round(reconcile.Result{retired: 1})
			w.now = w.now.Add(Keep + time.Hour)
			once := true
			w.host.fail = func(call, _ string, after bool) error {
				if once && call == c.call && after == c.after {
					once = false
					return errLost
				}
				return nil
			}
			w.round(c.result)
			if c.result[failed] > 0 {
				if gone.recorded(ActionRemoved) != 0 {
					t.Error("it is on record")
				}
				w.now = w.now.Add(restAfterFailure)
				w.round(reconcile.Result{removed: 1})
			}
			if _, there := w.host.scripts[gone.script()]; there || gone.recorded(ActionRemoved) != 1 {
				t.Errorf("scripts %v, %d facts", w.host.scripts, gone.recorded(ActionRemoved))
			}
		})
	}
}

// A record whose commit's answer is lost is written once all the same.
func TestRecordLost(t *testing.T) {
	t.Parallel()
	for name, durable := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databasetest.MySQL(t))
			gone := w.department()
			gone.delete()
			once := true
			w.DB.AfterCommit(func(err error) error {
				if once && durable {
					once = false
					return errors.Join(err, errLost)
				}
				return err
			})
			if !durable {
				w.Exec("RENAME TABLE edge_worker_audit_logs TO elsewhere")
				_, err := w.lane.RunOnce(t.Context(), 10*time.Second)
				w.Exec("RENAME TABLE elsewhere TO edge_worker_audit_logs")
				if err == nil {
					t.Fatal("a round without its record")
				}
			} else {
				w.round(reconcile.Result{failed: 1})
			}
			w.now = w.now.Add(restAfterFailure)
			_, err := w.lane.RunOnce(t.Context(), 10*time.Second)
			w.must(err)
			if !w.host.stands(gone.script()) || gone.recorded(ActionRetired) != 1 {
				t.Errorf("%d facts", gone.recorded(ActionRetired))
			}
		})
	}
}

// A failing script does not keep the others out.
func TestFailuresDoNotStarve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	all := w.deleted(7)
	var broken sync.Map
	for _, one := range all[:4] {
		broken.Store(one.script(), true)
	}
	w.host.fail = func(_, script string, _ bool) error {
		if _, is := broken.Load(script); is {
			return &provider.UnreadableError{Cause: errLost}
		}
		return nil
	}
	for range 3 { // three a round
		_, _ = w.lane.RunOnce(t.Context(), 10*time.Second)
	}
	for i, one := range all {
		if got := w.host.stands(one.script()); got != (i >= 4) {
			t.Errorf("script %d: %t", i, got)
		}
	}
}

// Two replicas at once: each retirement is on record once, and the tombstones
// stand.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	all := w.deleted(9)
	var both sync.WaitGroup
	for _, lane := range []*Lane{w.lane, w.replica()} {
		both.Go(func() {
			for range 5 {
				_, err := lane.RunOnce(t.Context(), 10*time.Second)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	for _, one := range all {
		if !w.host.stands(one.script()) || one.recorded(ActionRetired) != 1 {
			t.Errorf("%d facts", one.recorded(ActionRetired))
		}
	}
}

// A Worker with a deployment on its way waits for its end; an uncertain one has
// none. A Worker that was never deployed costs the provider nothing.
func TestWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	pending, uncertain, fresh := w.department(), w.department(), w.tenant()
	pending.Admit(pending.Submit("two"))
	uncertain.Admit(uncertain.Submit("two"))
	w.Exec("UPDATE edge_worker_outbox SET status = 'uncertain' WHERE department_id = ? AND status = 'pending'", uncertain.Tenant.DepartmentID)
	fresh.Submit("one")
	for _, one := range []*world{pending, uncertain, fresh} {
		one.delete()
	}
	w.round(reconcile.Result{waiting: 1, retired: 2})
	if w.host.stands(pending.script()) || !w.host.stands(uncertain.script()) || fresh.recorded(ActionRetired) != 1 || len(w.host.asked()) != 3 {
		t.Errorf("scripts %v", w.host.scripts)
	}
	w.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE status = 'pending'")
	w.round(reconcile.Result{retired: 1})
	w.host.asked()
	w.now = w.now.Add(Keep + time.Hour)
	w.round(reconcile.Result{removed: 2}) // and not the one that was never there
	if pending.recorded(ActionRetired) != 1 || fresh.recorded(ActionRemoved) != 0 {
		t.Error("the records differ")
	}
}

// Another environment's namespace is none of ours.
func TestScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	gone := w.department()
	gone.delete()
	theirs := w.replica()
	theirs.p.Outbox = outbox.New(w.DB, outbox.CloudScope("another"))
	result, err := theirs.RunOnce(t.Context(), 10*time.Second)
	if err != nil || len(result) > 0 || len(w.host.asked()) > 0 {
		t.Errorf("%v, %v", result, err)
	}
	w.round(reconcile.Result{retired: 1})
}

func TestGateAndProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	gone := w.department()
	gone.delete()
	open := false
	w.lane.p.Gate = func(context.Context) (bool, error) { return open, nil }
	w.round(nil)
	open = true
	w.lane.p.Scripts = func() (Scripts, error) { return nil, errLost }
	if _, err := w.lane.RunOnce(t.Context(), 10*time.Second); !errors.Is(err, errLost) {
		t.Errorf("without a provider: %v", err)
	}
	w.lane.p.Scripts = func() (Scripts, error) { return w.host, nil }
	w.round(reconcile.Result{retired: 1})
}

// The walks see every row, page after page, and begin again; a page that holds
// more than a round takes is gone on with behind it.
func TestWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.MySQL(t))
	w.lane.pageSize = 3
	var gone []*world
	for n := range 8 {
		one := w.tenant()
		if n%2 == 0 {
			one.Submit("one")
			one.delete()
			gone = append(gone, one)
		}
	}
	for range 4 { // 9 departments and their rows
		_, err := w.lane.RunOnce(t.Context(), 10*time.Second)
		w.must(err)
	}
	for _, one := range gone {
		if one.recorded(ActionRetired) != 1 {
			t.Error("one was not found")
		}
	}
	late := w.department()
	late.delete()
	for range 8 {
		_, err := w.lane.RunOnce(t.Context(), 10*time.Second)
		w.must(err)
	}
	if late.recorded(ActionRetired) != 1 {
		t.Error("the walk did not begin again")
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(ago time.Duration, reason string) *models.AuditLog {
		return &models.AuditLog{CreatedAt: now.Add(-ago), ReasonCode: reason}
	}
	for name, c := range map[string]struct {
		retirement, removal *models.AuditLog
		want                step
	}{
		"new":            {nil, nil, stepRetire},
		"young":          {at(Keep-time.Second, ""), nil, stepNone},
		"a week old":     {at(Keep, ""), nil, stepRemove},
		"removed":        {at(2*Keep, ""), at(Keep, ""), stepNone},
		"never deployed": {at(2*Keep, ReasonNeverDeployed), nil, stepNone},
	} {
		if got := decide(c.retirement, c.removal, now); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
