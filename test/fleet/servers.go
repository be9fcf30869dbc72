package fleet

import (
	"context"
	"database/sql"
	"os"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver of the administrator's connection
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/test/services/daemon"
)

// servers are a fleet's own database and Redis, which a test may take away.
type servers struct {
	t         TB
	dir       string
	mariadb   *daemon.Daemon
	cache     *daemon.Daemon
	dsn       string // with the database's name
	redisAddr string
}

func startServers(t TB) *servers {
	t.Helper()
	dir, err := os.MkdirTemp("", "ew-fleet-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{t: t, dir: dir}
	t.Cleanup(func() { s.stop(); _ = os.RemoveAll(dir) })
	admin := s.startMariaDB()
	db, err := sql.Open("mysql", admin)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE edge_workers")
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	s.dsn = strings.Replace(admin, "/?", "/edge_workers?", 1)
	s.cache, s.redisAddr, err = daemon.Redis(context.WithoutCancel(t.Context()), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *servers) startMariaDB() string {
	s.t.Helper()
	d, dsn, err := daemon.MariaDB(context.WithoutCancel(s.t.Context()), s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mariadb = d
	return dsn
}

// restartDatabase kills the database and brings it back on the same files.
func (s *servers) restartDatabase() {
	s.t.Helper()
	s.mariadb.Kill()
	<-s.mariadb.Done()
	s.startMariaDB()
}

// forget empties Redis.
func (s *servers) forget() {
	s.t.Helper()
	options, err := redis.ParseURL(s.redisAddr)
	if err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewClient(options)
	err = client.FlushAll(s.t.Context()).Err()
	if err != nil {
		s.t.Fatal(err)
	}
	_ = client.Close()
}

func (s *servers) stop() {
	for _, d := range []*daemon.Daemon{s.mariadb, s.cache} {
		if d != nil {
			d.Kill()
			<-d.Done()
		}
	}
}
