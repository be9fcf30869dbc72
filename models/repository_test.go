package models_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
)

// S3-05: the schema comes from the models alone: the repository holds no
// migration. Example projects bring their own SQL, which is not ours.
func TestNoMigrations(t *testing.T) {
	t.Parallel()
	seen := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "node_modules" || path == "examples") {
			return fs.SkipDir
		}
		seen++
		if strings.HasSuffix(path, ".sql") || strings.Contains(strings.ToLower(path), "migrations/") {
			t.Errorf("%s looks like a migration", path)
		}
		return nil
	})
	if err != nil || seen < 200 {
		t.Fatalf("%d files, %v", seen, err)
	}
}
