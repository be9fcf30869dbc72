// Command gen bundles the Worker runtime and its one library into
// dist/runtime.mjs. It runs with the runtime folder as the working directory
// (`go generate ./runtime`) or given as its argument, and installs the packages
// of the lock file there when they are missing.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/teamsync/edge-workers/runtime/bundle"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	err := run(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	modules := filepath.Join(dir, "node_modules")
	_, err := os.Stat(modules)
	if errors.Is(err, fs.ErrNotExist) {
		err = install(dir)
	}
	if err != nil {
		return err
	}
	text, err := bundle.Build(dir, modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "dist", "runtime.mjs"), text, 0o644)
}

// install fetches exactly the packages of the lock file; no script of them runs.
func install(dir string) error {
	npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	npm.Stdout, npm.Stderr = os.Stderr, os.Stderr
	err := npm.Run()
	if err != nil {
		return fmt.Errorf("npm ci in %s: %w", dir, err)
	}
	return nil
}
