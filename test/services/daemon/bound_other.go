//go:build unix && !linux

package daemon

import "syscall"

// BoundToParent gives the child a process group of its own. Systems other than
// Linux have no parent-death signal: there a server outlives a starter that was
// killed with SIGKILL, and only then.
func BoundToParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
