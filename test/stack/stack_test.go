//go:build e2e && linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/pkg/project"
)

// patience tells a stack that hangs from one that is slow.
const patience = 3 * time.Minute

// D2, S1-264: somebody starts the stack, deploys an example through the queue,
// loses a deployer, deploys again, and ends it: the dead one is reported, the
// others end well, and neither a process nor a file is left.
func TestStack(t *testing.T) {
	s := start(t, "-transport", "pubsub")
	if n := len(s.processes()); n < 8 { // it, MariaDB, Redis and five programs
		t.Fatalf("%d processes\n%s", n, s.out.String())
	}
	s.deploys()
	s.kill("deployer")
	s.says("the others go on. The end of its log:\n{")
	s.deploys()
	if code := s.stop(syscall.SIGTERM); code != 1 || !strings.Contains(s.out.String(), "ended with exit code -1") {
		t.Errorf("exit code %d with a dead deployer\n%s", code, s.out.String())
	}
	s.leavesNothing()
}

// All programs end well on SIGTERM and on Ctrl-C, and nothing is left.
func TestStackStops(t *testing.T) {
	for _, transport := range []string{"batch", "legacy"} {
		t.Run(transport, func(t *testing.T) {
			s := start(t, "-transport", transport)
			s.deploys()
			signal := map[string]os.Signal{"batch": syscall.SIGTERM, "legacy": os.Interrupt}[transport]
			if code := s.stop(signal); code != 0 {
				t.Errorf("exit code %d\n%s", code, s.out.String())
			}
			s.leavesNothing()
		})
	}
}

// A stack that is stopped while it starts says so and leaves nothing.
func TestStackStopsWhileItStarts(t *testing.T) {
	s := launch(t, "-transport", "pubsub")
	s.says("MariaDB and Redis")
	if code := s.stop(syscall.SIGTERM); code != 1 {
		t.Errorf("exit code %d\n%s", code, s.out.String())
	}
	s.leavesNothing()
}

func TestStackRefusesAnotherTransport(t *testing.T) {
	s := launch(t, "-transport", "pigeon")
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(s.out.String(), "pubsub sqs batch legacy") {
		t.Errorf("exit code %d\n%s", code, s.out.String())
	}
}

// stack is the program under test. All its files are in folder.
type stack struct {
	t             *testing.T
	folder, ready string
	cmd           *exec.Cmd
	out           observetest.Log
	ended         chan struct{}
	api           *client.Client
}

// launch starts the program, which is built for it.
func launch(t *testing.T, args ...string) *stack {
	t.Helper()
	folder, err := os.MkdirTemp("", "ew-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	program := filepath.Join(t.TempDir(), "stack")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	s := &stack{t: t, folder: folder, ready: filepath.Join(t.TempDir(), "ready.json"), ended: make(chan struct{})}
	s.cmd = exec.CommandContext(t.Context(), program, append(args, "-ready-file", s.ready)...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+folder)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	err = s.cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.ended) }() // the exit code says it
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); <-s.ended })
	return s
}

// start launches the program and waits until all is up.
func start(t *testing.T, args ...string) *stack {
	t.Helper()
	s := launch(t, args...)
	s.says("Stop with Ctrl-C")
	raw, err := os.ReadFile(s.ready)
	if err != nil {
		t.Fatal(err)
	}
	var ready devkit.Ready
	err = json.Unmarshal(raw, &ready)
	if err != nil {
		t.Fatal(err)
	}
	s.api, err = client.New(client.Params{BaseURL: ready.APIURL, Token: ready.ManagerToken})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// says waits until the program has printed the text.
func (s *stack) says(text string) {
	s.t.Helper()
	s.await(func() bool { return strings.Contains(s.out.String(), text) }, "say "+text)
}

func (s *stack) await(done func() bool, what string) {
	s.t.Helper()
	limit := time.After(patience)
	for !done() {
		select {
		case <-s.ended:
			s.t.Fatalf("it ended and did not %s\n%s", what, s.out.String())
		case <-limit:
			s.t.Fatalf("it does not %s\n%s", what, s.out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// deploys deploys the example.
func (s *stack) deploys() {
	s.t.Helper()
	ctx := s.t.Context()
	folder := filepath.Join(s.t.TempDir(), "orders")
	err := os.CopyFS(folder, os.DirFS("../../examples/orders"))
	if err != nil {
		s.t.Fatal(err)
	}
	note := []byte(time.Now().String()) // another bundle each time
	err = os.WriteFile(filepath.Join(folder, "static", "note.txt"), note, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	archive, err := project.Pack(folder)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.api.SubmitVersion(ctx, archive, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	ticket, err := s.api.Deploy(ctx, v.ID, v.Revision)
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := s.api.Wait(ctx, ticket.TicketID, client.WaitParams{})
	if err != nil || got.Status != gen.TicketStatusCompleted {
		s.t.Fatalf("ticket %s: %v\n%s", got.Status, err, s.out.String())
	}
}

// stop sends the signal and gives the exit code.
func (s *stack) stop(signal os.Signal) int {
	s.t.Helper()
	err := s.cmd.Process.Signal(signal)
	if err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("it does not stop\n%s", s.out.String())
	}
	return s.cmd.ProcessState.ExitCode()
}

// processes are those that live in the stack's folder, with their commands.
func (s *stack) processes() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range names {
		environment, _ := os.ReadFile(filepath.Join(name, "environ")) // it may have ended, or be another's
		cwd, _ := os.Readlink(filepath.Join(name, "cwd"))             // Redis writes over its environment
		if bytes.Contains(append([]byte{0}, environment...), []byte("\x00TMPDIR="+s.folder)) || strings.HasPrefix(cwd, s.folder) {
			command, _ := os.ReadFile(filepath.Join(name, "cmdline"))
			found[filepath.Base(name)] = string(command)
		}
	}
	return found
}

// kill ends one process of that program as a power cut would.
func (s *stack) kill(program string) {
	s.t.Helper()
	for pid, command := range s.processes() {
		if filepath.Base(strings.TrimRight(command, "\x00")) != program {
			continue
		}
		n, err := strconv.Atoi(pid)
		if err == nil {
			err = syscall.Kill(n, syscall.SIGKILL)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.t.Fatalf("no process is a %s: %v", program, s.processes())
}

// leavesNothing looks once it has ended. What it killed may need a moment to go.
func (s *stack) leavesNothing() {
	s.t.Helper()
	limit := time.After(patience)
	for left := s.processes(); len(left) > 0; left = s.processes() {
		select {
		case <-limit:
			s.t.Fatalf("processes are left: %v", left)
		case <-time.After(20 * time.Millisecond):
		}
	}
	left, err := os.ReadDir(s.folder)
	if err != nil || len(left) > 0 {
		s.t.Errorf("files are left: %v, %v", left, err)
	}
}
