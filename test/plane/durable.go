package plane

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// Durable is a database whose commits reach the disk, on a MariaDB of the
// benchmark's own. Each sync of the disk takes longer by wait.
func Durable(b *testing.B, wait time.Duration) *database.DB {
	b.Helper()
	dir, err := os.MkdirTemp("", "ew-bench-") // a socket's path must be short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, dsn, err := daemon.DurableMariaDB(context.Background(), dir, wait)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Kill(); <-server.Done() })
	b.Setenv("EDGE_TEST_MYSQL_DSN", dsn)
	return databasetest.MySQL(b)
}
