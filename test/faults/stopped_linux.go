package faults

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// cldStopped is CLD_STOPPED, the reason of a waitid for a stopped child.
const cldStopped = 5

// waitStopped waits until the process has stopped. It is an error if it ends
// instead.
func (p *process) waitStopped() error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.command.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("the node ended and did not stop: %w", err)
		case info.Code == cldStopped:
			return nil
		}
		<-p.done
		return fmt.Errorf("the node ended and did not stop: %s\n%s", p.out.String(), p.err.String())
	}
}
