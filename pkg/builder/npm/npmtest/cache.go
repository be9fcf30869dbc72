package npmtest

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Cached lists the files of a cache folder, unfinished ones included.
func Cached(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, item fs.DirEntry, err error) error {
		if err == nil && !item.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
