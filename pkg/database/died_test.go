package database_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// A process whose database was restarted ends as cleanly as any other, and what
// the driver says of its broken connections is in the process's log.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ew-died-") // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	start := func() (*daemon.Daemon, string) {
		server, dsn, err := daemon.MariaDB(context.WithoutCancel(t.Context()), dir)
		must(t, err)
		return server, dsn
	}
	kill := func(server *daemon.Daemon) { server.Kill(); <-server.Done() }
	server, dsn := start()
	var log observetest.Log
	db, err := database.Open(t.Context(), database.Params{URL: dsn, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	must(t, err)
	kill(server)
	if err = db.Ping(t.Context()); err == nil {
		t.Error("a dead server answers")
	}
	server, _ = start()
	must(t, db.Ping(t.Context()))
	kill(server)
	if err = db.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if text := log.String(); !strings.Contains(text, `"msg":"database connection"`) {
		t.Errorf("log: %s", text)
	}
}
