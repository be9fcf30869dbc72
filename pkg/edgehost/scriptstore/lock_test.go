package scriptstore

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A folder is free once its host has closed it, although a child that was being
// forked at that moment still has the lock's file open.
func TestClosedWhileForking(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(first.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(child) })
	if _, err := Open(dir, nil); err == nil {
		t.Error("the folder has two owners")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
