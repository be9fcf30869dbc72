package daemon

import "syscall"

// BoundToParent makes the kernel kill the child when its parent goes. The
// child gets a process group of its own, so that a Ctrl-C in the terminal
// reaches the tests and not the servers that they still need.
func BoundToParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
