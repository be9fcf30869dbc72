package database

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/teamsync/edge-workers/models"
)

// A transaction that meets contention is run again as a whole, at most six
// times, after a jittered pause that doubles from 5 ms.
const (
	maxTxAttempts = 6
	firstTxPause  = 5 * time.Millisecond
)

// Tx is one running transaction.
type Tx struct {
	*gorm.DB
	dialect dialect
	now     time.Time
}

// CommitUnknownError says that COMMIT was sent and its answer was lost: the
// work may or may not be durable. The caller must read it back by what
// identifies it and never assume (D3).
type CommitUnknownError struct{ Cause error }

func (e *CommitUnknownError) Error() string {
	return fmt.Sprintf("commit outcome unknown: %v", e.Cause)
}

// Unwrap gives the cause.
func (e *CommitUnknownError) Unwrap() error { return e.Cause }

// Tx runs fn in a READ COMMITTED transaction and commits. An error of fn rolls
// back. Contention (deadlock, lock wait, busy) rolls back and runs fn again, so
// fn must have no effect outside the transaction. A commit without an answer
// is a *CommitUnknownError.
func (d *DB) Tx(ctx context.Context, fn func(*Tx) error) error {
	return d.run(ctx, d.gorm, fn)
}

// HeartbeatTx is Tx on the connections that are kept for heartbeats.
func (d *DB) HeartbeatTx(ctx context.Context, fn func(*Tx) error) error {
	return d.run(ctx, d.heartbeats, fn)
}

func (d *DB) run(ctx context.Context, pool *gorm.DB, fn func(*Tx) error) error {
	pause := firstTxPause
	for attempt := 1; ; attempt++ {
		err := d.once(ctx, pool, fn)
		if err == nil || attempt == maxTxAttempts || !isContention(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // G404: jitter needs no secrecy
		}
		pause *= 2
	}
}

func (d *DB) once(ctx context.Context, pool *gorm.DB, fn func(*Tx) error) error {
	tx := pool.WithContext(ctx).Begin() // READ COMMITTED, as its connection was opened
	if tx.Error != nil {
		return fmt.Errorf("begin: %w", tx.Error)
	}
	done := false
	defer func() {
		if !done { // fn panicked or failed
			tx.Rollback()
		}
	}()
	err := fn(&Tx{DB: tx, dialect: d.dialect})
	if err != nil {
		return err
	}
	done = true
	err = tx.Commit().Error
	if d.afterCommit != nil {
		err = d.afterCommit(err)
	}
	if err == nil {
		return nil
	}
	if isContention(err) { // a definite refusal: nothing is durable
		tx.Rollback()
		return fmt.Errorf("commit: %w", err)
	}
	return &CommitUnknownError{Cause: err}
}

// AfterCommit lets a test decide what callers of Tx see after a commit, such
// as a lost acknowledgement. nil restores the truth.
func (d *DB) AfterCommit(hook func(error) error) { d.afterCommit = hook }

// Now is the database's clock in UTC as it was first asked for in this
// transaction: one transaction has one time. A fence never depends on it alone:
// whoever took a row over has changed its owner.
func (t *Tx) Now() (time.Time, error) {
	if !t.now.IsZero() {
		return t.now, nil
	}
	var micros int64
	err := t.Raw("SELECT " + t.dialect.micros()).Scan(&micros).Error
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return t.At(micros), nil
}

// At sets the transaction's time from a query of its own that read MicrosSQL,
// and returns it. A time that it already has stays.
func (t *Tx) At(micros int64) time.Time {
	if t.now.IsZero() {
		t.now = time.UnixMicro(micros).UTC()
	}
	return t.now
}

// MicrosSQL is the database's clock as microseconds since 1970, for a query
// that reads rows and time at once.
func (t *Tx) MicrosSQL() string { return t.dialect.micros() }

// NowSQL is the database's clock as an expression that compares with a stored
// time.
func (t *Tx) NowSQL() string { return t.dialect.now() }

// ForUpdate ends a hand-written query so that it locks the rows it reads.
func (t *Tx) ForUpdate() string { return t.dialect.forUpdate() }

// ForShare ends a hand-written query so that nobody changes the rows it reads
// before the transaction has ended.
func (t *Tx) ForShare() string { return t.dialect.forShare() }

// Locked returns a query that locks the rows it reads: SELECT … FOR UPDATE.
// SQLite transactions hold the one write lock from their start instead.
func (t *Tx) Locked() *gorm.DB {
	return t.Clauses(clause.Locking{Strength: "UPDATE"})
}

// SkipLocked is Locked that passes over rows which others hold.
func (t *Tx) SkipLocked() *gorm.DB {
	return t.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"})
}

// Exactly checks that a compare-and-set changed one row. No row is
// models.ErrStaleTransition, never a quiet success.
func Exactly(result *gorm.DB, what string) error {
	if result.Error != nil {
		return fmt.Errorf("%s: %w", what, result.Error)
	}
	if result.RowsAffected != 1 {
		return fmt.Errorf("%s: %w (%d rows)", what, models.ErrStaleTransition, result.RowsAffected)
	}
	return nil
}
