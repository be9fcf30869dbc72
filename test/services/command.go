package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/test/services/daemon"
)

// grace is what a signalled command gets to end by itself; go test uses it to
// stop its test binaries.
const grace = 10 * time.Second

// execute runs the command to its end and gives its exit code, 128 plus the
// number for one that a signal ended, as shells do. Signals are passed on to
// the whole process group of the command, and what is left of that group when
// the command has ended is killed.
func execute(arguments, environment []string, signals <-chan os.Signal) (int, error) {
	arguments, report := condense(arguments)
	//nolint:noctx // it is stopped by signals, with a grace period
	command := exec.Command(arguments[0], arguments[1:]...) // #nosec G204 G702 -- running the caller's command is the purpose
	command.Env = environment
	command.Stderr = os.Stderr
	command.Stdout = os.Stdout
	if report != nil {
		command.Stdout = report
	}
	// A test that leaves a process with its output behind must not hold us up.
	command.WaitDelay = time.Second
	command.SysProcAttr = daemon.BoundToParent()
	err := daemon.OnLastingThread(command.Start)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", arguments[0], err)
	}
	ended := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		passSignals(command.Process.Pid, signals, ended)
		close(passed)
	}()
	err = command.Wait()
	close(ended)
	<-passed
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // no such group: nothing was left
	if report != nil {
		report.finish()
	}
	return exitCode(err)
}

// passSignals forwards signals to the group until the command has ended; the
// first one starts the grace period, after which the group is killed.
func passSignals(group int, signals <-chan os.Signal, ended <-chan struct{}) {
	var late <-chan time.Time
	for {
		select {
		case <-ended:
			return
		case caught := <-signals:
			number, ok := caught.(syscall.Signal)
			if !ok {
				continue
			}
			_ = syscall.Kill(-group, number) // no such group: it has just ended
			if late == nil {
				late = time.After(grace)
			}
		case <-late:
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
}

func exitCode(err error) (int, error) {
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return 0, nil // the second: ended well, but something it started kept its output open
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for the command: %w", err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
