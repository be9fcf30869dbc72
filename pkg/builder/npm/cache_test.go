package npm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
)

// shelf is a registry, a cache folder and two packages.
type shelf struct {
	*npmtest.Registry
	t    *testing.T
	dir  string
	a, b npmtest.Package
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{npmtest.New(t), t, filepath.Join(t.TempDir(), "made", "here"), code("a", "1.0.0", "text of a"), code("b", "1.0.0", "text of b")}
	s.Add(s.a, s.b)
	return s
}

// install is one process that installs packages.
func (s *shelf) install(limit int64, all ...npmtest.Package) {
	s.t.Helper()
	made := packages(s.t, npm.Params{Registry: s.URL, CacheDir: s.dir, CacheBytes: limit})
	tree, err := made.Install(s.t.Context(), locked(s.t, made, all...), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range all {
		if got := entry(s.t, tree, p.Name); !strings.HasPrefix(got, "text of "+p.Name[:1]) {
			s.t.Errorf("%s holds %.40q", p.Name, got)
		}
	}
}

// A second process finds what the first one left.
func TestCacheFolderIsShared(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.install(0, s.a, s.b)
	s.install(0, s.a, s.b)
	s.install(0, s.b)
	if s.Requests() != 2 {
		t.Errorf("%d requests", s.Requests())
	}
	for _, path := range npmtest.Cached(t, s.dir) {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

// A damaged file is never used: it goes, and the package is fetched again.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string, content []byte) error{
		"a changed byte": func(path string, content []byte) error {
			content[len(content)/2] ^= 1
			return os.WriteFile(path, content, 0o600)
		},
		"cut":       func(path string, content []byte) error { return os.WriteFile(path, content[:len(content)/2], 0o600) },
		"empty":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"too large": func(path string, _ []byte) error { return os.Truncate(path, npm.MaxTarball+1) },
		"another":   func(path string, _ []byte) error { return os.WriteFile(path, pad.Tarball, 0o600) },
		"gone":      func(path string, _ []byte) error { return os.Remove(path) },
		"a folder": func(path string, _ []byte) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.install(0, s.a)
			path := npmtest.Cached(t, s.dir)[0]
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			err = damage(path, content)
			if err != nil {
				t.Fatal(err)
			}
			s.install(0, s.a)
			s.install(0, s.a)
			if s.Requests() != 2 {
				t.Errorf("%d requests, want the first and one after the damage", s.Requests())
			}
		})
	}
}

// The folder stays within its bound: what was used least recently goes first.
func TestCacheBound(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	var all []npmtest.Package
	for i := range 12 {
		// Random-looking text, so that it stays large when it is packed.
		var text strings.Builder
		for j := range 2000 {
			fmt.Fprintf(&text, "%x", (i+1)*2654435761*(j+7919)%4294967291)
		}
		all = append(all, code(fmt.Sprintf("a%d", i), "1.0.0", "text of a"+text.String()))
	}
	s.Add(all...)
	limit := int64(len(all[0].Tarball)) * 6
	for i, p := range all {
		s.install(limit, all[0])
		s.install(limit, p)
		// Times are set here, so that the order does not hang on the clock.
		for _, path := range npmtest.Cached(t, s.dir) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(info.ModTime()) < time.Minute {
				then := time.Now().Add(time.Duration(i-2*len(all)) * time.Hour)
				if err := os.Chtimes(path, then, then); err != nil {
					t.Fatal(err)
				}
			}
		}
		var total int64
		for _, path := range npmtest.Cached(t, s.dir) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		if total > limit {
			t.Fatalf("after %d packages the folder has %d bytes, more than %d", i+1, total, limit)
		}
	}
	if s.Asked(all[0]) != 1 {
		t.Errorf("the package that is used always was fetched %d times", s.Asked(all[0]))
	}
	s.install(limit, all[1])
	if s.Asked(all[1]) != 2 {
		t.Errorf("the package that is used never was fetched %d times", s.Asked(all[1]))
	}
}

// What a dead process left unfinished goes after an hour; a living one's stays.
func TestUnfinishedFiles(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.install(0, s.a)
	folder := filepath.Dir(npmtest.Cached(t, s.dir)[0])
	old, young := filepath.Join(folder, ".new-1"), filepath.Join(folder, ".new-2")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	s.install(0, s.a)
	if left := npmtest.Cached(t, s.dir); len(left) != 2 || s.Requests() != 1 {
		t.Errorf("left %q, %d requests", left, s.Requests())
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// A folder that cannot be written costs the cache and not the build.
func TestCacheThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.install(0)
	made := packages(t, npm.Params{Registry: s.URL, CacheDir: s.dir})
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.dir, nil, 0o600); err != nil { // a file where the folder was
		t.Fatal(err)
	}
	tree, err := made.Install(t.Context(), locked(t, made, s.a), nil)
	if err != nil || entry(t, tree, "a") != "text of a" {
		t.Error(err)
	}
	_, err = npm.New(npm.Params{CacheDir: filepath.Join(s.dir, "below")})
	if err == nil {
		t.Error("a folder that cannot be made is accepted at the start")
	}
}

// Memory holds what fits, and the rest is unpacked again.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{1: 4, 3000: 2} {
		s := newShelf(t)
		made := packages(t, npm.Params{Registry: s.URL, MemoryBytes: limit})
		for range 2 {
			_, err := made.Install(t.Context(), locked(t, made, s.a, s.b), nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.Requests() != want {
			t.Errorf("with %d bytes: %d requests, want %d", limit, s.Requests(), want)
		}
	}
}
