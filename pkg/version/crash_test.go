package version_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// covered checks S0-89: every object that was written is spoken of by a version
// row or by a pending intent. It returns how many objects there are.
func covered(t *testing.T, p *plane.Plane, keys []string) int {
	t.Helper()
	n := 0
	for _, key := range keys {
		if stored(t, p, key) == nil {
			continue
		}
		n++
		spoken := false
		for _, v := range versions(t, p) {
			spoken = spoken || v.ProjectObjectKey == key || v.BundleObjectKey == key
		}
		for _, in := range intents(t, p) {
			spoken = spoken || (in.Status == models.OutboxPending && strings.Contains(*in.Payload, `"object_key":"`+key+`"`))
		}
		if !spoken {
			t.Errorf("nothing speaks of %s", key)
		}
	}
	return n
}

// S0-62, S0-72, S0-89: the store is lost at each step: before the first PUT,
// between the two, after both. Every object that then exists is spoken of.
func TestCrashAtTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		before, after int // the PUT before or after which the store is gone
		objects       int
	}{"before the first PUT": {1, 0, 0}, "after the first PUT": {0, 1, 1}, "before the second PUT": {2, 0, 1}, "after the second PUT": {0, 2, 2}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, p *plane.Plane) {
				h := &hooked{Backend: p.Backend}
				gone := false
				breaks := func(at int) func(int, string) error {
					return func(n int, _ string) error {
						if gone || n == at {
							gone = true
							return errLost
						}
						return nil
					}
				}
				h.before, h.after = breaks(c.before), breaks(c.after)
				_, err := over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
				if !errors.Is(err, version.ErrNoStorage) || len(versions(t, p)) != 0 {
					t.Errorf("%v", err)
				}
				if got := covered(t, p, h.puts); got != c.objects {
					t.Errorf("%d objects, want %d", got, c.objects)
				}
				rows := intents(t, p)
				if len(rows) != 1 || rows[0].Status != models.OutboxPending || rows[0].LastErrorCode != outbox.CodeNotCommitted { // S0-72
					t.Errorf("intents %+v", rows)
				}
			})
		})
	}
}

// S0-72, S3-85: a definite failure of the version's transaction rolls both back
// and makes the intent due at once.
func TestVersionDoesNotCommit(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		h := &hooked{Backend: p.Backend, after: func(n int, _ string) error {
			if n == 2 { // the department goes between the upload and the commit
				return p.Directory.DeleteDepartment(context.Background(), p.Actor, p.Tenant.DepartmentID)
			}
			return nil
		}}
		_, err := over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
		if fault.KindOf(err) != fault.NotFound || len(versions(t, p)) != 0 || p.Count("edge_workers") != 0 {
			t.Errorf("%v, %d versions", err, len(versions(t, p)))
		}
		rows := intents(t, p)
		if len(rows) != 1 || rows[0].Status != models.OutboxPending || rows[0].LastErrorCode != "submission_not_committed" ||
			rows[0].NextAttemptAt.After(rows[0].UpdatedAt) || covered(t, p, h.puts) != 2 {
			t.Errorf("intents %+v", rows)
		}
	})
}

// S0-63, S0-69, S0-89: an intent that a sweep has taken, or is done with, cannot
// be adopted, and then there is no version either. Whatever was written is
// spoken of again.
func TestTakenIntentStopsTheVersion(t *testing.T) {
	for name, columns := range map[string]string{
		"leased": "status = 'leased', lease_owner = 'sweep:1', attempts = 1", "completed": "status = 'completed', attempts = 1", "pending again": "attempts = 1",
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, p *plane.Plane) {
				h := &hooked{Backend: p.Backend, after: func(n int, _ string) error {
					if n == 2 {
						p.Exec("UPDATE edge_worker_outbox SET " + columns)
					}
					return nil
				}}
				_, err := over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
				if !errors.Is(err, outbox.ErrNotAdoptable) || len(versions(t, p)) != 0 {
					t.Errorf("%v", err)
				}
				row := intents(t, p)[0]
				if row.Status != models.OutboxPending || row.LeaseOwner != "" || row.NextAttemptAt.After(row.UpdatedAt) || covered(t, p, h.puts) != 2 {
					t.Errorf("%+v", row)
				}
			})
		})
	}
}

// second runs hook at the commit of the version, which is the second of a
// submission, and loses that commit's answer.
func second(p *plane.Plane, hook func()) {
	var commits atomic.Int64 // another transaction may commit at the same time
	p.DB.AfterCommit(func(err error) error {
		if commits.Add(1) != 2 {
			return err
		}
		if hook != nil {
			hook()
		}
		return errors.Join(err, errLost)
	})
}

// S0-63, S0-70, S0-71: after a lost acknowledgement of either commit, or of
// both, a committed submission is a success and its intent stays cancelled.
func TestAcknowledgementLost(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for name, lost := range map[string]func(commit int) bool{
			"the intent's": func(n int) bool { return n == 1 }, "the version's": func(n int) bool { return n == 2 },
			"both": func(n int) bool { return n <= 2 }, "all, the read-back's too": func(int) bool { return true },
		} {
			commits := 0
			p.DB.AfterCommit(func(err error) error {
				if commits++; lost(commits) {
					return errors.Join(err, errLost)
				}
				return err
			})
			v, err := p.Submitter.Submit(t.Context(), submission(t, p, name))
			p.DB.AfterCommit(nil)
			if err != nil || p.Version(v.ID).Revision != v.Revision || v.Revision == 0 {
				t.Errorf("%s: %v", name, err)
				continue
			}
			in, err := outbox.FindCleanup(p.DB.Read(t.Context()), p.Tenant, v.ArtifactID)
			if err != nil || in.Status != models.OutboxCancelled || in.VersionID != v.ID {
				t.Errorf("%s: intent %+v, %v", name, in, err)
			}
			if stored(t, p, v.ProjectObjectKey) == nil || stored(t, p, v.BundleObjectKey) == nil {
				t.Errorf("%s: an object is gone", name)
			}
		}
		if n := len(versions(t, p)); n != 4 {
			t.Errorf("%d versions", n)
		}
	})
}

// S0-70: a row that differs in any one pinned field is not taken as its own;
// the intent, which says "committed", keeps it from being called a failure.
func TestReadBackIsPinned(t *testing.T) {
	columns := []string{"created_by", "project_digest", "bundle_digest", "manifest_digest", "lock_digest", "dependency_digest", "sbom_digest",
		"static_data_digest", "project_object_key", "bundle_object_key", "project_size", "builder_policy", "company_id", "department_id"}
	each(t, func(t *testing.T, p *plane.Plane) {
		for _, column := range columns {
			second(p, func() {
				p.Exec("UPDATE edge_worker_versions SET " + column + " = CASE WHEN '" + column + "' = 'project_size' THEN '1' ELSE 'x' END WHERE revision = (SELECT MAX(latest_revision) FROM edge_workers)")
			})
			_, err := p.Submitter.Submit(t.Context(), submission(t, p, column))
			p.DB.AfterCommit(nil)
			if !errors.Is(err, version.ErrOutcomeUnknown) || !errors.Is(err, errLost) {
				t.Errorf("%s altered: %v", column, err)
			}
		}
		second(p, nil)
		_, err := p.Submitter.Submit(t.Context(), submission(t, p, "control"))
		p.DB.AfterCommit(nil)
		if err != nil {
			t.Errorf("control: %v", err)
		}
	})
}

// S0-70: an empty creator is pinned too: another's row is not taken as its own.
func TestReadBackPinsAnEmptyCreator(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := submission(t, p, "one")
		in.Actor.ID = ""
		second(p, func() { p.Exec("UPDATE edge_worker_versions SET created_by = 'somebody'") })
		_, err := p.Submitter.Submit(t.Context(), in)
		p.DB.AfterCommit(nil)
		if !errors.Is(err, version.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
	})
}

// S0-71, S0-72: no decision from the version alone. Neither row: it did not
// commit and the intent is made due. Version without a cancelled intent, or no
// intent at all: unknown, and nothing is made due.
func TestReadBackReadsBothRows(t *testing.T) {
	undo := "UPDATE edge_worker_outbox SET status = 'pending', version_id = '', last_error_code = ''"
	each(t, func(t *testing.T, p *plane.Plane) {
		for name, c := range map[string]struct {
			statements []string
			known      bool // that it did not commit
			code       string
		}{
			"neither":                   {[]string{"DELETE FROM edge_worker_versions", undo}, true, "submission_not_committed"},
			"version, pending intent":   {[]string{undo}, false, ""},
			"version, leased intent":    {[]string{"UPDATE edge_worker_outbox SET status = 'leased'"}, false, ""},
			"version, no intent":        {[]string{"DELETE FROM edge_worker_outbox"}, false, ""},
			"no version, its own taken": {[]string{"DELETE FROM edge_worker_versions"}, false, ""},
		} {
			p.Exec("DELETE FROM edge_worker_outbox")
			second(p, func() {
				for _, statement := range c.statements {
					p.Exec(statement)
				}
			})
			_, err := p.Submitter.Submit(t.Context(), submission(t, p, name))
			p.DB.AfterCommit(nil)
			if err == nil || errors.Is(err, version.ErrOutcomeUnknown) == c.known {
				t.Errorf("%s: %v", name, err)
			}
			for _, in := range intents(t, p) {
				if in.LastErrorCode != c.code {
					t.Errorf("%s: intent %+v", name, in)
				}
			}
		}
	})
}

// A commit that is still on its way is waited for: what reads back takes the
// intent's lock first.
func TestReadBackWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	waiting, inFlight, release := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	second(p, func() { // the server is in the middle of the commit: undo it and do it again in a transaction that stays open
		p.Exec("UPDATE edge_worker_versions SET company_id = 'not yet'")
		go func() {
			release <- p.DB.HeartbeatTx(context.Background(), func(tx *database.Tx) error {
				err := errors.Join(tx.Exec("UPDATE edge_worker_outbox SET updated_at = updated_at WHERE operation = 'artifact_cleanup'").Error,
					tx.Exec("UPDATE edge_worker_versions SET company_id = ?", p.Tenant.CompanyID).Error)
				close(inFlight)
				<-waiting
				return err
			})
		}()
		<-inFlight
	})
	go func() {
		<-inFlight
		_ = databasetest.LockWait(context.Background(), p.DB) // in vain: the submission then fails the test
		close(waiting)
	}()
	v, err := p.Submitter.Submit(t.Context(), submission(t, p, "one"))
	must(t, <-release)
	if err != nil || p.Version(v.ID).State != models.VersionReady {
		t.Errorf("a committed submission was reported as %v", err)
	}
}

// S0-62: the client goes away at each PUT; the submission is carried to its end.
func TestClientGoesAway(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &hooked{Backend: p.Backend, before: func(int, string) error { cancel(); return nil }}
		v, err := over(t, p, h).Submit(ctx, submission(t, p, "one"))
		if err != nil || p.Version(v.ID).State != models.VersionReady {
			t.Errorf("%v", err)
		}
		gone, stop := context.WithCancel(t.Context())
		stop()
		puts := len(h.puts)
		_, err = over(t, p, h).Submit(gone, submission(t, p, "two"))
		if !errors.Is(err, context.Canceled) || len(h.puts) != puts || len(intents(t, p)) != 1 {
			t.Errorf("gone before the start: %v", err)
		}
	})
}
