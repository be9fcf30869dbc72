package database_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/teamsync/edge-workers/models"
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

// put inserts a company outside the transaction under test.
func put(t *testing.T, db *database.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must(t, db.Read(t.Context()).Create(&models.Company{ID: id, Name: "a", CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error)
	}
}

func companies(t *testing.T, db *database.DB) []models.Company {
	t.Helper()
	var rows []models.Company
	must(t, db.Read(context.WithoutCancel(t.Context())).Order("id").Find(&rows).Error)
	return rows
}

// The clock is the database's: MariaDB's session clock can be set, and Now
// follows it.
func TestClockIsTheDatabases(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
		must(t, tx.Exec("SET timestamp = 1000000000.123456").Error)
		now, err := tx.Now()
		must(t, tx.Exec("SET timestamp = DEFAULT").Error)
		if want := time.Date(2001, 9, 9, 1, 46, 40, 123456000, time.UTC); err != nil || !now.Equal(want) || now.Location() != time.UTC {
			t.Errorf("%v, %v", now, err)
		}
		return nil
	}))
}

// Now lies between two readings of the engine's own clock, in UTC.
func TestClockIsInUTC(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
			clock := map[bool]string{true: "SELECT 'at ' || strftime('%Y-%m-%d %H:%M:%f','now')", false: "SELECT CONCAT('at ', UTC_TIMESTAMP(6))"}[tx.Name() == "sqlite"]
			var before, after string
			must(t, tx.Raw(clock).Scan(&before).Error)
			now, err := tx.Now()
			must(t, err)
			must(t, tx.Raw(clock).Scan(&after).Error)
			text := now.Format("at 2006-01-02 15:04:05.000000")
			if text < before || text > after+"999" || now.Location() != time.UTC {
				t.Errorf("%s is not between %s and %s", text, before, after)
			}
			return nil
		}))
	})
}

// A DSN cannot switch off what correctness depends on: UTC, found rows and a
// bounded lock wait.
func TestSessionIsFixed(t *testing.T) {
	t.Parallel()
	cfg, err := mysql.ParseDSN(databasetest.MySQLURL(t))
	must(t, err)
	cfg.ParseTime, cfg.ClientFoundRows = false, false
	cfg.Params = map[string]string{"time_zone": "'+05:00'", "innodb_lock_wait_timeout": "77"}
	db := databasetest.Open(t, database.Params{URL: cfg.FormatDSN()})
	must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
		var got struct{ Zone, Collation, Wait string }
		must(t, tx.Raw("SELECT @@time_zone AS zone, @@collation_connection AS collation, @@innodb_lock_wait_timeout AS wait").Scan(&got).Error)
		if got.Zone != "+00:00" || got.Collation != "utf8mb4_bin" || got.Wait != "5" {
			t.Errorf("%+v", got)
		}
		return nil
	}))
	put(t, db, "c1")
	same := db.Read(t.Context()).Model(&models.Company{}).Where("id = 'c1'").UpdateColumn("name", "a")
	if same.Error != nil || same.RowsAffected != 1 {
		t.Errorf("found rows: %d, %v", same.RowsAffected, same.Error)
	}
}

// An UPDATE that writes equal values counts its row; one that finds none is a
// stale transition, never a quiet success.
func TestExactly(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		put(t, db, "c1", "c2")
		rename := func(where string) error {
			return database.Exactly(db.Read(t.Context()).Model(&models.Company{}).Where(where).UpdateColumn("name", "a"), "rename")
		}
		if err := rename("id = 'c1'"); err != nil {
			t.Errorf("equal values: %v", err)
		}
		for _, where := range []string{"id = 'nobody'", "id IN ('c1', 'c2')"} {
			if err := rename(where); !errors.Is(err, models.ErrStaleTransition) {
				t.Errorf("%s: %v", where, err)
			}
		}
		if err := rename("no_such_column = 1"); err == nil || errors.Is(err, models.ErrStaleTransition) {
			t.Errorf("a broken statement: %v", err)
		}
	})
}

// A time with nanoseconds is stored in the column's microseconds and found
// again by the value that was read (MariaDB would otherwise round, and scan
// the table instead of the index).
func TestTimePrecision(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
		must(t, db.Read(t.Context()).Create(&models.Company{ID: "c1", CreatedAt: at, UpdatedAt: at}).Error)
		read := companies(t, db)[0].CreatedAt
		_, offset := read.Zone()
		if !read.Truncate(time.Microsecond).Equal(at.Truncate(time.Microsecond)) || offset != 0 {
			t.Errorf("stored %v, read %v", at, read)
		}
		if db.Read(t.Context()).Name() == "mysql" && read.Nanosecond() != 123456000 {
			t.Errorf("not truncated but %d ns", read.Nanosecond())
		}
		var n int64
		must(t, db.Read(t.Context()).Model(&models.Company{}).Where("created_at = ?", read).Count(&n).Error)
		if n != 1 {
			t.Errorf("%d rows by the value that was read", n)
		}
	})
}

// Stored times compare as times on both engines, also where one has a fraction
// of a second and the other has none.
func TestTimesCompare(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		whole := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		times := []time.Time{whole, whole.Add(time.Microsecond), whole.Add(100 * time.Millisecond), whole.Add(120 * time.Millisecond), whole.Add(time.Second)}
		for i, at := range times {
			must(t, db.Read(t.Context()).Create(&models.Company{ID: fmt.Sprint(i), CreatedAt: at, UpdatedAt: at}).Error)
		}
		for i, at := range times {
			var n int64
			must(t, db.Read(t.Context()).Model(&models.Company{}).Where("created_at <= ?", at).Count(&n).Error)
			if n != int64(i+1) {
				t.Errorf("%d rows up to %v, want %d", n, at, i+1)
			}
		}
	})
}

func TestErrorClasses(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		put(t, db, "c1")
		ctx := t.Context()
		must(t, db.Read(ctx).Create(&models.Department{ID: "d1", CompanyID: "c1", CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error)
		worker := func(id, script string, status models.WorkerStatus) error {
			return db.Read(ctx).Create(&models.Worker{ID: id, CompanyID: "c1", DepartmentID: "d1", ScriptName: script, Status: status,
				CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error
		}
		check := worker("w0", "s0", "moon")
		must(t, worker("w1", "s1", models.WorkerDraft))
		key := db.Read(ctx).Create(&models.Company{ID: "c1", CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error
		unique := worker("w2", "s2", models.WorkerDraft)
		foreign := db.Read(ctx).Create(&models.Department{ID: "d2", CompanyID: "nobody", CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error
		for _, c := range []struct {
			name                          string
			err                           error
			duplicate, check, unavailable bool
		}{
			{"a second row of a key", key, true, false, false},
			{"a second row of a unique index", unique, true, false, false},
			{"a CHECK", check, false, true, false},
			{"a foreign key", foreign, false, false, false},
			{"wrapped", fmt.Errorf("while: %w", unique), true, false, false},
		} {
			if c.err == nil || database.IsDuplicate(c.err) != c.duplicate || database.IsCheckViolation(c.err) != c.check || database.IsUnavailable(c.err) != c.unavailable {
				t.Errorf("%s: %v", c.name, c.err)
			}
		}
		must(t, db.Ping(ctx))
	})
}

// What says nothing about the work itself is unavailability.
func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	_, gone := database.Open(t.Context(), database.Params{URL: "root@unix(" + filepath.Join(t.TempDir(), "nobody.sock") + ")/x"})
	if gone == nil || !database.IsUnavailable(gone) {
		t.Errorf("no server: %v", gone)
	}
	for number, want := range map[uint16]bool{
		1040: true, 1053: true, 1203: true, 1205: true, 1213: true, 1020: true, 1317: true, 1927: true,
		1062: false, 1064: false, 1054: false, 1406: false, 1451: false, 4025: false,
	} {
		if got := database.IsUnavailable(fmt.Errorf("x: %w", &mysql.MySQLError{Number: number})); got != want {
			t.Errorf("%d: %v", number, got)
		}
	}
	if database.IsUnavailable(nil) || database.IsUnavailable(errors.New("a defect")) {
		t.Error("a plain error is not unavailability")
	}
}

// Heartbeats have connections of their own: work that holds every connection
// cannot make an owner lose its lease.
func TestHeartbeatsWhileThePoolIsUsedUp(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	put(t, db, "c1")
	pool, err := db.Read(t.Context()).DB()
	must(t, err)
	size := pool.Stats().MaxOpenConnections
	held, release, done := make(chan struct{}, size), make(chan struct{}), make(chan error, size)
	for range size {
		go func() {
			done <- db.Tx(context.Background(), func(*database.Tx) error { held <- struct{}{}; <-release; return nil })
		}()
	}
	for range size {
		<-held
	}
	if stats := pool.Stats(); stats.InUse != size {
		t.Errorf("%d of %d connections in use", stats.InUse, size)
	}
	err = db.HeartbeatTx(t.Context(), func(tx *database.Tx) error {
		return database.Exactly(tx.Model(&models.Company{}).Where("id = 'c1'").UpdateColumn("name", "beat"), "beat")
	})
	close(release)
	for range size {
		must(t, <-done)
	}
	if err != nil || companies(t, db)[0].Name != "beat" {
		t.Errorf("heartbeat: %v", err)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"sqlite:", "root@tcp(", "root@unix(/x)/y?parseTime=maybe"} {
		_, err := database.Open(t.Context(), database.Params{URL: url})
		if err == nil {
			t.Errorf("%q was opened", url)
		}
	}
	for _, name := range []string{"plain.db", "a#b?c%20d.db"} {
		folder := t.TempDir()
		databasetest.Open(t, database.Params{URL: "sqlite:" + filepath.Join(folder, name)})
		found, err := filepath.Glob(filepath.Join(folder, "*.db"))
		if err != nil || len(found) != 1 || filepath.Base(found[0]) != name {
			t.Errorf("%s became %v, %v", name, found, err)
		}
	}
}

// Statements go to the trace and nowhere else.
func TestTrace(t *testing.T) {
	t.Parallel()
	var seen []string
	db := databasetest.Bare(t, database.Params{URL: databasetest.SQLiteURL(t), Trace: func(sql string) { seen = append(seen, sql) }})
	must(t, db.Read(t.Context()).Exec("SELECT 1").Error)
	if len(seen) == 0 || seen[len(seen)-1] != "SELECT 1" {
		t.Errorf("traced %v", seen)
	}
}

// A frozen process loses its transaction, and with it its row locks, long
// before the server's own idle time.
func TestIdleTransactionsEnd(t *testing.T) {
	t.Parallel()
	var seconds int
	must(t, databasetest.MySQL(t).Read(t.Context()).Raw("SELECT @@idle_transaction_timeout").Scan(&seconds).Error)
	if seconds != 60 {
		t.Errorf("idle_transaction_timeout is %d s", seconds)
	}
}
