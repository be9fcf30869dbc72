package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// headers is what the headers and padding of MaxFiles files may add to a
// tarball's unpacked bytes.
const headers = MaxFiles * 1024

// maxFilePath is the longest path in a package, in bytes.
const maxFilePath = 1024

// importable are the kinds of files that are kept.
var importable = []string{".js", ".mjs", ".cjs", ".json"}

// silent are the kinds of files that no import ever means: types, source maps
// and texts. Other kinds are remembered by name, so that an import of one can be
// told from an import of nothing.
var silent = []string{".ts", ".mts", ".cts", ".map", ".md", ".flow"}

// Contents is an unpacked package: the files that code can import, and what its
// package.json says about them. It is shared between builds and, but for seen, read only.
type Contents struct {
	files     map[string]string    // by path inside the package
	others    map[string]bool      // files that exist but cannot be imported
	manifests map[string]*manifest // of each package.json, by its folder; "" is the package's own
	size      int64                // bytes of files
	seen      sync.Map             // what was found in files, by path: see Target.Once
}

// cost is what it takes in memory, roughly.
func (c *Contents) cost() int64 {
	const each = 200 // bytes of a map's entry and a path
	return c.size + int64(len(c.files)+len(c.others))*each
}

var errTooLarge = errors.New("the package exceeds its bound")

// unpack reads a package's tarball as npm does: without the first folder of each
// path, without links and special files, the last of two equal names. Every
// fault is a *fault.Error that names the package.
func unpack(entry Entry, raw []byte) (*Contents, error) {
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, refuse(packageInvalid, entry, "%s is not a package: it is not gzip", entry)
	}
	u := &unpacker{contents: &Contents{files: map[string]string{}, others: map[string]bool{}}, left: MaxUnpacked}
	err = u.read(tar.NewReader(&bounded{zip, MaxUnpacked + headers}))
	var refused *fault.Error
	switch {
	case errors.Is(err, errTooLarge):
		return nil, refuse(tooLarge, entry, "%s has more than 64 MiB, 32 MiB of code or %d files unpacked", entry, MaxFiles)
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, refuse(packageInvalid, entry, "%s is not a package: %v", entry, err)
	}
	u.contents.manifests, err = readManifests(u.contents.files)
	if err != nil {
		return nil, refuse(packageInvalid, entry, "%s is not a package: %v", entry, err)
	}
	return u.contents, nil
}

type unpacker struct {
	contents *Contents
	count    int
	left     int64 // bytes of files that may still come
}

func (u *unpacker) read(reader *tar.Reader) error {
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return damaged(err)
		}
		err = u.entry(header, reader)
		if err != nil {
			return err
		}
	}
}

func damaged(err error) error {
	if errors.Is(err, errTooLarge) {
		return errTooLarge
	}
	return fmt.Errorf("its tarball is damaged: %w", err)
}

func (u *unpacker) entry(header *tar.Header, body io.Reader) error {
	u.count++
	if u.count > MaxFiles {
		return errTooLarge
	}
	err := safePath(header.Name)
	if err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errors.New("it has a sparse file")
		}
	}
	// The header's size bounds the body, so this check comes before any byte.
	u.left -= header.Size
	if u.left < 0 {
		return errTooLarge
	}
	_, name, found := strings.Cut(path.Clean(header.Name), "/")
	if !found || strings.HasPrefix(name, modules) {
		return nil // outside the package's folder, or a package inside, which only the lock file may install
	}
	if !slices.Contains(importable, path.Ext(name)) {
		if !slices.Contains(silent, path.Ext(name)) {
			u.contents.others[name] = true
		}
		return nil
	}
	return u.keep(name, header.Size, body)
}

func (u *unpacker) keep(name string, size int64, body io.Reader) error {
	before := int64(len(u.contents.files[name]))
	if u.contents.size-before+size > MaxImportable {
		return errTooLarge
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return damaged(err)
	}
	u.contents.files[name] = string(content)
	u.contents.size += int64(len(content)) - before
	return nil
}

// safePath refuses what names a file outside the folder into which a package is
// unpacked. Nothing is written here; but such a package is an attack on those
// who write.
func safePath(name string) error {
	switch {
	case name == "" || len(name) > maxFilePath:
		return errors.New("it has a file without a name, or with one over 1,024 bytes")
	case strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\\x00") || strings.Contains(name, ":/"):
		return fmt.Errorf("its file %s has an absolute or unportable path", quoted(name))
	case slices.Contains(strings.Split(name, "/"), ".."):
		return fmt.Errorf("its file %s is outside the package", quoted(name))
	}
	return nil
}

// bounded fails with errTooLarge once left bytes were read.
type bounded struct {
	source io.Reader
	left   int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.source.Read(p)
	b.left -= int64(n)
	return n, err
}
