package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/libtnb/sqlite"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
	sqlite3 "modernc.org/sqlite"
)

// Everything in which MySQL, MariaDB and SQLite differ is in this file.

// dialect is one family of databases.
type dialect string

const (
	mysqlDialect  dialect = "mysql"
	sqliteDialect dialect = "sqlite"
)

// Limits of one database call. A stalled server ends a call instead of
// holding it: connect 5 s; read and write 30 s, well over a lock wait.
const (
	connectTimeout = 5 * time.Second
	ioTimeout      = 30 * time.Second
	lockWait       = 5 * time.Second
	// idleTransaction ends a transaction whose client has gone silent.
	idleTransaction = 60 * time.Second
)

const sqlitePrefix = "sqlite:"

// dialectOf tells the dialect from the URL's scheme: "sqlite:PATH" is a file,
// anything else a DSN of go-sql-driver/mysql.
func dialectOf(url string) dialect {
	if strings.HasPrefix(url, sqlitePrefix) {
		return sqliteDialect
	}
	return mysqlDialect
}

// newDialector makes a pool of connections, and opens none.
func newDialector(p Params) (gorm.Dialector, error) {
	if path, ok := strings.CutPrefix(p.URL, sqlitePrefix); ok {
		if path == "" {
			return nil, errors.New("the sqlite URL names no file")
		}
		return sqliteDialector{sqlite.Open(sqliteDSN(path)).(*sqlite.Dialector)}, nil
	}
	cfg, err := mysqlConfig(p.URL)
	if err != nil {
		return nil, err
	}
	cfg.Logger = driverLog{p.Log}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	// MySQL has no RETURNING; MariaDB must behave the same.
	return gormmysql.New(gormmysql.Config{Conn: sql.OpenDB(readCommitted{connector}), DSNConfig: cfg, DisableWithReturning: true}), nil
}

// readCommitted opens connections whose transactions are READ COMMITTED, which
// is said once for a connection instead of in a statement before each of them.
// The servers have different names for the variable; this statement they share.
type readCommitted struct{ driver.Connector }

// Connect opens one connection.
func (c readCommitted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	session, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(errors.New("the MySQL driver runs no statements"), conn.Close())
	}
	_, err = session.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set the isolation level: %w", err), conn.Close())
	}
	return conn, nil
}

// mysqlConfig parses a DSN and sets what correctness depends on, whatever the
// DSN says: found rows (a compare-and-set that writes equal values must count
// its row), microsecond arguments (a finer one turns MariaDB's index range
// into a full scan), UTC on both sides, and bounded waits.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = true
	cfg.RejectReadOnly = true
	// The driver escapes arguments itself instead of preparing each statement
	// first, which would be a second round trip; utf8mb4 makes that safe.
	cfg.InterpolateParams = true
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = connectTimeout, ioTimeout, ioTimeout
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	// A frozen process must not keep its row locks, which every sweep passes
	// over, until the server's idle time of hours has gone by. Only MariaDB has
	// the setting; to MySQL it is a comment.
	cfg.Params["time_zone"] = fmt.Sprintf("'+00:00' /*M!100300 , idle_transaction_timeout = %d */", int(idleTransaction.Seconds()))
	cfg.Params["charset"] = "utf8mb4"
	cfg.Params["innodb_lock_wait_timeout"] = fmt.Sprint(int(lockWait.Seconds()))
	cfg.Collation = "utf8mb4_bin"
	err = cfg.Apply(mysql.TimeTruncate(time.Microsecond))
	if err == nil {
		cfg, err = mysql.ParseDSN(cfg.FormatDSN()) // only the parser turns parameters, the charset for one, into settings
	}
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	return cfg, nil
}

// driverLog takes what the driver has to say, of connections that broke.
type driverLog struct{ log *slog.Logger }

// Print implements mysql.Logger.
func (d driverLog) Print(v ...any) {
	d.log.Warn("database connection", "detail", fmt.Sprintf("%.300s", fmt.Sprint(v...)))
}

// sqliteDSN opens a file for one writer at a time: transactions take the write
// lock at their start, commits are durable, foreign keys hold.
func sqliteDSN(path string) string {
	return "file:" + uriPath.Replace(path) + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
		"&_pragma=foreign_keys(1)&_pragma=synchronous(FULL)"
}

// uriPath escapes what would end a path in SQLite's URI form.
var uriPath = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

// sqliteNow is the database's clock in the text form in which the driver
// stores times, so that stored times and defaults compare as text.
const sqliteNow = "strftime('%Y-%m-%d %H:%M:%f000+00:00','now')"

// sqliteDialector rewrites the two things of the models that SQLite spells
// differently: its clock, and the one type name by which its driver knows a
// time.
type sqliteDialector struct{ *sqlite.Dialector }

var sqliteSpelling = strings.NewReplacer("datetime(6)", "datetime", "DEFAULT CURRENT_TIMESTAMP(6)", "DEFAULT ("+sqliteNow+")")

// DataTypeOf gives a column's type in SQLite's spelling.
func (d sqliteDialector) DataTypeOf(field *schema.Field) string {
	return sqliteSpelling.Replace(d.Dialector.DataTypeOf(field))
}

// Migrator returns SQLite's migrator with this dialector's column types.
func (d sqliteDialector) Migrator(db *gorm.DB) gorm.Migrator {
	m, ok := d.Dialector.Migrator(db).(*sqlite.Migrator)
	if !ok {
		return d.Dialector.Migrator(db)
	}
	m.Dialector = d
	return m
}

// tableOptions is what CREATE TABLE ends with.
func (d dialect) tableOptions() string {
	if d == mysqlDialect {
		return "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
	}
	return ""
}

// micros reads the database's clock as microseconds since 1970 in UTC. SQLite
// counts in whole milliseconds.
func (d dialect) micros() string {
	if d == mysqlDialect {
		return "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
	}
	return "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) * 1000"
}

// forUpdate ends a hand-written query that locks what it reads. SQLite
// transactions hold the one write lock from their start instead.
func (d dialect) forUpdate() string {
	if d == mysqlDialect {
		return " FOR UPDATE"
	}
	return ""
}

// forShare is forUpdate with a lock that others may share.
func (d dialect) forShare() string {
	if d == mysqlDialect {
		return " LOCK IN SHARE MODE"
	}
	return ""
}

// now is the database's clock as an expression that compares with a stored
// time.
func (d dialect) now() string {
	if d == mysqlDialect {
		return "UTC_TIMESTAMP(6)"
	}
	return sqliteNow
}

// MySQL error numbers.
const (
	errDuplicate       = 1062
	errLockWait        = 1205
	errDeadlock        = 1213
	errSnapshotChanged = 1020 // MariaDB with innodb_snapshot_isolation
	errCheckMySQL      = 3819
	errCheckMariaDB    = 4025
)

// unavailableNumbers are answers of a server that cannot serve now: too many
// connections (in all, of the user), shutting down, statement or connection
// ended by the administrator.
var unavailableNumbers = []uint16{1040, 1203, 1053, 1317, 1927}

// SQLite result codes.
const (
	sqliteBusy         = 5
	sqliteLocked       = 6
	sqliteUnique       = 2067
	sqlitePrimaryKey   = 1555
	sqliteCheck        = 275
	sqlitePrimaryCodes = 0xff
)

// IsDuplicate reports whether err is the violation of a unique index or key.
func IsDuplicate(err error) bool {
	return hasCode(err, []uint16{errDuplicate}, []int{sqliteUnique, sqlitePrimaryKey})
}

// IsCheckViolation reports whether err is the violation of a CHECK.
func IsCheckViolation(err error) bool {
	return hasCode(err, []uint16{errCheckMySQL, errCheckMariaDB}, []int{sqliteCheck})
}

// IsUnavailable reports whether err says that the database could not be
// reached, broke off, or stayed contended: nothing is wrong with the work.
func IsUnavailable(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, sql.ErrConnDone) || isContention(err) || hasCode(err, unavailableNumbers, nil)
}

// isContention reports whether the whole transaction may be run again.
func isContention(err error) bool {
	var lite *sqlite3.Error
	if errors.As(err, &lite) {
		primary := lite.Code() & sqlitePrimaryCodes
		return primary == sqliteBusy || primary == sqliteLocked
	}
	return hasCode(err, []uint16{errDeadlock, errLockWait, errSnapshotChanged}, nil)
}

func hasCode(err error, numbers []uint16, codes []int) bool {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		for _, n := range numbers {
			if my.Number == n {
				return true
			}
		}
	}
	var lite *sqlite3.Error
	if errors.As(err, &lite) {
		for _, c := range codes {
			if lite.Code() == c {
				return true
			}
		}
	}
	return false
}
