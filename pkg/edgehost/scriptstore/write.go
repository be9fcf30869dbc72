package scriptstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Stage writes a version durably without making it current, and the script's
// identity when it is new. It returns the version's id. An equal version that
// exists intact is reused.
func (s *Store) Stage(name string, release Release, bundle []byte, now time.Time) (string, error) {
	if !ValidName(name) {
		return "", fmt.Errorf("script name %q is not valid", name)
	}
	release.BundleDigest = canonical.SHA256(bundle)
	id, err := release.ID()
	if err != nil {
		return "", err
	}
	if err := s.ensureScript(name, now); err != nil {
		return "", err
	}
	target := s.scriptPath(name, "versions", id)
	if s.intact(name, id) {
		return id, nil
	}
	unfinished, err := os.MkdirTemp(s.path("tmp"), "version-")
	if err != nil {
		return "", fmt.Errorf("stage version: %w", err)
	}
	if err := writeVersion(unfinished, release, bundle); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.RemoveAll(target); err != nil { // a damaged version of this id
		return "", fmt.Errorf("stage version: %w", err)
	}
	if err := os.Rename(unfinished, target); err != nil {
		return "", fmt.Errorf("stage version: %w", err)
	}
	return id, syncDir(filepath.Dir(target))
}

// intact reports whether the version is on disk as its id says.
func (s *Store) intact(name, id string) bool {
	var release Release
	if err := readJSON(s.scriptPath(name, "versions", id, "release.json"), &release); err != nil {
		return false
	}
	if found, err := release.ID(); err != nil || found != id {
		return false
	}
	_, err := s.Bundle(name, id, release)
	return err == nil
}

func (s *Store) ensureScript(name string, now time.Time) error {
	path := s.scriptPath(name, "script.json")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	// The outer folder first: isolated Workers must get through it.
	for _, folder := range []struct {
		name string
		mode fs.FileMode
	}{{"", 0o711}, {"versions", 0o700}, {"storage", 0o700}} {
		if err := os.MkdirAll(s.scriptPath(name, folder.name), folder.mode); err != nil {
			return fmt.Errorf("create script folder: %w", err)
		}
	}
	if err := syncDir(s.path("scripts")); err != nil {
		return err
	}
	// Derived from the name once and then only read: the key is the identity
	// of the stored data.
	return writeJSON(path, identity{UniqueKey: canonical.Digest("teamsync-edge-host-storage", []byte(name)), CreatedOn: now.UTC()})
}

func writeVersion(dir string, release Release, bundle []byte) error {
	raw, err := json.Marshal(release)
	if err != nil {
		return fmt.Errorf("encode release: %w", err)
	}
	if err := writeSynced(filepath.Join(dir, "release.json"), raw); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, provider.MainModule), bundle); err != nil {
		return err
	}
	return syncDir(dir)
}

// Activate makes a staged version the current one: atomic and durable. After
// an error read the state again; it is the old or the new one.
func (s *Store) Activate(name, version string, now time.Time) error {
	return writeJSON(s.scriptPath(name, "current.json"), pointer{Version: version, ModifiedOn: now.UTC()})
}

// Deactivate takes the current pointer away: the script is gone for readers,
// its storage stays.
func (s *Store) Deactivate(name string) error {
	if err := os.Remove(s.scriptPath(name, "current.json")); err != nil {
		return fmt.Errorf("remove current version: %w", err)
	}
	return syncDir(s.scriptPath(name))
}

// Remove deletes a script with its storage. The script is gone at once and
// for good after the rename; a kill in between leaves files that the next
// start sweeps.
func (s *Store) Remove(name string) error {
	grave, err := os.MkdirTemp(s.path("tmp"), "deleted-")
	if err != nil {
		return fmt.Errorf("remove script: %w", err)
	}
	if err := os.Rename(s.scriptPath(name), filepath.Join(grave, name)); err != nil {
		return fmt.Errorf("remove script: %w", err)
	}
	if err := errors.Join(syncDir(s.path("scripts")), syncDir(grave)); err != nil {
		return err
	}
	if err := os.RemoveAll(grave); err != nil {
		return fmt.Errorf("remove script: %w", err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode script state: %w", err)
	}
	unfinished := path + partialSuffix
	if err := writeSynced(unfinished, raw); err != nil {
		return err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("replace %s: %w", filepath.Base(path), err)
	}
	return syncDir(filepath.Dir(path))
}

const partialSuffix = ".partial"

func sweepPartial(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), partialSuffix) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func syncDir(dir string) error {
	handle, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(handle.Sync(), handle.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", filepath.Base(dir), err)
	}
	return nil
}

func removeChildren(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
