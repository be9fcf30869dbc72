package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// marker finds a failpoint's declaration in the code.
var marker = regexp.MustCompile(`(?m)^\s*// gofail: var (\w+) string$`)

// sourceRoots are the folders whose code may have failpoints.
var sourceRoots = []string{"models", "pkg", "transports"}

// Markers lists the failpoints of the module in root by the file that has
// them.
func Markers(root string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, folder := range sourceRoots {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path) // #nosec G122 -- the module's own tree
			if err != nil {
				return err
			}
			for _, match := range marker.FindAllStringSubmatch(string(code), -1) {
				found[path] = append(found[path], match[1])
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for failpoints: %w", err)
		}
	}
	return found, nil
}
