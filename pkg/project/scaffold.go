package project

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/teamsync/edge-workers/runtime"
)

// scaffoldFiles are the files of a new project; @NAME@ stands for its name.
//
//go:embed scaffold
var scaffoldFiles embed.FS

// projectName is the pattern of the manifest's name.
var projectName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}\z`)

// Scaffold writes a new TypeScript project into dir, which is made if it does
// not exist: worker.json, sources, a TypeScript configuration with the types
// for authors, and a README. It never writes over a file: if one of them
// exists, it is an error and nothing is written.
func Scaffold(dir, name string) error {
	if !projectName.MatchString(name) {
		return fmt.Errorf("%q is no project name: use letters, digits, spaces, '.', '_' and '-', at most 64", name)
	}
	files, err := scaffold(name)
	if err != nil {
		return fmt.Errorf("prepare the project: %w", err)
	}
	for path := range files {
		_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(path)))
		if err == nil {
			return fmt.Errorf("%s exists already in %s", path, dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for %s: %w", path, err)
		}
	}
	for path, content := range files {
		target := filepath.Join(dir, filepath.FromSlash(path))
		err := os.MkdirAll(filepath.Dir(target), 0o750)
		if err != nil {
			return fmt.Errorf("make the project folder: %w", err)
		}
		err = os.WriteFile(target, content, 0o600)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

func scaffold(name string) (map[string][]byte, error) {
	files := map[string][]byte{
		"types/edge-worker.d.ts":   []byte(runtime.AuthorTypes()),
		"types/worker.schema.json": ManifestSchema(),
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer(`"@NAME@"`, string(quoted), "@NAME@", name)
	err = fs.WalkDir(scaffoldFiles, "scaffold", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := scaffoldFiles.ReadFile(path)
		files[strings.TrimPrefix(path, "scaffold/")] = []byte(fill.Replace(string(content)))
		return err
	})
	return files, err
}
