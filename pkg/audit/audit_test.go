package audit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
)

func each(t *testing.T, run func(t *testing.T, db *database.DB)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, run)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fact() audit.Fact {
	return audit.Fact{
		ID: "fact-1", Tenant: models.Tenant{CompanyID: "c1", DepartmentID: "d1"},
		Actor:  audit.Actor{Type: "user", ID: "user:x", Method: "bearer_jwt", RequestID: "req-1"},
		Action: "version.submitted", ResourceType: "edge_worker_version", ResourceID: "v1", Result: audit.Succeeded, ReasonCode: "none", Digest: "dd",
	}
}

func write(db *database.DB, f audit.Fact) error {
	return db.Tx(context.Background(), func(tx *database.Tx) error { return audit.Write(tx, f) })
}

func facts(t *testing.T, db *database.DB) []models.AuditLog {
	t.Helper()
	var rows []models.AuditLog
	must(t, db.Read(t.Context()).Order("id").Find(&rows).Error)
	return rows
}

// S3-66, S3-58: each bounded text at its length is stored as it is and one
// longer is cut to the length, counted in characters of any width.
func TestTruncation(t *testing.T) {
	columns := []struct {
		name  string
		limit int
		set   func(*audit.Fact, string)
		get   func(models.AuditLog) string
	}{
		{"actor_type", 32, func(f *audit.Fact, s string) { f.Actor.Type = s }, func(l models.AuditLog) string { return l.ActorType }},
		{"auth_method", 32, func(f *audit.Fact, s string) { f.Actor.Method = s }, func(l models.AuditLog) string { return l.AuthMethod }},
		{"action", 128, func(f *audit.Fact, s string) { f.Action = s }, func(l models.AuditLog) string { return l.Action }},
		{"resource_type", 64, func(f *audit.Fact, s string) { f.ResourceType = s }, func(l models.AuditLog) string { return l.ResourceType }},
		{"result", 32, func(f *audit.Fact, s string) { f.Result = s }, func(l models.AuditLog) string { return l.Result }},
		{"reason_code", 64, func(f *audit.Fact, s string) { f.ReasonCode = s }, func(l models.AuditLog) string { return l.ReasonCode }},
		{"digest", 64, func(f *audit.Fact, s string) { f.Digest = s }, func(l models.AuditLog) string { return l.Digest }},
	}
	each(t, func(t *testing.T, db *database.DB) {
		for _, c := range columns {
			for _, letter := range []string{"a", "é", "部", "🙂"} {
				for _, n := range []int{0, c.limit, c.limit + 1, 4 * c.limit} {
					f := fact()
					f.ID = audit.ID(c.name, letter, strings.Repeat("i", n))
					c.set(&f, strings.Repeat(letter, n))
					must(t, write(db, f))
					var row models.AuditLog
					must(t, db.Read(t.Context()).Where("id = ?", f.ID).Take(&row).Error)
					if want := strings.Repeat(letter, min(n, c.limit)); c.get(row) != want {
						t.Errorf("%s, %d of %s: stored %q", c.name, n, letter, c.get(row))
					}
					must(t, write(db, f)) // the cut fact is the same fact again
				}
			}
		}
	})
}

// S3-67, D19: an id at its length is stored as given; a longer one is an error
// before the write, never shortened.
func TestIDsAreNotTruncated(t *testing.T) {
	columns := []struct {
		name  string
		limit int
		set   func(*audit.Fact, string)
		get   func(models.AuditLog) string
	}{
		{"audit id", 64, func(f *audit.Fact, s string) { f.ID = s }, func(l models.AuditLog) string { return l.ID }},
		{"company id", 64, func(f *audit.Fact, s string) { f.Tenant.CompanyID = s }, func(l models.AuditLog) string { return l.CompanyID }},
		{"department id", 64, func(f *audit.Fact, s string) { f.Tenant.DepartmentID = s }, func(l models.AuditLog) string { return l.DepartmentID }},
		{"actor id", 128, func(f *audit.Fact, s string) { f.Actor.ID = s }, func(l models.AuditLog) string { return l.ActorID }},
		{"resource id", 64, func(f *audit.Fact, s string) { f.ResourceID = s }, func(l models.AuditLog) string { return l.ResourceID }},
		{"request id", 128, func(f *audit.Fact, s string) { f.Actor.RequestID = s }, func(l models.AuditLog) string { return l.RequestID }},
	}
	each(t, func(t *testing.T, db *database.DB) {
		for _, c := range columns {
			for _, letter := range []string{"a", "部"} {
				f := fact()
				f.ID = audit.ID(c.name, letter)
				id := strings.Repeat(letter, c.limit)
				c.set(&f, id+letter)
				before := len(facts(t, db))
				if err := write(db, f); err == nil || !strings.Contains(err.Error(), c.name) || len(facts(t, db)) != before {
					t.Errorf("%s of %d: %v", c.name, c.limit+1, err)
				}
				c.set(&f, id)
				must(t, write(db, f))
				var row models.AuditLog
				must(t, db.Read(t.Context()).Where("id = ?", f.ID).Take(&row).Error)
				if c.get(row) != id {
					t.Errorf("%s stored as %q", c.name, c.get(row))
				}
			}
		}
		nameless := fact()
		nameless.ID = ""
		if err := write(db, nameless); err == nil {
			t.Error("a fact without an id")
		}
	})
}

// S3-65, S3-57, S1-165, S1-166: the same id with the same facts is one row, also
// from another request; any fact altered is refused with the exact text and
// the first row stays.
func TestIdempotency(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		must(t, write(db, fact()))
		first := facts(t, db)[0]
		again := fact()
		again.Actor.RequestID = "req-2"
		must(t, write(db, again))
		for name, change := range map[string]func(*audit.Fact){
			"company": func(f *audit.Fact) { f.Tenant.CompanyID = "x" }, "department": func(f *audit.Fact) { f.Tenant.DepartmentID = "x" },
			"actor type": func(f *audit.Fact) { f.Actor.Type = "x" }, "actor": func(f *audit.Fact) { f.Actor.ID = "x" }, "method": func(f *audit.Fact) { f.Actor.Method = "x" },
			"action": func(f *audit.Fact) { f.Action = "x" }, "resource type": func(f *audit.Fact) { f.ResourceType = "x" }, "resource": func(f *audit.Fact) { f.ResourceID = "x" },
			"result": func(f *audit.Fact) { f.Result = audit.Failed }, "reason": func(f *audit.Fact) { f.ReasonCode = "x" }, "digest": func(f *audit.Fact) { f.Digest = "x" },
			"letter case": func(f *audit.Fact) { f.Digest = "DD" },
		} {
			drifted := fact()
			change(&drifted)
			err := write(db, drifted)
			if !errors.Is(err, audit.ErrDrift) || err.Error() != "audit id is already bound to different facts" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if rows := facts(t, db); len(rows) != 1 || rows[0].RequestID != first.RequestID || !rows[0].CreatedAt.Equal(first.CreatedAt) || rows[0].Digest != first.Digest {
			t.Errorf("%+v", rows)
		}
		other := fact()
		other.ID = "fact-2"
		must(t, write(db, other))
		if len(facts(t, db)) != 2 {
			t.Error("control: another id is another fact")
		}
	})
}

// S3-84: the writer never commits.
func TestWriteDoesNotCommit(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		stop := errors.New("rolled back")
		err := db.Tx(t.Context(), func(tx *database.Tx) error { return errors.Join(audit.Write(tx, fact()), stop) })
		if !errors.Is(err, stop) || len(facts(t, db)) != 0 {
			t.Errorf("%v", err)
		}
		must(t, write(db, fact()))
		if len(facts(t, db)) != 1 {
			t.Error("control")
		}
	})
}

// S3-65: writers of the same fact at once all succeed and leave one row.
func TestConcurrentWriters(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		var both, wg sync.WaitGroup
		both.Add(2)
		for range 2 {
			wg.Go(func() {
				first := true
				err := db.Tx(context.Background(), func(tx *database.Tx) error {
					if first && tx.Name() == "mysql" { // SQLite has one writer at a time
						first = false
						both.Done()
						both.Wait()
					}
					return audit.Write(tx, fact())
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(facts(t, db)) != 1 {
			t.Errorf("%d rows", len(facts(t, db)))
		}
	})
}

// A derived id depends on each part and on where one part ends.
func TestID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, parts := range [][]string{{}, {""}, {"a"}, {"a", "b"}, {"ab"}, {"b", "a"}, {"a", "", "b"}} {
		id := audit.ID(parts...)
		if seen[id] || len(id) != 64 {
			t.Errorf("%q: %s", parts, id)
		}
		seen[id] = true
	}
	parts := []string{"a", "b"}
	if first := audit.ID("a", "b"); first != audit.ID(parts...) {
		t.Error("not stable")
	}
	if a := audit.System("sweep"); a.Type != "system" || a.ID != "system:sweep" || a.Method != "internal" {
		t.Errorf("%+v", a)
	}
}
