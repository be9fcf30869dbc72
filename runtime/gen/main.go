// Command gen bundles the Worker runtime and its one library into
// dist/runtime.mjs, and the dispatcher Worker into dist/dispatcher.mjs. It runs in the runtime folder (`go generate ./runtime`) and
// installs the packages of the lock file there when they are missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/teamsync/edge-workers/runtime/bundle"
)

const modules = "node_modules"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	_, err := os.Stat(modules)
	if errors.Is(err, fs.ErrNotExist) {
		err = install(ctx)
	}
	if err != nil {
		return err
	}
	text, err := bundle.Build(".", modules)
	if err != nil {
		return err
	}
	dispatcher, err := bundle.Dispatcher(".")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join("dist", "runtime.mjs"), text, 0o600),
		os.WriteFile(filepath.Join("dist", "dispatcher.mjs"), dispatcher, 0o600),
	)
}

// install fetches exactly the packages of the lock file; no script of them runs.
func install(ctx context.Context) error {
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Stdout, npm.Stderr = os.Stderr, os.Stderr
	err := npm.Run()
	if err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return nil
}
