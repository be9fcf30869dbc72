package workerd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is one workerd process that was started. It is gone when Done is
// closed: exited, waited for, and its output read to the end.
type Process struct {
	cmd    *exec.Cmd
	output *output
	listen chan struct{} // closed when both sockets listen
	done   chan struct{}
	exit   string // valid after done
}

// launchSpec is what differs between serving and validation.
type launchSpec struct {
	binary string
	dir    string // working folder: holds the configuration and the bundle
	args   []string
	extra  []*os.File // inherited from descriptor 4 on
	uid    uint32     // 0: keep the host's
	logger *slog.Logger
}

// launch starts workerd and the goroutines that read from it.
func (r *Runner) launch(spec launchSpec) (*Process, error) {
	control, controlW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("control pipe: %w", err)
	}
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output pipe: %w", err), control.Close(), controlW.Close())
	}
	args := append([]string{"serve", configFile, "config", "--control-fd=3"}, spec.args...)
	//nolint:gosec,noctx // G204: the operator names the binary; the process outlives every request and is stopped by signals
	cmd := exec.Command(spec.binary, args...)
	cmd.Dir = spec.dir
	cmd.Env = []string{} // nothing of the host's environment reaches a Worker
	cmd.Stdout, cmd.Stderr = stdoutW, stdoutW
	cmd.ExtraFiles = append([]*os.File{controlW}, spec.extra...)
	cmd.SysProcAttr = processAttributes(spec.uid)
	startErr := r.spawn.do(cmd.Start)
	_ = controlW.Close()
	_ = stdoutW.Close()
	if startErr != nil {
		return nil, errors.Join(fmt.Errorf("start workerd: %w", startErr), control.Close(), stdout.Close())
	}
	limitResources(cmd.Process.Pid)
	p := &Process{cmd: cmd, output: newOutput(spec.logger), listen: make(chan struct{}), done: make(chan struct{})}
	go p.follow(control, stdout)
	return p, nil
}

func (p *Process) follow(control, stdout *os.File) {
	var readers sync.WaitGroup
	readers.Go(func() {
		if awaitListen(control, mainSocket, healthSocket) {
			close(p.listen)
		}
		_ = control.Close()
	})
	readers.Go(func() {
		p.output.read(stdout)
		_ = stdout.Close()
	})
	err := p.cmd.Wait()
	readers.Wait()
	p.exit = "exit status 0"
	if err != nil {
		p.exit = err.Error()
	}
	close(p.done)
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit describes how the process ended. It waits for the end.
func (p *Process) Exit() string {
	<-p.done
	return p.exit
}

// Kill sends SIGKILL. Wait for Done afterwards.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Stop sends SIGTERM, which lets requests in flight finish, and SIGKILL after
// grace. It returns when the process is gone and reports whether SIGKILL was
// needed.
func (p *Process) Stop(grace time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
		p.Kill()
		<-p.done
		return true
	}
}

// Memory returns what the process itself occupies, in bytes: the resident
// size while that is at most limit, otherwise the proportional size, which
// does not count the program text that all processes share several times.
// It is false where the system does not tell.
func (p *Process) Memory(limit uint64) (uint64, bool) { return memory(p.PID(), limit) }

// spawner starts processes from one thread that lives as long as the host:
// the kernel sends the parent-death signal when the starting thread ends.
type spawner struct {
	requests chan func()
}

func (s *spawner) do(start func() error) error {
	result := make(chan error, 1)
	s.requests <- func() { result <- start() }
	return <-result
}
