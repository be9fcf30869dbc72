// Package database opens the one durable store and runs transactions on it:
// READ COMMITTED, retried as a whole on contention, with an unknown commit
// told apart from a failed one, and with the database's clock as the only
// clock for leases, grace periods and due times (D3).
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/teamsync/edge-workers/models"
)

// Pool bounds. SQLite has one writer; more connections only serve readers.
const (
	mysqlConns      = 24
	sqliteConns     = 6
	heartbeatConns  = 2
	connMaxLifetime = 10 * time.Minute
)

// Params says which database to open.
type Params struct {
	// URL is "sqlite:PATH" or a go-sql-driver/mysql DSN.
	URL string
	// Trace, when set, gets every statement; it is for tests.
	Trace func(sql string)
	Log   *slog.Logger
}

// DB is an open database. Heartbeats have a pool of their own, so that a pool
// that is used up by work cannot make a healthy owner lose its lease.
type DB struct {
	gorm       *gorm.DB
	heartbeats *gorm.DB
	dialect    dialect
	log        *slog.Logger
	// afterCommit, when set by a test, decides what the caller of Commit sees.
	afterCommit func(error) error
}

// Open connects, checks that the server answers, and returns the database.
func Open(ctx context.Context, p Params) (*DB, error) {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	d := &DB{log: p.Log, dialect: dialectOf(p.URL)}
	conns := mysqlConns
	if d.dialect == sqliteDialect {
		conns = sqliteConns
	}
	var err error
	d.gorm, err = open(ctx, p, conns)
	if err != nil {
		return nil, err
	}
	d.heartbeats, err = open(ctx, p, heartbeatConns)
	if err != nil {
		return nil, errors.Join(err, closePool(d.gorm))
	}
	return d, nil
}

func open(ctx context.Context, p Params, conns int) (*gorm.DB, error) {
	dialector, err := newDialector(p)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(dialector, &gorm.Config{
		SkipDefaultTransaction: true,
		Logger:                 statementLogger(p.Trace),
		NowFunc:                func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
		DisableAutomaticPing:   true,
	})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxLifetime(connMaxLifetime)
	err = pool.PingContext(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach the database: %w", err), pool.Close())
	}
	return db, nil
}

// Close closes both pools.
func (d *DB) Close() error { return errors.Join(closePool(d.gorm), closePool(d.heartbeats)) }

func closePool(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	err = pool.Close()
	if db.Name() == string(mysqlDialect) {
		return nil // whatever a farewell meets, such as a server that was restarted, nothing depends on it
	}
	return err
}

// Ping reports whether the database answers, for readiness.
func (d *DB) Ping(ctx context.Context) error {
	pool, err := d.gorm.DB()
	if err != nil {
		return err
	}
	return pool.PingContext(ctx)
}

// CreateMissing creates the tables that are missing (S3-02).
func (d *DB) CreateMissing(ctx context.Context) error {
	return models.CreateMissing(d.gorm.WithContext(ctx).Set("gorm:table_options", d.dialect.tableOptions()))
}

// Read returns a handle for reads outside a transaction. Whatever decides
// about a write must be read again under a lock.
func (d *DB) Read(ctx context.Context) *gorm.DB { return d.gorm.WithContext(ctx) }

// NowSQL is the database's clock as an SQL expression, for a statement that
// compares a stored time with it by itself.
func (d *DB) NowSQL() string { return d.dialect.now() }

// statementLogger hands every statement to trace and prints nothing: SQL with
// its values never reaches a log.
func statementLogger(trace func(string)) logger.Interface {
	if trace == nil {
		return logger.Discard
	}
	return tracer{Interface: logger.Discard, trace: trace}
}

type tracer struct {
	logger.Interface
	trace func(string)
}

// LogMode keeps the tracer whatever level is asked for.
func (t tracer) LogMode(logger.LogLevel) logger.Interface { return t }

// Trace hands the statement on.
func (t tracer) Trace(_ context.Context, _ time.Time, fc func() (string, int64), _ error) {
	sql, _ := fc()
	t.trace(sql)
}
