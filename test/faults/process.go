package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// process is one running node.
type process struct {
	command  *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// outcome is how a node ended.
type outcome struct {
	Reply  control.Reply
	Code   int            // exit code; -1 after a signal
	Signal syscall.Signal // 0 without one
	Log    string
}

// processLimit bounds a node's life. It hits only what hangs.
const processLimit = 90 * time.Second

// start starts a node.
func start(node string, env []string, args ...string) (*process, error) {
	//nolint:noctx // a fault decides about its life; processLimit bounds it
	p := &process{command: exec.Command(node, args...), done: make(chan struct{})} // #nosec G204 -- the harness's own binary
	p.command.Env = append(os.Environ(), env...)
	p.command.Stdout, p.command.Stderr = &p.out, &p.err
	p.command.SysProcAttr = daemon.BoundToParent()
	err := daemon.OnLastingThread(p.command.Start)
	if err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	go func() {
		_ = p.command.Wait() // the state tells
		close(p.done)
	}()
	return p, nil
}

// wait waits for the end.
func (p *process) wait() (outcome, error) {
	limit := time.NewTimer(processLimit)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		_ = p.command.Process.Signal(syscall.SIGQUIT)
		_ = p.command.Process.Signal(syscall.SIGCONT)
		<-p.done
		return outcome{}, fmt.Errorf("the node did not end within %s:\n%s", processLimit, p.err.String())
	}
	result := outcome{Code: p.command.ProcessState.ExitCode(), Log: p.err.String()}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		result.Signal = status.Signal()
		return result, nil
	}
	err := json.Unmarshal(p.out.Bytes(), &result.Reply)
	if err != nil {
		return outcome{}, fmt.Errorf("the node's reply: %w:\n%s\n%s", err, p.out.String(), p.err.String())
	}
	return result, nil
}

// resume lets a stopped process go on.
func (p *process) resume() error { return p.command.Process.Signal(syscall.SIGCONT) }
