// Package databasetest gives tests a fresh database on each engine: MariaDB or
// MySQL through EDGE_TEST_MYSQL_DSN, and SQLite in the test's folder.
package databasetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/teamsync/edge-workers/pkg/database"
)

const dsnVariable = "EDGE_TEST_MYSQL_DSN"

var serial atomic.Int64

// Each runs the test once on every engine, each time on a fresh database with
// the schema created.
func Each(t *testing.T, run func(t *testing.T, db *database.DB)) {
	t.Helper()
	t.Run("mysql", func(t *testing.T) { run(t, MySQL(t)) })
	t.Run("sqlite", func(t *testing.T) { run(t, SQLite(t)) })
}

// MySQL returns a fresh database of the server that EDGE_TEST_MYSQL_DSN names.
func MySQL(t testing.TB) *database.DB {
	t.Helper()
	return Open(t, database.Params{URL: MySQLURL(t)})
}

// SQLite returns a fresh database in the test's folder.
func SQLite(t testing.TB) *database.DB {
	t.Helper()
	return Open(t, database.Params{URL: SQLiteURL(t)})
}

// Open opens p, creates the schema and closes it with the test.
func Open(t testing.TB, p database.Params) *database.DB {
	t.Helper()
	db := Bare(t, p)
	err := db.CreateMissing(context.Background())
	if err != nil {
		t.Fatalf("create the schema: %v", err)
	}
	return db
}

// Bare opens p without a schema.
func Bare(t testing.TB, p database.Params) *database.DB {
	t.Helper()
	db, err := database.Open(context.Background(), p)
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() {
		err := db.Close()
		if err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// SQLiteURL names a fresh file.
func SQLiteURL(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "edge.db")
}

// TB is the part of testing.TB that MySQLURL needs; a program that runs what
// tests run has one of its own.
type TB interface {
	Helper()
	Cleanup(undo func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// MySQLURL creates a fresh database on the test server, to be dropped with the
// test, and returns its DSN.
func MySQLURL(t TB) string {
	t.Helper()
	base := os.Getenv(dsnVariable)
	if base == "" {
		t.Fatalf("%s is not set: run `make test`, or set it to a MariaDB or MySQL server on which databases may be created", dsnVariable)
	}
	cfg, err := mysql.ParseDSN(base)
	if err != nil {
		t.Fatalf("%s: %v", dsnVariable, err)
	}
	name := fmt.Sprintf("ew_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), serial.Add(1))
	exec(t, base, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, base, "DROP DATABASE "+name) })
	cfg.DBName = name
	return cfg.FormatDSN()
}

func exec(t TB, dsn, statement string) {
	t.Helper()
	db, err := gorm.Open(gormmysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatalf("reach the test server: %v", err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	err = db.Exec(statement).Error
	if err != nil {
		t.Fatalf("%s: %v", strings.Fields(statement)[0], err)
	}
}
