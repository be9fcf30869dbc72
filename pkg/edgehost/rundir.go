package edgehost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// openRunDir returns an empty folder for sockets: run/ in the data folder or,
// when paths in it would be too long for sockets, a folder in the system's
// temporary folder whose name is derived from the data folder, so that the
// next start finds and empties it.
func openRunDir(dataDir string) (string, error) {
	name := "ew-" + canonical.SHA256([]byte(dataDir))[:12]
	var err error
	for _, dir := range []string{filepath.Join(dataDir, "run"), filepath.Join(os.TempDir(), name), filepath.Join("/tmp", name)} {
		// A number or a random name of a validation comes on top.
		if err = workerd.CheckRunDir(filepath.Join(dir, "v1234567890")); err == nil {
			return dir, emptyRunDir(dir)
		}
	}
	return "", err
}

func emptyRunDir(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil {
		// In a shared temporary folder someone else may have made it first.
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
			return fmt.Errorf("run folder %s is not a folder of this user", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("empty run folder: %w", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("run folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil { //nolint:gosec // G301: isolated uids must get through to their own folders
		return fmt.Errorf("run folder: %w", err)
	}
	return nil
}

func removeRunDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove run folder: %w", err)
	}
	return nil
}

// traversable refuses a folder that isolated uids cannot get through to their
// storage and sockets.
func traversable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("isolation: other uids cannot get through %s; give it mode 0711", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
