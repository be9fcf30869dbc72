package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/teamsync/edge-workers/test/services/daemon"
)

// The variables through which tests learn where the servers are.
const (
	mysqlVariable = "EDGE_TEST_MYSQL_DSN"
	redisVariable = "EDGE_TEST_REDIS_URL"
	s3Variable    = "EDGE_TEST_S3_URL"
	sqsVariable   = "EDGE_TEST_SQS_URL"
)

// folderPrefix names the temporary folders of running harnesses, keptPrefix
// those of failed runs, whose logs stay. Short: socket paths are bounded.
const (
	folderPrefix = "edge-test-"
	keptPrefix   = "edge-test-logs-"
)

// server is one kind of server that the harness can start.
type server struct {
	variable string
	programs []string
	recipe   recipe
	start    func(ctx context.Context, dir string) (*daemon.Daemon, string, error)
}

// servers are those that every run gets.
var servers = []server{
	{
		variable: mysqlVariable,
		programs: []string{"mariadbd", "mariadb-install-db"},
		recipe:   recipe{title: "MariaDB", apt: [][]string{{"mariadb-server-core", "mariadb-client-core"}, {"mariadb-server"}}, brew: "mariadb"},
		start:    daemon.MariaDB,
	},
	{
		variable: redisVariable,
		programs: []string{"redis-server"},
		recipe:   recipe{title: "Redis", apt: [][]string{{"redis-server"}}, brew: "redis"},
		start:    daemon.Redis,
	},
}

// minio is the S3 service, whose binary `make test-s3` has built.
func minio(binary string) server {
	return server{variable: s3Variable, start: func(ctx context.Context, dir string) (*daemon.Daemon, string, error) {
		return daemon.MinIO(ctx, dir, binary)
	}}
}

// sqs is the SQS server of the npm package that `make tools-sqs` has installed.
func sqs(folder string) server {
	return server{variable: sqsVariable, start: func(ctx context.Context, dir string) (*daemon.Daemon, string, error) {
		return daemon.SQS(ctx, dir, folder)
	}}
}

// services are the servers of one run.
type services struct {
	folder    string
	lock      *os.File
	daemons   []*daemon.Daemon
	addresses map[string]string
}

// start makes sure that the needed ones of some servers exist, and starts them.
// Nothing is left behind when it returns an error.
func start(ctx context.Context, all []server) (*services, error) {
	set := &services{addresses: map[string]string{}}
	var wanted []server
	for _, candidate := range all {
		if os.Getenv(candidate.variable) == "" {
			wanted = append(wanted, candidate)
		}
	}
	if len(wanted) == 0 {
		return set, nil
	}
	err := ensure(ctx, wanted, systemInstaller())
	if err != nil {
		return nil, err
	}
	sweep(os.TempDir())
	err = set.makeFolder()
	if err != nil {
		return nil, err
	}
	for _, one := range wanted {
		process, address, err := one.start(ctx, set.folder)
		if err != nil {
			set.stop(false)
			return nil, fmt.Errorf("%w\n(or set %s to the address of a server to test against)", err, one.variable)
		}
		set.daemons = append(set.daemons, process)
		set.addresses[one.variable] = address
		fmt.Fprintf(os.Stderr, "%s='%s'\n", one.variable, address)
	}
	return set, nil
}

// environment is this process's with the servers' addresses.
func (s *services) environment() []string {
	environment := os.Environ()
	for variable, address := range s.addresses {
		environment = append(environment, variable+"="+address)
	}
	return environment
}

// stop ends the servers and removes their folder. With keep their logs stay,
// and a line tells where.
func (s *services) stop(keep bool) {
	for _, process := range s.daemons {
		process.Kill()
	}
	if s.folder == "" {
		return
	}
	if keep {
		kept, err := s.keepLogs()
		if err != nil {
			fmt.Fprintln(os.Stderr, "test services: keep the logs:", err)
		} else {
			fmt.Fprintln(os.Stderr, "test services: the servers' logs are in", kept)
		}
	}
	err := os.RemoveAll(s.folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test services: remove the data:", err)
	}
	_ = s.lock.Close() // releases the lock on a folder that is gone
}

func (s *services) keepLogs() (string, error) {
	kept, err := os.MkdirTemp("", keptPrefix)
	if err != nil {
		return "", err
	}
	for _, process := range s.daemons {
		err = os.Rename(process.LogPath(), filepath.Join(kept, filepath.Base(process.LogPath())))
		if err != nil {
			return "", err
		}
	}
	return kept, nil
}

// makeFolder makes the run's folder and locks it for the life of this process.
func (s *services) makeFolder() error {
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return fmt.Errorf("make a folder for the servers: %w", err)
	}
	s.folder = folder
	s.lock, err = lockFolder(folder)
	if err != nil {
		return fmt.Errorf("lock %s: %w", folder, err)
	}
	return nil
}

// lockFolder takes the lock that says that the folder's harness is alive; it
// fails when another process holds it.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600) // #nosec G304 -- in a folder of the harness
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return file, nil
}

// sweep removes the folders that killed harnesses left in parent: about 130 MB
// each. A folder whose lock is held belongs to a run that is alive.
func sweep(parent string) {
	folders, err := filepath.Glob(filepath.Join(parent, folderPrefix+"[0-9]*"))
	if err != nil {
		return
	}
	for _, folder := range folders {
		_, err = os.Stat(filepath.Join(folder, "lock"))
		if err != nil {
			continue // just made and not locked yet, or not ours
		}
		lock, err := lockFolder(folder)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(folder) // another user's: it stays
		_ = lock.Close()         // releases the lock
	}
}
