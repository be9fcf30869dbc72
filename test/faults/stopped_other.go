//go:build !linux

package faults

import "errors"

// waitStopped needs a wait that does not reap.
func (p *process) waitStopped() error {
	return errors.New("the fault matrix stops processes, which it can wait for on Linux only")
}
