// Package daemon starts the private servers that the tests talk to: a real
// MariaDB and a real Redis, each in a folder of its own, on a unix socket,
// without durability and without a network port; and a real MinIO, which has
// no socket, on a port of the loopback interface.
//
// A daemon never outlives the process that started it: on Linux the kernel
// kills it when that process goes, however it goes. A test that needs a server
// that it may kill starts one of its own with this package; all other tests
// share the two that `go run ./test/services` brings up.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// readyTimeout bounds the start of one server. A start takes under a second on
// an idle machine; the rest is room for a loaded two-core one.
const readyTimeout = 90 * time.Second

// readyPoll is the pause between two attempts to reach a starting server,
// which gives no better signal than that it answers.
const readyPoll = 50 * time.Millisecond

// maxSocketPath is the longest unix socket path that both Linux (107) and
// macOS (103 bytes) take.
const maxSocketPath = 103

// Daemon is one running server.
type Daemon struct {
	name    string
	logPath string
	command *exec.Cmd
	done    chan struct{}
}

// Done is closed when the server's process has ended, for whatever reason.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// LogPath is the file that holds what the server printed.
func (d *Daemon) LogPath() string { return d.logPath }

// Kill ends the server as a power cut would (SIGKILL) and waits until it is
// gone. Nothing in a test server is worth a clean shutdown. Killing an ended
// server does nothing.
func (d *Daemon) Kill() {
	_ = d.command.Process.Kill() // an error means that it has ended already
	<-d.done
}

// launch starts binary, with more in its environment, with its output in
// <dir>/<name>.log, and waits until ready returns nil. A server that ends or
// stays unready is an error that carries the end of its log.
func launch(ctx context.Context, dir, name, binary string, args []string, ready func(context.Context) error, more ...string) (*Daemon, error) {
	logPath := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // #nosec G304 -- a path of the test harness
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor

	//nolint:noctx // a server outlives the context of its start
	command := exec.Command(binary, args...) // #nosec G204 -- a server that the harness located
	command.Dir = dir
	command.Env = append(os.Environ(), more...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = BoundToParent()
	err = OnLastingThread(command.Start)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &Daemon{name: name, logPath: logPath, command: command, done: make(chan struct{})}
	go func() {
		_ = command.Wait() // the end itself is the news; the log says why
		close(d.done)
	}()

	err = d.await(ctx, ready)
	if err != nil {
		d.Kill()
		return nil, fmt.Errorf("%w; the end of %s:\n%s", err, logPath, tail(logPath))
	}
	return d, nil
}

func (d *Daemon) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("%s ended while it was starting", d.name)
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer within %s: %w", d.name, readyTimeout, err)
		case <-ticker.C:
		}
	}
}

// starts is served by one goroutine that keeps its operating system thread
// for the life of the process.
var starts = func() chan func() {
	queue := make(chan func())
	go func() {
		// The kernel's parent-death signal is tied to the thread that made the
		// child, so that thread must not end before the process does.
		runtime.LockOSThread()
		for start := range queue {
			start()
		}
	}()
	return queue
}()

// OnLastingThread runs start, which starts a child that is BoundToParent, on a
// thread that lasts as long as this process.
func OnLastingThread(start func() error) error {
	result := make(chan error, 1)
	starts <- func() { result <- start() }
	return <-result
}

// socketIn gives the path of a socket in dir, or an error when no system
// could bind it.
func socketIn(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("the socket path %s is longer than %d bytes: set TMPDIR to a shorter folder", path, maxSocketPath)
	}
	return path, nil
}

// errNotFound says that a program is not on this machine.
var errNotFound = errors.New("not found")

// elsewhere are folders that hold servers but are often missing from an
// ordinary user's PATH: Debian's sbin and Homebrew's prefixes.
var elsewhere = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin",
	"/opt/homebrew/opt/mariadb/bin", "/usr/local/opt/mariadb/bin",
}

// Find locates a program in PATH or in the folders where package managers put
// servers. The error of a missing program satisfies Missing.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return filepath.Abs(path)
	}
	for _, folder := range elsewhere {
		path = filepath.Join(folder, program)
		info, statErr := os.Stat(path)
		if statErr == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w in PATH", program, errNotFound)
}

// Missing tells whether err says that a program is not on this machine.
func Missing(err error) bool { return errors.Is(err, errNotFound) }

// tail gives the last two kilobytes of a log.
func tail(path string) string {
	const window = 2048
	file, err := os.Open(path) // #nosec G304 -- a path of the test harness
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }() // opened for reading only
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(0, info.Size()-window)
	text, err := io.ReadAll(io.NewSectionReader(file, from, window))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
