package edgehost

import "golang.org/x/sys/unix"

// freeBytes is what an ordinary user may still write to dir's file system.
func freeBytes(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint64(stat.Bavail) * uint64(stat.Bsize), nil //nolint:unconvert // some systems count with other types
}
