package database_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
)

var errRefused = errors.New("refused by the work")

func insert(tx *database.Tx, id string) error {
	return tx.Create(&models.Company{ID: id, CreatedAt: time.Now(), UpdatedAt: time.Now()}).Error
}

// A definite failure rolls back, keeps its error and is not run again; so does
// a panic, after which the connection is as good as new.
func TestDefiniteFailure(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		runs := 0
		err := db.Tx(t.Context(), func(tx *database.Tx) error { runs++; must(t, insert(tx, "c1")); return errRefused })
		var unknown *database.CommitUnknownError
		if !errors.Is(err, errRefused) || errors.As(err, &unknown) || runs != 1 {
			t.Errorf("%v after %d runs", err, runs)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = db.Tx(t.Context(), func(tx *database.Tx) error { must(t, insert(tx, "c2")); panic("a defect") })
		}()
		if rows := companies(t, db); len(rows) != 0 {
			t.Errorf("rows %v", rows)
		}
		must(t, db.Tx(t.Context(), func(tx *database.Tx) error { return insert(tx, "c3") }))
		if rows := companies(t, db); len(rows) != 1 {
			t.Errorf("control: rows %v", rows)
		}
	})
}

// A commit whose answer is lost is unknown, whatever became of it; it is not
// run again.
func TestCommitUnknown(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		lost := errors.New("connection reset")
		runs := 0
		db.AfterCommit(func(err error) error { return errors.Join(err, lost) })
		err := db.Tx(t.Context(), func(tx *database.Tx) error { runs++; return insert(tx, "c1") })
		db.AfterCommit(nil)
		var unknown *database.CommitUnknownError
		if !errors.As(err, &unknown) || !errors.Is(err, lost) || runs != 1 {
			t.Errorf("%v after %d runs", err, runs)
		}
		if rows := companies(t, db); len(rows) != 1 {
			t.Errorf("the hook undid the commit: %v", rows)
		}
		must(t, db.Tx(t.Context(), func(tx *database.Tx) error { return insert(tx, "c2") }))
	})
}

// A real lost connection at COMMIT is unknown too: the server ends it between
// the last statement and the commit.
func TestCommitOnABrokenConnection(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	err := db.Tx(t.Context(), func(tx *database.Tx) error {
		var id int64
		must(t, tx.Raw("SELECT CONNECTION_ID()").Scan(&id).Error)
		must(t, insert(tx, "c1"))
		return db.Read(t.Context()).Exec("KILL ?", id).Error
	})
	var unknown *database.CommitUnknownError
	if !errors.As(err, &unknown) || !database.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
	if rows := companies(t, db); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
}

// A commit that the server refuses as contended is no unknown outcome: the
// whole transaction runs again, six times at most.
func TestCommitContention(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	put(t, db, "c1")
	for _, c := range []struct{ refusals, runs int }{{1, 2}, {5, 6}, {6, 6}} {
		refused, runs := 0, 0
		db.AfterCommit(func(error) error {
			if refused++; refused <= c.refusals {
				return &mysql.MySQLError{Number: 1213}
			}
			return nil
		})
		err := db.Tx(t.Context(), func(*database.Tx) error { runs++; return nil })
		db.AfterCommit(nil)
		var unknown *database.CommitUnknownError
		if runs != c.runs || (err != nil) != (c.refusals == 6) || errors.As(err, &unknown) {
			t.Errorf("%d refusals: %d runs, %v", c.refusals, runs, err)
		}
	}
}

func touch(tx *database.Tx, id, name string) error {
	return database.Exactly(tx.Model(&models.Company{}).Where("id = ?", id).UpdateColumn("name", name), "touch")
}

// A real deadlock: the victim runs again as a whole and both end well.
func TestDeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	put(t, db, "c1", "c2")
	var runs atomic.Int32
	var both, wg sync.WaitGroup
	both.Add(2)
	for _, order := range [][2]string{{"c1", "c2"}, {"c2", "c1"}} {
		wg.Go(func() {
			met := false
			err := db.Tx(context.Background(), func(tx *database.Tx) error {
				runs.Add(1)
				err := touch(tx, order[0], "by "+order[0])
				if err != nil {
					return err
				}
				if !met { // each holds its first row before either asks for the second
					met = true
					both.Done()
					both.Wait()
				}
				return touch(tx, order[1], "by "+order[0])
			})
			if err != nil {
				t.Errorf("%v: %v", order, err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 3 {
		t.Errorf("%d runs instead of two and a repetition", runs.Load())
	}
	if rows := companies(t, db); rows[0].Name != rows[1].Name {
		t.Errorf("the two transactions are mixed: %q, %q", rows[0].Name, rows[1].Name)
	}
}

// hold runs a transaction that locks a row until release is closed.
func hold(t *testing.T, db *database.DB, id string) (chan struct{}, chan error) {
	t.Helper()
	held, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.Tx(context.Background(), func(tx *database.Tx) error {
			err := touch(tx, id, "held")
			close(held)
			<-release
			return err
		})
	}()
	<-held
	return release, done
}

// A lock wait that ends without the lock runs the transaction again.
func TestLockWaitRunsAgain(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	put(t, db, "c1", "c2")
	release, done := hold(t, db, "c1")
	runs := 0
	err := db.Tx(t.Context(), func(tx *database.Tx) error {
		runs++
		if runs == 2 {
			close(release)
			must(t, <-done)
		}
		must(t, tx.Exec("SET SESSION innodb_lock_wait_timeout = 1").Error)
		must(t, touch(tx, "c2", "run again"))
		return touch(tx, "c1", "mine")
	})
	rows := companies(t, db)
	if err != nil || runs != 2 || rows[0].Name != "mine" || rows[1].Name != "run again" {
		t.Errorf("%v after %d runs, %v", err, runs, rows)
	}
}

// A context that ends stops the repetition.
func TestContextEndsRepetition(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	err := db.Tx(ctx, func(*database.Tx) error { runs++; cancel(); return &mysql.MySQLError{Number: 1205} })
	if !errors.Is(err, context.Canceled) || runs != 1 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// D3, S1-010: SKIP LOCKED passes over what others hold and does not wait;
// FOR UPDATE waits for it.
func TestSkipLocked(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	put(t, db, "c1", "c2")
	release, done := hold(t, db, "c1")
	must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
		var rows []models.Company
		must(t, tx.SkipLocked().Find(&rows).Error)
		if len(rows) != 1 || rows[0].ID != "c2" {
			t.Errorf("claimed %v", rows)
		}
		return nil
	}))
	waited := make(chan error, 1)
	go func() {
		waited <- db.Tx(context.Background(), func(tx *database.Tx) error {
			var rows []models.Company
			err := tx.Locked().Where("id = 'c1'").Find(&rows).Error
			if err == nil && rows[0].Name != "held" {
				err = errors.New("FOR UPDATE did not wait for the holder's commit")
			}
			return err
		})
	}()
	databasetest.AwaitLockWait(t, db)
	close(release)
	must(t, <-done)
	must(t, <-waited)
}

// D3: READ COMMITTED. An open claim blocks no insert into the range that it
// read, and a transaction sees what was committed after its start.
func TestReadCommitted(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	put(t, db, "c1")
	must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
		var rows []models.Company
		must(t, tx.Find(&rows).Error) // an older isolation level would read this snapshot again
		must(t, tx.SkipLocked().Where("id >= 'c'").Find(&rows).Error)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		err := db.Tx(ctx, func(other *database.Tx) error { return insert(other, "c2") })
		if err != nil {
			t.Errorf("the insert was blocked: %v", err)
		}
		must(t, tx.Find(&rows).Error)
		if len(rows) != 2 {
			t.Errorf("%d rows seen", len(rows))
		}
		return nil
	}))
}

// SQLite's transactions hold the write lock from their start: two that read
// before they write never lose an update.
func TestSQLiteTransactionsAreSerial(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	put(t, db, "c1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := db.Tx(context.Background(), func(tx *database.Tx) error {
				var row models.Company
				err := tx.Locked().Where("id = 'c1'").Take(&row).Error
				if err != nil {
					return err
				}
				return touch(tx, "c1", row.Name+"x")
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if name := companies(t, db)[0].Name; name != "axxxxxxxx" {
		t.Errorf("name %q", name)
	}
}
