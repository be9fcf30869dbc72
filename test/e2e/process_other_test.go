//go:build !linux

package e2e_test

import "syscall"

// attributes puts a child into its own group; elsewhere than on Linux only the
// tests' cleanup ends it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
