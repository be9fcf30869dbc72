//go:build !linux

package workerd

import "syscall"

// IsolationSupported reports whether Workers can run under their own uid in
// an empty network namespace: only on Linux.
func IsolationSupported() bool { return false }

func processAttributes(uint32) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func limitResources(int) {}

// memory is not known here: the heap limit of V8 is the only memory limit.
func memory(int, uint64) (uint64, bool) { return 0, false }
