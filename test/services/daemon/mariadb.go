package daemon

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver that reads the DSN
)

// MariaDB starts a private MariaDB in dir, which must exist, and returns it
// with a DSN of its root account that names no database. An existing data
// folder in dir is used again, so that a killed server can be brought back.
//
// A commit reaches the operating system, so that a killed server keeps it, but
// not the disk: nobody needs this data after a power cut.
func MariaDB(ctx context.Context, dir string) (*Daemon, string, error) {
	return mariaDB(ctx, dir, nil,
		"--innodb-flush-log-at-trx-commit=2", "--skip-innodb-doublewrite",
		"--loose-innodb-flush-method=nosync") // "loose" because later versions retire the option
}

// DurableMariaDB is MariaDB with commits that reach the disk, as in production,
// for figures that depend on it. Each sync of a file takes longer by wait, which
// gives a fast disk the latency of another: strace holds the call back, and no
// other. It needs strace on the PATH if wait is not 0.
func DurableMariaDB(ctx context.Context, dir string, wait time.Duration) (*Daemon, string, error) {
	const durable = "--innodb-flush-log-at-trx-commit=1"
	if wait == 0 {
		return mariaDB(ctx, dir, nil, durable)
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, "", fmt.Errorf("a disk with another latency: %w; install strace", err)
	}
	// -D leaves the server the child of this process; with --seccomp-bpf only the named calls stop.
	slowed := []string{strace, "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:delay_exit=%d", wait.Microseconds())}
	return mariaDB(ctx, dir, slowed, durable)
}

// mariaDB starts a server with what it does for durability. The server is the
// last argument of under, a program that runs it, if there is one.
func mariaDB(ctx context.Context, dir string, under []string, durability ...string) (*Daemon, string, error) {
	server, err := Find("mariadbd")
	if err != nil {
		return nil, "", err
	}
	socket, err := socketIn(dir, "m.sock")
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "mariadb")
	err = initialise(ctx, data)
	if err != nil {
		return nil, "", err
	}

	args := append(account(),
		"--datadir="+data,
		"--socket="+socket,
		"--pid-file="+filepath.Join(dir, "m.pid"),
		"--skip-networking", "--skip-name-resolve", "--skip-log-bin",
		"--performance-schema=OFF",
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_bin",
		"--default-time-zone=+00:00",
		// Several test packages at once, each with pools of several stores.
		"--max-connections=400",
		"--innodb-buffer-pool-size=128M",
	)
	command := slices.Concat(under, []string{server}, args, durability)
	dsn := mysqlDSN(socket)
	d, err := launch(ctx, dir, "mariadb", command[0], command[1:], func(ctx context.Context) error { return pingMySQL(ctx, dsn) })
	if err != nil {
		return nil, "", err
	}
	return d, dsn, nil
}

// account are the options that every MariaDB program needs here: no option
// files of the machine, and leave to run as root where the tests do.
func account() []string {
	args := []string{"--no-defaults"}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// initialise makes the system tables in data, unless they are there.
func initialise(ctx context.Context, data string) error {
	_, err := os.Stat(filepath.Join(data, "mysql"))
	if err == nil {
		return nil
	}
	installer, err := Find("mariadb-install-db")
	if err != nil {
		return err
	}
	args := append(account(),
		"--datadir="+data,
		"--auth-root-authentication-method=normal", // root without a password, over the socket
		"--skip-test-db", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=0", "--loose-innodb-flush-method=nosync",
	)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var output bytes.Buffer
	command := exec.CommandContext(ctx, installer, args...) // #nosec G204 -- a program that the harness located
	command.Stdout, command.Stderr = &output, &output
	command.WaitDelay = time.Second
	err = command.Run()
	if err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, output.String())
	}
	return nil
}

// mysqlDSN is the root DSN with the settings that production uses too: the
// session clock in UTC, and matched instead of changed rows counted, without
// which a compare-and-set that writes equal values would seem to have lost.
func mysqlDSN(socket string) string {
	query := url.Values{
		"parseTime":       {"true"},
		"loc":             {"UTC"},
		"time_zone":       {"'+00:00'"},
		"charset":         {"utf8mb4"},
		"collation":       {"utf8mb4_bin"},
		"clientFoundRows": {"true"},
		"timeTruncate":    {"1us"},
		"timeout":         {"10s"},
		"readTimeout":     {"60s"},
		"writeTimeout":    {"60s"},
	}
	return "root@unix(" + socket + ")/?" + query.Encode()
}

func pingMySQL(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return fmt.Errorf("open %q: %w", dsn, err)
	}
	defer func() { _ = db.Close() }() // a pool of one connection that only pinged
	return db.PingContext(ctx)
}
