// Package workerd runs the open-source workerd binary: it finds it, writes
// its configuration, validates bundles in throw-away processes, and starts,
// watches and stops serving processes.
package workerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Version is the exact npm version that this code was written and tested
// against; tools/npm/package.json pins the same one.
const Version = "1.20261117.1"

// ErrNotFound says that no workerd binary is on this machine.
var ErrNotFound = errors.New("workerd is not installed: run `make tools` in the repository (or `npm ci` in tools/npm), put the binary beside this executable, or configure its path")

// Find returns the absolute path of the workerd binary. explicit, when not
// empty, is the configured path and must be executable. Otherwise the places
// are, in this order: beside the running executable, PATH, and
// tools/npm/node_modules in the working folder or any folder above it.
func Find(explicit string) (string, error) {
	if explicit != "" {
		path, err := filepath.Abs(explicit)
		if err != nil {
			return "", fmt.Errorf("workerd path: %w", err)
		}
		if !executable(path) {
			return "", fmt.Errorf("the configured workerd %q is not an executable file", explicit)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "workerd"); executable(beside) {
			return beside, nil
		}
	}
	if path, err := exec.LookPath("workerd"); err == nil {
		return filepath.Abs(path)
	}
	return findInTools()
}

func findInTools() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", ErrNotFound
	}
	// The platform package holds the binary itself; workerd/bin may hold a
	// script when npm was told not to run install scripts.
	binary := filepath.Join("tools", "npm", "node_modules", "@cloudflare", platformPackage(), "bin", "workerd")
	for {
		if path := filepath.Join(dir, binary); executable(path) {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNotFound
		}
		dir = parent
	}
}

func platformPackage() string {
	arch := "64"
	if runtime.GOARCH == "arm64" {
		arch = "arm64"
	}
	return "workerd-" + runtime.GOOS + "-" + arch
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
