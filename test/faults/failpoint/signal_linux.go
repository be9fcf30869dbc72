package failpoint

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalSelf sends the signal to the calling thread, so that it takes effect
// before the call returns. Both signals act on the whole process.
func signalSelf(signal syscall.Signal) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), signal)
}
