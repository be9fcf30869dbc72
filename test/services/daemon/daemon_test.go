package daemon

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// folder is short, because sockets lie in it.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func need(t *testing.T, program string) {
	t.Helper()
	_, err := Find(program)
	if err != nil {
		t.Skipf("%v: the tests run against a server from elsewhere", err)
	}
}

func startMariaDB(t *testing.T, dir string) (*Daemon, *sql.DB) {
	t.Helper()
	d, dsn, err := MariaDB(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return d, db
}

func TestMariaDBSpeaksAsProductionDoes(t *testing.T) {
	t.Parallel()
	need(t, "mariadbd")
	dir := folder(t)
	d, db := startMariaDB(t, dir)

	for query, want := range map[string]string{
		"SELECT @@session.time_zone":            "+00:00",
		"SELECT @@session.collation_connection": "utf8mb4_bin",
		"SELECT @@collation_server":             "utf8mb4_bin",
		"SELECT @@skip_networking":              "1",
	} {
		var got string
		err := db.QueryRowContext(t.Context(), query).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", query, got, err, want)
		}
	}

	statements := []string{"CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 1)"}
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	// A write of equal values still finds its row.
	result, err := db.ExecContext(t.Context(), "UPDATE d.t SET v = 1 WHERE id = 1")
	if err != nil {
		t.Fatal(err)
	}
	found, err := result.RowsAffected()
	if err != nil || found != 1 {
		t.Errorf("rows found = %d, %v", found, err)
	}

	// A killed server comes back with its data.
	d.Kill()
	select {
	case <-d.Done():
	default:
		t.Error("Done is open after Kill")
	}
	err = db.PingContext(t.Context())
	if err == nil {
		t.Error("a killed server answered")
	}
	_, db = startMariaDB(t, dir)
	var value int
	err = db.QueryRowContext(t.Context(), "SELECT v FROM d.t WHERE id = 1").Scan(&value)
	if err != nil || value != 1 {
		t.Errorf("after the restart: %d, %v", value, err)
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	need(t, "redis-server")
	d, address, err := Redis(t.Context(), folder(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	options, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	err = client.Set(t.Context(), "k", "v", 0).Err()
	if err != nil {
		t.Fatal(err)
	}
	save, err := client.ConfigGet(t.Context(), "save").Result()
	if err != nil || save["save"] != "" {
		t.Errorf("save = %q, %v", save, err)
	}
	d.Kill()
	d.Kill() // a second time does nothing
	err = client.Get(t.Context(), "k").Err()
	if err == nil {
		t.Error("a killed server answered")
	}
}

func TestSocketPathThatNoSystemTakes(t *testing.T) {
	t.Parallel()
	_, err := socketIn("/"+strings.Repeat("x", maxSocketPath-len("/m.sock")-1), "m.sock")
	if err != nil {
		t.Errorf("the longest path: %v", err)
	}
	_, err = socketIn("/"+strings.Repeat("x", maxSocketPath-len("/m.sock")), "m.sock")
	if err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("one byte more: %v", err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	path, err := Find("sh")
	if err != nil || !strings.HasPrefix(path, "/") {
		t.Errorf("sh: %q, %v", path, err)
	}
	_, err = Find("no-such-server-here")
	if !Missing(err) {
		t.Errorf("missing: %v", err)
	}
	if Missing(context.Canceled) {
		t.Error("another error counts as missing")
	}
}

func TestServerThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err := launch(ctx, folder(t), "mute", "/bin/sh", []string{"-c", "echo hello; exec sleep 1000"}, func(context.Context) error {
		asked++
		if asked == 2 {
			cancel()
		}
		return context.DeadlineExceeded
	})
	if err == nil || !strings.Contains(err.Error(), "mute did not answer") {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
