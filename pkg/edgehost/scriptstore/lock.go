package scriptstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unlock gives the lock up for every copy of the file. Closing it alone does not:
// a child that this process forks at the same moment has one until it has become
// another program.
func unlock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_UN)
	if err != nil {
		return fmt.Errorf("unlock %s: %w", filepath.Base(file.Name()), err)
	}
	return nil
}

// LockStorage takes the lock of the script's storage folder and waits for it
// while ctx lasts: a Worker of a host that was just killed may need a moment
// to die. Closing the file gives the lock up, unless a child inherited it.
func (s *Store) LockStorage(ctx context.Context, name string) (*os.File, error) {
	path := s.scriptPath(name, "storage.lock")
	for {
		file, err := tryLock(path)
		if err == nil || !errors.Is(err, ErrLocked) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("storage of %s is in use: %w", name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
