package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds a wait for a signal that must come; nothing is measured by it.
const patience = 60 * time.Second

// process is a running edge host.
type process struct {
	t         *testing.T
	cmd       *exec.Cmd
	addresses map[string]string

	mu   sync.Mutex
	text bytes.Buffer
	read chan struct{} // closed when its log has ended
}

func command(t *testing.T, environment map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{asHost + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// runHost runs a host that ends by itself and gives its exit code and output.
func runHost(t *testing.T, environment map[string]string, args ...string) (int, string) {
	t.Helper()
	out, err := command(t, environment, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0, string(out)
	}
	return exit.ExitCode(), string(out)
}

// startHost starts a host and waits until its log has named all three addresses.
func startHost(t *testing.T, environment map[string]string) *process {
	t.Helper()
	h := &process{t: t, cmd: command(t, environment), addresses: map[string]string{}, read: make(chan struct{})}
	log, err := h.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = h.cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(h.read)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if h.note(lines.Bytes()) {
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
	case <-h.read:
		t.Fatalf("the host ended: %v\n%s", h.cmd.Wait(), h.log())
	case <-time.After(patience):
		t.Fatalf("the host is not up:\n%s", h.log())
	}
	return h
}

// note keeps a line of the log and tells whether it named the last address.
func (h *process) note(line []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(line)
	h.text.WriteByte('\n')
	name, address := listens(line)
	if name == "" {
		return false
	}
	h.addresses[name] = address
	return len(h.addresses) == 3
}

// listens reads the log line of a server that has its address.
func listens(line []byte) (string, string) {
	var said struct{ Msg, Server, Address string }
	err := json.Unmarshal(line, &said)
	if err != nil || said.Msg != "server listens" {
		return "", ""
	}
	return said.Server, said.Address
}

func (h *process) url(server string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return "http://" + h.addresses[server]
}

func (h *process) log() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// stop asks the host to end, as a service manager does, and gives its exit code.
func (h *process) stop() int {
	h.t.Helper()
	err := h.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil {
		h.t.Fatal(err)
	}
	select {
	case <-h.read:
	case <-time.After(patience):
		h.t.Fatalf("the host does not stop:\n%s", h.log())
	}
	err = h.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	return h.cmd.ProcessState.ExitCode()
}
