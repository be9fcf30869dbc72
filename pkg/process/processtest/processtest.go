// Package processtest runs a program under test as a process of its own: the
// test's binary turns into the program, so that nothing is built twice.
package processtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// marker is set in the environment of the process that is to be the program.
const marker = "EDGE_TEST_RUN_PROGRAM"

// patience bounds a wait for a signal that must come; nothing is measured by it.
const patience = 60 * time.Second

// Main is TestMain of the program's package.
func Main(m *testing.M, program func()) {
	if os.Getenv(marker) != "" {
		program()
	}
	os.Exit(m.Run())
}

// TB is the part of testing.TB that this package needs; a program that runs the
// programs as tests do has one of its own.
type TB interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(undo func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Process is the running program.
type Process struct {
	t         TB
	cmd       *exec.Cmd
	log       observetest.Log
	mu        sync.Mutex
	addresses map[string]string
	ended     chan struct{} // closed when its log has ended
}

// command has nothing of the test's environment but what it is given. A Ctrl-C
// in the terminal reaches the test alone, which ends its programs in the order it
// wants; on Linux none outlives it, however it ends.
func command(t TB, program string, environment map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.SysProcAttr = daemon.BoundToParent()
	cmd.Env = []string{marker + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// self is the test's own binary.
func self(t TB) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Run runs a program that ends by itself and gives its exit code and output.
func Run(t TB, environment map[string]string, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	cmd := command(t, self(t), environment, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := daemon.OnLastingThread(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0, out.String()
	}
	return exit.ExitCode(), out.String()
}

// Start starts the program and waits until its log has named the addresses of
// that many servers.
func Start(t TB, servers int, environment map[string]string) *Process {
	t.Helper()
	return StartProgram(t, self(t), servers, environment)
}

// StartProgram is Start for a program that was built elsewhere.
func StartProgram(t TB, program string, servers int, environment map[string]string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: command(t, program, environment), addresses: map[string]string{}, ended: make(chan struct{})}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = daemon.OnLastingThread(p.cmd.Start)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go p.read(log, servers, ready)
	select {
	case <-ready:
	case <-p.ended:
		t.Fatalf("the program ended: %v\n%s", p.cmd.Wait(), p.Log())
	case <-time.After(patience):
		t.Fatalf("the program is not up:\n%s", p.Log())
	}
	return p
}

// read keeps the log and tells when it has named the last address.
func (p *Process) read(log io.Reader, servers int, ready chan struct{}) {
	defer close(p.ended)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		_, _ = p.log.Write(append(lines.Bytes(), '\n'))
		if p.note(lines.Bytes()) == servers && ready != nil {
			close(ready)
			ready = nil
		}
	}
}

// note reads the log line of a server that has its address, and tells how many
// there are.
func (p *Process) note(line []byte) int {
	var said struct{ Msg, Server, Address string }
	err := json.Unmarshal(line, &said)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && said.Msg == "server listens" {
		p.addresses[said.Server] = said.Address
	}
	return len(p.addresses)
}

// URL is the origin of one of its servers.
func (p *Process) URL(server string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "http://" + p.addresses[server]
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the process has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Log is all that it has logged.
func (p *Process) Log() string { return p.log.String() }

// AwaitLog waits until the program has logged the text.
func (p *Process) AwaitLog(text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := p.log.Await(ctx, text)
	if err != nil {
		p.t.Fatalf("%v:\n%s", err, p.Log())
	}
}

// Stop asks the program to end, as a service manager does, and gives its exit
// code.
func (p *Process) Stop() int {
	p.t.Helper()
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.wait()
}

// Kill ends the program as a power cut would.
func (p *Process) Kill() {
	p.t.Helper()
	err := p.cmd.Process.Kill()
	if err != nil {
		p.t.Fatal(err)
	}
	p.wait()
}

func (p *Process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the program does not stop:\n%s", p.Log())
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}
