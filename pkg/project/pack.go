package project

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Pack makes the archive of a folder: the same bytes for the same files, on
// any machine. Folders named node_modules and everything whose name begins
// with a dot are left out. Links and other special files are an error, and so
// is a folder over the bounds of this package; the manifest is not looked at.
func Pack(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the project folder: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for reading
	paths, err := packable(root.FS())
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	archive := tar.NewWriter(zip)
	total := 0
	for _, path := range paths {
		size, err := packFile(archive, root, path, MaxUnpacked-total)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
		total += size
	}
	err = errors.Join(archive.Close(), zip.Close())
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	if out.Len() > MaxCompressed {
		return nil, fmt.Errorf("pack %s: the archive has %d bytes, more than 2 MiB", dir, out.Len())
	}
	return out.Bytes(), nil
}

// packable lists the files to pack, sorted by path bytes.
func packable(folder fs.FS) ([]string, error) {
	var paths []string
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", path)
		}
		_, fault := cleanPath(path, false)
		if fault != "" {
			return fmt.Errorf("%q: %s", path, fault)
		}
		paths = append(paths, path)
		if len(paths) > MaxFiles {
			return fmt.Errorf("more than %d files", MaxFiles)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("the folder has no files")
	}
	slices.Sort(paths)
	return paths, nil
}

// packFile adds one file with nothing in its header that differs between two
// machines.
func packFile(archive *tar.Writer, root *os.Root, path string, left int) (int, error) {
	info, err := root.Stat(filepath.FromSlash(path))
	if err != nil {
		return 0, err
	}
	if info.Size() > int64(left) {
		return 0, errors.New("the files exceed 16 MiB")
	}
	content, err := root.ReadFile(filepath.FromSlash(path))
	if err != nil {
		return 0, err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     path,
		Size:     int64(len(content)),
		Mode:     0o644,
		ModTime:  time.Unix(0, 0),
	}
	err = archive.WriteHeader(header)
	if err != nil {
		return 0, err
	}
	return archive.Write(content)
}
