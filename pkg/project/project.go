// Package project reads what a department manager uploads: a bounded
// `.tar.gz` with a manifest, sources and static data (decision D7). It also
// packs a folder into such an archive and writes the first files of a new one.
//
// Nothing in this package touches the network or a database. A faulty archive
// is a fault with one problem for each defect found; nothing is stored for it.
package project

import (
	"fmt"
	"io"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// The bounds of an archive (D7; S2-143, S1-090 for the first).
const (
	MaxCompressed = 2 << 20  // bytes of the uploaded .tar.gz
	MaxUnpacked   = 16 << 20 // bytes of all files together
	MaxFiles      = 1000     // regular files
	MaxFolders    = 1000     // folder entries, so that empty ones cannot pile up
	MaxPath       = 255      // bytes of one path
	MaxProblems   = 50       // problems that one answer lists
)

// ManifestName is the path of the manifest inside an archive.
const ManifestName = "worker.json"

// Project is an archive that was read completely and found clean. Its byte
// slices are shared, not copied: do not write to them.
type Project struct {
	// Archive is the exact uploaded archive, the evidence that is stored.
	Archive []byte
	// Digest is the hex SHA-256 of Archive.
	Digest string
	// Files holds each regular file by its path, with '/' and no leading "./".
	Files map[string][]byte
	// Manifest is worker.json, validated.
	Manifest *Manifest
	// ManifestJSON is the RFC 8785 form of worker.json.
	ManifestJSON []byte
}

// Read reads one archive and validates it and its manifest. It reads at most
// MaxCompressed+1 bytes from r and unpacks at most the bounds above.
//
// A longer archive is a fault of kind TooLarge, anything else that is wrong
// with the archive one of kind Invalid with at most MaxProblems problems, and
// a failure of r itself is returned wrapped.
func Read(r io.Reader) (*Project, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxCompressed+1))
	if err != nil {
		return nil, fmt.Errorf("read the project archive: %w", err)
	}
	if len(raw) > MaxCompressed {
		return nil, fault.New(fault.TooLarge, "Project archive exceeds 2 MiB")
	}
	found := &problems{}
	files := unpack(raw, found)
	if err := found.fault(); err != nil {
		return nil, err
	}
	manifest, text := readManifest(files, found)
	if err := found.fault(); err != nil {
		return nil, err
	}
	return &Project{
		Archive:      raw,
		Digest:       canonical.SHA256(raw),
		Files:        files,
		Manifest:     manifest,
		ManifestJSON: text,
	}, nil
}
