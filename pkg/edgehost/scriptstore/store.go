// Package scriptstore keeps the scripts of an edge host on disk. Versions are
// immutable folders, one small file names the current one and is replaced
// atomically, and each script has one storage folder across all versions.
// A kill at any moment leaves the old or the new release, never a mix.
//
//	host.lock                      held by the one host that owns the folder
//	fence.json                     the backup fence, kept across restarts
//	scripts/<name>/script.json     storage key and creation time, written once
//	scripts/<name>/current.json    the version that is served
//	scripts/<name>/versions/<id>/  index.mjs, release.json
//	scripts/<name>/storage/        the Worker's Durable Object data
//	scripts/<name>/storage.lock    held while a process may use storage/
//	tmp/                           unfinished versions and deleted scripts
package scriptstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// ErrNotFound says that the script does not exist.
var ErrNotFound = errors.New("script not found")

// ErrDamaged says that files of a script are not what was written.
var ErrDamaged = errors.New("script files are damaged")

var (
	namePattern = regexp.MustCompile(`\Adw-[0-9a-f]{48}\z`)
	idPattern   = regexp.MustCompile(`\A[0-9a-f]{64}\z`)
)

// ValidName reports whether name is a script name: dw- and 48 hex digits.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// Release is the metadata of one version, as uploaded.
type Release struct {
	MainModule         string                     `json:"main_module"`
	CompatibilityDate  string                     `json:"compatibility_date"`
	CompatibilityFlags []string                   `json:"compatibility_flags"`
	Bindings           []provider.Binding         `json:"bindings"`
	Exports            map[string]provider.Export `json:"exports"`
	Tags               []string                   `json:"tags"`
	BundleDigest       string                     `json:"bundle_digest"`
}

// ID identifies the content of a version: a digest over metadata and bundle.
// The script API gives it as the etag.
func (r Release) ID() (string, error) {
	return canonical.JSONDigest("teamsync-edge-host-version", r)
}

// Script is a script's current state.
type Script struct {
	Name       string
	UniqueKey  string
	CreatedOn  time.Time
	ModifiedOn time.Time
	Version    string
	Release    Release
}

type identity struct {
	UniqueKey string    `json:"unique_key"`
	CreatedOn time.Time `json:"created_on"`
}

type pointer struct {
	Version    string    `json:"version"`
	ModifiedOn time.Time `json:"modified_on"`
}

// Store is the open folder. Reads are safe at any time; the caller serializes
// writes to one script.
type Store struct {
	dir    string
	lock   *os.File
	logger *slog.Logger
}

// Open creates or opens the folder, takes its lock and sweeps leftovers of an
// interrupted run. It fails when another host owns the folder.
func Open(dir string, logger *slog.Logger) (*Store, error) {
	s := &Store{dir: dir, logger: logger}
	for _, folder := range []string{dir, s.path("scripts"), s.path("tmp")} {
		if err := os.MkdirAll(folder, 0o711); err != nil { //nolint:gosec // G301: isolated uids must get through to their own folders
			return nil, fmt.Errorf("create data folder: %w", err)
		}
	}
	lock, err := tryLock(s.path("host.lock"))
	if err != nil {
		return nil, fmt.Errorf("data folder %s is in use by another edge host: %w", dir, err)
	}
	s.lock = lock
	if err := s.sweep(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// Close gives the folder free.
func (s *Store) Close() error { return errors.Join(unlock(s.lock), s.lock.Close()) }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *Store) scriptPath(name string, parts ...string) string {
	return filepath.Join(append([]string{s.dir, "scripts", name}, parts...)...)
}

// StorageDir is the folder of the script's Durable Object data.
func (s *Store) StorageDir(name string) string { return s.scriptPath(name, "storage") }

// List returns the names of all scripts that have a current version, sorted.
func (s *Store) List() ([]string, error) {
	entries, err := os.ReadDir(s.path("scripts"))
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	names := []string{}
	for _, entry := range entries {
		if !ValidName(entry.Name()) {
			continue
		}
		if _, err := os.Stat(s.scriptPath(entry.Name(), "current.json")); err == nil {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Get reads a script's current state, or ErrNotFound.
func (s *Store) Get(name string) (Script, error) {
	if !ValidName(name) {
		return Script{}, ErrNotFound
	}
	var current pointer
	err := readJSON(s.scriptPath(name, "current.json"), &current)
	if errors.Is(err, fs.ErrNotExist) {
		return Script{}, ErrNotFound
	}
	if err != nil {
		return Script{}, err
	}
	var id identity
	if err := readJSON(s.scriptPath(name, "script.json"), &id); err != nil {
		return Script{}, err
	}
	script := Script{Name: name, UniqueKey: id.UniqueKey, CreatedOn: id.CreatedOn, ModifiedOn: current.ModifiedOn, Version: current.Version}
	if !idPattern.MatchString(current.Version) {
		return Script{}, fmt.Errorf("current version of %s: %w", name, ErrDamaged)
	}
	if err := readJSON(s.scriptPath(name, "versions", current.Version, "release.json"), &script.Release); err != nil {
		return Script{}, err
	}
	return script, nil
}

// Bundle reads a version's bundle and checks it against the digest that was
// stored with it, so that damage on disk is never served.
func (s *Store) Bundle(name, version string, release Release) ([]byte, error) {
	bundle, err := os.ReadFile(s.scriptPath(name, "versions", version, provider.MainModule))
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	if canonical.SHA256(bundle) != release.BundleDigest {
		return nil, fmt.Errorf("bundle of %s: %w", name, ErrDamaged)
	}
	return bundle, nil
}

// HasStorage reports whether the script has stored data.
func (s *Store) HasStorage(name string) (bool, error) {
	entries, err := os.ReadDir(s.StorageDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read storage folder: %w", err)
	}
	return len(entries) > 0, nil
}

func readJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read script state: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w: %w", filepath.Base(path), ErrDamaged, err)
	}
	return nil
}

// sweep removes what no pointer names: unfinished versions, deleted scripts,
// superseded versions. It never removes a storage folder that holds data.
func (s *Store) sweep() error {
	if err := removeChildren(s.path("tmp")); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	entries, err := os.ReadDir(s.path("scripts"))
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, entry := range entries {
		if err := s.sweepScript(entry.Name()); err != nil {
			return fmt.Errorf("sweep %s: %w", entry.Name(), err)
		}
	}
	return nil
}

func (s *Store) sweepScript(name string) error {
	if !ValidName(name) {
		s.logger.Warn("unknown entry in the scripts folder is left alone", "entry", name)
		return nil
	}
	script, err := s.Get(name)
	if err == nil {
		return errors.Join(s.Prune(name, script.Version), sweepPartial(s.scriptPath(name)))
	}
	if !errors.Is(err, ErrNotFound) {
		s.logger.Error("script cannot be read and is left alone", "script", name, "error", err.Error())
		return nil
	}
	stored, err := s.HasStorage(name)
	if err != nil || stored {
		s.logger.Warn("script without a release but with stored data is left alone", "script", name)
		return err
	}
	return os.RemoveAll(s.scriptPath(name))
}

// Prune removes all versions but keep.
func (s *Store) Prune(name string, keep ...string) error {
	versions := s.scriptPath(name, "versions")
	entries, err := os.ReadDir(versions)
	if err != nil {
		return fmt.Errorf("prune versions: %w", err)
	}
	for _, entry := range entries {
		if slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(versions, entry.Name())); err != nil {
			return fmt.Errorf("prune versions: %w", err)
		}
	}
	return nil
}
