package npm

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// cache keeps verified tarballs in a folder, one file each, named by digest.
// Several processes may share it: a file appears whole, by renaming, is
// verified each time it is read, and may vanish at any time. Its faults never
// fail a build; the package is fetched again.
type cache struct {
	dir   string
	limit int64
	log   *slog.Logger

	mu sync.Mutex
	// known is what the folder held when it was last looked through, and what
	// was written here since.
	known int64
}

const (
	tarballSuffix    = ".tgz"
	unfinishedPrefix = ".new-"
	// unfinishedAge is how old a file must be to be that of a dead process: no
	// tarball takes so long to write.
	unfinishedAge = time.Hour
)

// cacheKey names a package's tarball: by its digest, and by the name and version
// for which the registry delivered it. Without these a lock file could claim
// that a package has the bytes of another one, and would be believed or not
// depending on what is in the cache.
func cacheKey(entry Entry) string {
	return entry.Integrity.Hex() + "-" + canonical.SHA256([]byte(entry.String()))[:16]
}

func openCache(dir string, limit int64, log *slog.Logger) (*cache, error) {
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("open the npm cache: %w", err)
	}
	c := &cache{dir: dir, limit: limit, log: log}
	return c, c.trim()
}

func (c *cache) path(entry Entry) string {
	key := cacheKey(entry)
	return filepath.Join(c.dir, key[:2], key+tarballSuffix)
}

// get returns a package's tarball, verified, or nil.
func (c *cache) get(ctx context.Context, entry Entry) []byte {
	path := c.path(entry)
	info, err := os.Stat(path)
	if err == nil && info.Size() > MaxTarball {
		err = errors.New("the file is too large")
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && sha512.Sum512(content) != entry.Integrity {
		err = errors.New("the file is damaged")
	}
	if err != nil {
		c.log.WarnContext(ctx, "npm cache entry dropped", "package", entry.String(), "error", errors.Join(err, os.Remove(path)))
		return nil
	}
	now := time.Now()
	err = os.Chtimes(path, now, now) // the time of the last use, for trim
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.WarnContext(ctx, "npm cache entry not marked as used", "package", entry.String(), "error", err)
	}
	return content
}

// put keeps a verified tarball.
func (c *cache) put(ctx context.Context, entry Entry, content []byte) {
	err := c.write(c.path(entry), content)
	if err == nil {
		err = c.grown(int64(len(content)))
	}
	if err != nil {
		c.log.WarnContext(ctx, "npm cache not written", "package", entry.String(), "error", err)
	}
}

func (c *cache) write(path string, content []byte) error {
	folder := filepath.Dir(path)
	err := os.MkdirAll(folder, 0o700)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(folder, unfinishedPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // gone already when all went well
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// grown trims the folder when it is over its bound.
func (c *cache) grown(bytes int64) error {
	c.mu.Lock()
	c.known += bytes
	over := c.known > c.limit
	c.mu.Unlock()
	if !over {
		return nil
	}
	return c.trim()
}

// tarball is one file of the folder.
type tarball struct {
	path string
	size int64
	used time.Time
}

// trim looks through the folder, removes what dead processes left unfinished,
// and, when it holds more than its bound, the files used least recently until a
// tenth of the bound is free.
func (c *cache) trim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, left, err := c.scan()
	if err != nil {
		return fmt.Errorf("look through the npm cache: %w", err)
	}
	c.known = 0
	for _, file := range files {
		c.known += file.size
	}
	if c.known > c.limit {
		slices.SortFunc(files, func(a, b tarball) int { return a.used.Compare(b.used) })
		for _, file := range files {
			if c.known <= c.limit-c.limit/10 {
				break
			}
			left = append(left, file.path)
			c.known -= file.size
		}
	}
	for _, path := range left {
		err := vanished(os.Remove(path))
		if err != nil {
			return fmt.Errorf("trim the npm cache: %w", err)
		}
	}
	return nil
}

// scan lists the tarballs, and what dead processes left.
func (c *cache) scan() ([]tarball, []string, error) {
	var files []tarball
	var left []string
	err := filepath.WalkDir(c.dir, func(path string, item fs.DirEntry, err error) error {
		if err != nil || item.IsDir() {
			return vanished(err)
		}
		info, err := item.Info()
		if err != nil {
			return vanished(err)
		}
		switch {
		case strings.HasPrefix(item.Name(), unfinishedPrefix):
			if time.Since(info.ModTime()) > unfinishedAge {
				left = append(left, path)
			}
		case strings.HasSuffix(item.Name(), tarballSuffix):
			files = append(files, tarball{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	return files, left, err
}

// vanished forgives a file that another process removed.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
