package maintenance_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/maintenance/maintenancetest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/tenancy"
)

// S3-47, S3-49, S2-043, S2-044, S2-072: the gate of every state of the row, in
// the order maintenance, restore, fence; a missing row fails closed (S3-55).
func TestGate(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, c := range []struct {
			state   models.MaintenanceState
			restore bool
			fence   string
			want    maintenance.Gate
		}{
			{"idle", false, "", maintenance.Open},
			{"idle", false, "f", maintenance.Fenced},
			{"idle", false, "ending:f", maintenance.Fenced},
			{"idle", true, "", maintenance.Restore},
			{"idle", true, "f", maintenance.Restore},
			{"active", false, "", maintenance.Maintenance},
			{"active", true, "f", maintenance.Maintenance},
		} {
			s.set("state = ?, restore_pending = ?, fence_id = ?", c.state, c.restore, c.fence)
			s.wantGate(c.want)
		}
		must(t, s.db.Read(t.Context()).Exec("DELETE FROM edge_worker_maintenance").Error)
		s.wantGate(maintenance.Maintenance)
		_, err := s.BeginRestore(t.Context(), operator)
		if f := fault.As(err); f.Kind != fault.Conflict || f.Code != "maintenance_row_missing" {
			t.Errorf("without a row: %v", err)
		}
		s.wantFacts()
	})
}

// S3-47, S3-48: one row for a scope, created once and left as it is by the next
// start; another scope has its own.
func TestPrepare(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.set("resync_epoch = 7, fence_id = 'f'")
		created, err := s.Prepare(t.Context())
		if row := s.row(); err != nil || created || row.ResyncEpoch != 7 || row.FenceID != "f" {
			t.Errorf("again: %v, %v, %+v", created, err, row)
		}
		other, err := maintenance.New(maintenance.Params{DB: s.db, Scope: "onprem:ba9876543210", Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		created, err = other.Prepare(t.Context())
		status, unread := other.Status(t.Context())
		if err = errors.Join(err, unread); err != nil || !created || status.Gate != maintenance.Open {
			t.Errorf("another scope: %v, %v, %+v", created, err, status)
		}
		s.wantGate(maintenance.Fenced)
	})
}

// Resync and restore begin and end once, whoever repeats them, and each is one
// fact; every resync has an epoch of its own.
func TestResyncAndRestore(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		for range 2 {
			status, err := s.BeginResync(ctx, operator)
			if err != nil || !status.Resyncing || status.ResyncEpoch != 1 {
				t.Errorf("resync: %+v, %v", status, err)
			}
		}
		_, _, err := s.BeginFence(ctx, operator)
		if fault.As(err).Code != "maintenance_resync_active" {
			t.Errorf("fence under a resync: %v", err)
		}
		for range 2 {
			_, err = s.EndResync(ctx, operator)
			must(t, err)
		}
		s.wantGate(maintenance.Open)
		for range 2 {
			status, err := s.BeginRestore(ctx, operator)
			if err != nil || !status.RestorePending {
				t.Errorf("restore: %+v, %v", status, err)
			}
		}
		s.wantGate(maintenance.Restore)
		_, _, err = s.BeginFence(ctx, operator)
		if fault.As(err).Code != "maintenance_restore_pending" {
			t.Errorf("fence under a restore: %v", err)
		}
		for range 2 {
			_, err = s.EndRestore(ctx, operator)
			must(t, err)
		}
		s.wantGate(maintenance.Open)
		status, err := s.BeginResync(ctx, operator)
		if err != nil || status.ResyncEpoch != 2 {
			t.Errorf("second resync: %+v, %v", status, err)
		}
		s.wantFacts("resync_begun", "resync_ended", "restore_begun", "restore_ended", "resync_begun")
	})
}

// The row comes first and the host second: at the moment of each call the intent
// is committed, and the gate opens only after the host's answer.
func TestFence(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var seen []string
		s.host.Seen = func(method string) {
			seen = append(seen, method+" "+string(s.gate())+" "+strconv.FormatBool(strings.HasPrefix(s.row().FenceID, "ending:")))
		}
		first := s.begin(true)
		if again := s.begin(true); again != first || s.host.Fence() != up(first.FenceID) {
			t.Errorf("again: %+v, %+v", again, s.host.Fence())
		}
		s.wantGate(maintenance.Fenced)
		s.reconcileQuietly()
		for range 2 {
			s.end(true)
		}
		s.wantGate(maintenance.Open)
		if s.host.Fence() != ended(first.FenceID) {
			t.Errorf("host %+v", s.host.Fence())
		}
		want := []string{"PUT fenced false", "PUT fenced false", "DELETE fenced true"}
		if len(seen) != 3 || seen[0] != want[0] || seen[1] != want[1] || seen[2] != want[2] {
			t.Errorf("seen %q", seen)
		}
		s.host.Seen = nil
		if second := s.begin(true); second.FenceID == first.FenceID {
			t.Error("an id was used twice")
		}
		s.wantFacts("fence_begun", "fence_ended", "fence_begun")
	})
}

func (s *site) reconcileQuietly() {
	s.t.Helper()
	seen := s.host.Seen
	s.host.Seen = nil
	s.reconcile(maintenance.Agree)
	s.host.Seen = seen
}

// S1-344: whatever call of the protocol is lost, on its way or on the way back,
// the next round confirms it, with each fact written once.
func TestLostCalls(t *testing.T) {
	for name, loss := range map[string]maintenancetest.Loss{"request": maintenancetest.Request, "answer": maintenancetest.Answer} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				s.host.Lose(loss)
				id := s.begin(false).FenceID
				s.wantGate(maintenance.Fenced)
				want := map[maintenancetest.Loss]maintenance.Confirmation{maintenancetest.Request: maintenance.BeginAgain, maintenancetest.Answer: maintenance.Agree}
				s.reconcile(want[loss])
				s.reconcile(maintenance.Agree)
				if s.host.Fence() != up(id) {
					t.Errorf("host %+v", s.host.Fence())
				}
				s.host.Lose(loss)
				if status := s.end(false); !status.FenceEnding || status.FenceID != id {
					t.Errorf("end: %+v", status)
				}
				s.wantGate(maintenance.Fenced)
				_, _, err := s.BeginFence(t.Context(), operator)
				if fault.As(err).Code != "maintenance_fence_ending" {
					t.Errorf("a fence over an ending one: %v", err)
				}
				want = map[maintenancetest.Loss]maintenance.Confirmation{maintenancetest.Request: maintenance.EndAgain, maintenancetest.Answer: maintenance.Clear}
				s.reconcile(want[loss])
				s.wantGate(maintenance.Open)
				s.reconcile(maintenance.Agree)
				s.wantFacts("fence_begun", "fence_ended")
			})
		})
	}
}

// A process that died between the row and the host leaves the same as a lost
// request: the next round goes on from the row alone.
func TestDiedBetweenRowAndHost(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.set("fence_id = 'one'")
		s.reconcile(maintenance.BeginAgain)
		s.set("fence_id = 'ending:one'")
		s.reconcile(maintenance.EndAgain)
		s.wantGate(maintenance.Open)
		s.set("fence_id = 'ending:never-begun'") // its late beginning would be refused by the host
		s.reconcile(maintenance.EndAgain)
		if s.host.Fence() != ended("never-begun") {
			t.Errorf("host %+v", s.host.Fence())
		}
	})
}

// The decision, row by row of its table.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  string
		host provider.Fence
		want maintenance.Confirmation
	}{
		{"", provider.Fence{}, maintenance.Agree},
		{"", ended("x"), maintenance.Agree},
		{"", up("x"), maintenance.Disagree},
		{"id", up("id"), maintenance.Agree},
		{"id", ended("id"), maintenance.Disagree},
		{"id", provider.Fence{}, maintenance.BeginAgain},
		{"id", ended("older"), maintenance.BeginAgain},
		{"id", up("x"), maintenance.Disagree},
		{"id", provider.Fence{Active: "x", Ended: "id"}, maintenance.Disagree},
		{"ending:id", up("id"), maintenance.EndAgain},
		{"ending:id", provider.Fence{}, maintenance.EndAgain},
		{"ending:id", ended("older"), maintenance.EndAgain},
		{"ending:id", ended("id"), maintenance.Clear},
		{"ending:id", up("x"), maintenance.Disagree},
	} {
		if got := maintenance.Confirm(c.row, c.host); got != c.want {
			t.Errorf("row %q, host %+v: %s, want %s", c.row, c.host, got, c.want)
		}
	}
}

// A database or a host that was restored from a backup closes the gate once; the
// restore's end leaves both without the overtaken fence.
func TestRestoredFromABackup(t *testing.T) {
	for name, c := range map[string]struct {
		row   string
		host  provider.Fence
		facts []string
		left  provider.Fence
	}{
		"database from the backup of its fence": {"one", ended("one"), []string{"fence_ended"}, ended("one")},
		"database older than the host's fence":  {"", up("two"), []string{"fence_ended"}, ended("two")},
		"another fence":                         {"one", up("two"), []string{"fence_ended"}, ended("two")},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				s.set("fence_id = ?", c.row)
				s.host.Set(c.host)
				s.reconcile(maintenance.Disagree)
				s.wantGate(maintenance.Restore)
				s.reconcile(maintenance.Agree) // a person decides now
				s.wantFacts("restore_begun")
				if s.host.Fence() != c.host || s.row().FenceID != c.row {
					t.Errorf("something was changed: %+v, %q", s.host.Fence(), s.row().FenceID)
				}
				_, err := s.EndRestore(t.Context(), operator)
				must(t, err)
				s.wantGate(maintenance.Open)
				if s.host.Fence() != c.left {
					t.Errorf("host %+v", s.host.Fence())
				}
				s.reconcile(maintenance.Agree)
				s.wantFacts(append([]string{"restore_begun", "restore_ended"}, c.facts...)...)
			})
		})
	}
}

// The end of a restore keeps a backup that is being made, and is refused while
// the host cannot be asked.
func TestEndOfRestore(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		id := s.begin(true).FenceID
		_, err := s.BeginRestore(t.Context(), operator)
		must(t, err)
		deaf := newSite(t, s.db, nil)
		deaf.host.Seen = func(string) { panic("nobody") }
		_, err = deaf.EndRestore(t.Context(), operator)
		if f := fault.As(err); f.Kind != fault.Unavailable || f.Code != "edge_host_unavailable" {
			t.Errorf("without a host: %v", err)
		}
		s.wantGate(maintenance.Restore)
		status, err := s.EndRestore(t.Context(), operator)
		if err != nil || status.FenceID != id || status.FenceEnding || s.host.Fence() != up(id) {
			t.Errorf("%+v, %v, %+v", status, err, s.host.Fence())
		}
		s.wantGate(maintenance.Fenced)
	})
}

// What changes while the host is asked belongs to the next round: a fence that
// begins in that moment is not taken for one of another history.
func TestChangedWhileAsking(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var once sync.Once
		s.host.Seen = func(string) {
			once.Do(func() {
				s.set("fence_id = 'new', updated_at = ?", s.row().UpdatedAt.Add(1e9))
				s.host.Set(up("new"))
			})
		}
		s.reconcile(maintenance.Agree)
		s.wantGate(maintenance.Fenced)
		s.wantFacts()
		s.reconcile(maintenance.Agree)
	})
}

// A whole fence that begins and ends while the host is asked leaves the row with
// the values that it had, and is told by the row's time alone.
func TestBegunAndEndedWhileAsking(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var once sync.Once
		s.host.Seen = func(string) {
			once.Do(func() {
				s.set("updated_at = ?", s.row().UpdatedAt.Add(time.Second))
				s.host.Set(up("short"))
			})
		}
		s.reconcile(maintenance.Agree)
		s.wantGate(maintenance.Open)
		s.wantFacts()
		s.reconcile(maintenance.Disagree) // the control: it is still up for a row that stands still
		s.wantGate(maintenance.Restore)
	})
}

// Many operators at once: each change is made once.
func TestOperatorsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				_, _, err := s.BeginFence(context.Background(), operator)
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		s.wantFacts("fence_begun")
		for range 4 {
			group.Go(func() {
				_, _, err := s.EndFence(context.Background(), operator)
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		s.wantGate(maintenance.Open)
		s.wantFacts("fence_begun", "fence_ended")
	})
}

// Whichever commit of the whole story loses its acknowledgement, it is found and
// not made again: the same facts, each once.
func TestLostAcknowledgements(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for lost := range 8 {
			must(t, s.db.Read(t.Context()).Exec("DELETE FROM edge_worker_audit_logs").Error)
			commits := 0
			s.db.AfterCommit(func(err error) error {
				if commits++; commits-1 == lost {
					return errors.Join(err, errors.New("connection lost"))
				}
				return err
			})
			s.begin(true)
			s.end(true)
			for _, change := range []func(context.Context, audit.Actor) (maintenance.Status, error){s.BeginResync, s.EndResync, s.BeginRestore, s.EndRestore} {
				_, err := change(t.Context(), operator)
				must(t, err)
			}
			s.db.AfterCommit(nil)
			if commits != 7 {
				t.Errorf("%d commits", commits)
			}
			s.wantGate(maintenance.Open)
			s.wantFacts("fence_begun", "fence_ended", "resync_begun", "resync_ended", "restore_begun", "restore_ended")
		}
	})
}

// reader is a provider that holds everything but what a test says.
type reader map[string]error

func (r reader) ReadBack(_ context.Context, release provider.Release) error {
	if release.Namespace != scope || release.BundleDigest == "" || release.CompatibilityDate == "" {
		return errors.New("not the release of the row")
	}
	return r[release.ScriptName]
}

// Every deployed Worker of the scope is read back once, page by page; those of
// another scope and those without a deployment are not asked for.
func TestDifferences(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		held := reader{"dw-003": &provider.MismatchError{Detail: "tag"}, "dw-055": &provider.UnreadableError{Cause: errors.New("reset")}, "dw-070": errors.New("never asked")}
		s, directory := newSite(t, db, held), tenancy.New(db)
		must(t, directory.PutCompany(t.Context(), operator, "c", "A company"))
		for i := range 72 {
			name, namespace, current := "dw-"+strconv.Itoa(1000 + i)[1:], scope, uuid.NewString()
			switch i {
			case 70:
				namespace = "onprem:ba9876543210"
			case 71:
				current = ""
			}
			tenant := models.Tenant{CompanyID: "c", DepartmentID: name}
			must(t, directory.PutDepartment(t.Context(), operator, tenant, "A department"))
			must(t, db.Read(t.Context()).Create(&models.Worker{
				ID: name, CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID, ScriptName: name, Status: models.WorkerActive,
				CurrentVersionID: current, ServingKind: "legacy", ServingNamespace: namespace,
			}).Error)
			if current != "" {
				must(t, db.Read(t.Context()).Create(&models.Version{
					ID: current, WorkerID: name, CompanyID: "c", DepartmentID: name, Revision: 1, State: models.VersionDeployed,
					Language: "javascript", BundleDigest: "d", CompatibilityDate: "2026-01-01",
				}).Error)
			}
		}
		first, err := s.Differences(t.Context(), "")
		must(t, err)
		second, err := s.Differences(t.Context(), first.Next)
		must(t, err)
		if first.Checked != 50 || first.Next != "dw-049" || second.Checked != 20 || second.Next != "" {
			t.Errorf("%+v, %+v", first, second)
		}
		if len(first.Items) != 1 || first.Items[0].WorkerID != "dw-003" || first.Items[0].Unreadable || first.Items[0].Detail != "tag" {
			t.Errorf("%+v", first.Items)
		}
		if len(second.Items) != 1 || second.Items[0].WorkerID != "dw-055" || !second.Items[0].Unreadable {
			t.Errorf("%+v", second.Items)
		}
	})
}
