//go:build unix && !linux

package failpoint

import (
	"os"
	"syscall"
)

// signalSelf sends the signal to the own process.
func signalSelf(signal syscall.Signal) error { return syscall.Kill(os.Getpid(), signal) }
