package runtime

import (
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed package-lock.json
var lock []byte

// Library is an npm package whose code is part of the runtime.
type Library struct {
	Name       string
	Version    string
	License    string // SPDX identifier
	PackageURL string
	SHA512     string // of the published package, hex
}

// Libraries lists the packages in the runtime, sorted by name, from its lock
// file.
func Libraries() ([]Library, error) {
	var file struct {
		Packages map[string]struct {
			Version, License, Integrity string
			Dev                         bool
		}
	}
	err := json.Unmarshal(lock, &file)
	if err != nil {
		return nil, fmt.Errorf("read the runtime's lock file: %w", err)
	}
	var all []Library
	for _, path := range slices.Sorted(maps.Keys(file.Packages)) {
		name, ok := strings.CutPrefix(path, "node_modules/")
		entry := file.Packages[path]
		if !ok || entry.Dev {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(entry.Integrity, "sha512-"))
		if err != nil {
			return nil, fmt.Errorf("integrity of %s: %w", name, err)
		}
		all = append(all, Library{
			Name:       name,
			Version:    entry.Version,
			License:    entry.License,
			PackageURL: "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + entry.Version,
			SHA512:     hex.EncodeToString(sum),
		})
	}
	return all, nil
}
