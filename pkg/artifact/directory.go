package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// Directory is the backend on a local folder, for one machine.
//
// An object is a folder named like the last segment of its key, with the two
// files "content" and "attributes.json" in it. It is written under "tmp",
// flushed, and moved to its place by one rename: that is atomic for both files
// and cannot replace an object, because a rename onto a folder that is not
// empty fails. All access goes through os.Root, so nothing outside the folder
// can be reached, and symbolic links are refused even inside it.
type Directory struct{ root *os.Root }

var _ Backend = (*Directory)(nil)

const (
	stagingFolder  = "tmp"
	contentFile    = "content"
	attributesFile = "attributes.json"
	maxAttributes  = 4 << 10 // bytes; what is written is about 150
	folderMode     = 0o700
	storedFileMode = 0o600
)

var rawKey = regexp.MustCompile(`\Aedge-workers/[0-9a-f]{32}/(project|bundle)/[0-9a-f]{64}-[A-Za-z0-9_-]{1,64}\.(tar\.gz|mjs)\z`)

type storedAttributes struct {
	ContentType string            `json:"content_type"`
	Metadata    map[string]string `json:"metadata"`
}

// NewDirectory opens a store in the given folder and creates it where it is
// missing. What a killed process left half-written is removed. One process
// uses a folder at a time.
func NewDirectory(folder string) (*Directory, error) {
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return nil, fmt.Errorf("create artifact folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open artifact folder: %w", err)
	}
	d := &Directory{root: root}
	err = d.prepareStaging()
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("prepare artifact folder: %w", err)
	}
	return d, nil
}

func (d *Directory) prepareStaging() error {
	if err := d.root.RemoveAll(stagingFolder); err != nil {
		return err
	}
	if err := d.root.Mkdir(stagingFolder, folderMode); err != nil {
		return err
	}
	return d.syncFolder(".")
}

// Close releases the folder.
func (d *Directory) Close() error { return d.root.Close() }

// Put implements Backend.
func (d *Directory) Put(ctx context.Context, key string, content []byte, attributes Attributes) error {
	exists, err := d.present(ctx, key)
	if err != nil {
		return err
	}
	if exists {
		return d.sameAs(key, content, attributes)
	}
	staged := stagingFolder + "/" + uuid.NewString()
	defer func() { _ = d.root.RemoveAll(staged) }()
	err = d.stage(staged, content, attributes)
	if err != nil {
		return fmt.Errorf("write artifact: %w", err)
	}
	err = d.makeFolders(path.Dir(key))
	if err != nil {
		return fmt.Errorf("create artifact folder: %w", err)
	}
	err = d.root.Rename(staged, key)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return d.sameAs(key, content, attributes)
	}
	if err != nil {
		return fmt.Errorf("move artifact to its place: %w", err)
	}
	return d.syncFolder(path.Dir(key))
}

func (d *Directory) stage(folder string, content []byte, attributes Attributes) error {
	encoded, err := json.Marshal(storedAttributes(attributes))
	if err != nil {
		return err
	}
	if err := d.root.Mkdir(folder, folderMode); err != nil {
		return err
	}
	if err := d.writeFile(folder+"/"+contentFile, content); err != nil {
		return err
	}
	if err := d.writeFile(folder+"/"+attributesFile, encoded); err != nil {
		return err
	}
	return d.syncFolder(folder)
}

func (d *Directory) writeFile(name string, data []byte) error {
	file, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, storedFileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// makeFolders creates each missing level and flushes its parent, so that the
// whole path survives a crash.
func (d *Directory) makeFolders(folder string) error {
	parent := "."
	for segment := range strings.SplitSeq(folder, "/") {
		level := path.Join(parent, segment)
		err := d.root.Mkdir(level, folderMode)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Flushed even when the level was there: whoever made it may have died
		// before flushing.
		if err := d.syncFolder(parent); err != nil {
			return err
		}
		parent = level
	}
	return nil
}

func (d *Directory) syncFolder(name string) error {
	folder, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// present checks the key's form and its path, and reports whether there is an
// object. A symbolic link anywhere on the path is an error.
func (d *Directory) present(ctx context.Context, key string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if !rawKey.MatchString(key) {
		return false, fmt.Errorf("%w: key form", ErrInvalid)
	}
	level := ""
	for segment := range strings.SplitSeq(key, "/") {
		level = path.Join(level, segment)
		info, err := d.root.Lstat(level)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up artifact: %w", err)
		}
		if !info.IsDir() {
			return false, fmt.Errorf("%w: not a folder of the store", ErrInvalid)
		}
	}
	return true, nil
}

// sameAs settles a Put whose key is taken.
func (d *Directory) sameAs(key string, content []byte, attributes Attributes) error {
	stored, err := d.readFile(key+"/"+contentFile, int64(len(content)))
	if errors.Is(err, ErrTooLarge) {
		return ErrExists
	}
	if err != nil {
		return err
	}
	info, err := d.attributes(key)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, content) || info.ContentType != attributes.ContentType ||
		info.Metadata[MetadataDigest] != attributes.Metadata[MetadataDigest] {
		return ErrExists
	}
	return nil
}

func (d *Directory) openRegular(name string) (*os.File, int64, error) {
	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: not a regular file", ErrInvalid)
	}
	file, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func (d *Directory) readFile(name string, max int64) ([]byte, error) {
	file, _, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, max+1))
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > max {
		return nil, ErrTooLarge
	}
	return data, nil
}

func (d *Directory) attributes(key string) (storedAttributes, error) {
	var stored storedAttributes
	raw, err := d.readFile(key+"/"+attributesFile, maxAttributes)
	if err != nil {
		return stored, err
	}
	err = json.Unmarshal(raw, &stored)
	if err != nil {
		return stored, fmt.Errorf("%w: attributes: %w", ErrMismatch, err)
	}
	return stored, nil
}

// Get implements Backend.
func (d *Directory) Get(ctx context.Context, key string) (Info, io.ReadCloser, error) {
	info, err := d.Stat(ctx, key)
	if err != nil {
		return Info{}, nil, err
	}
	file, size, err := d.openRegular(key + "/" + contentFile)
	if err != nil {
		return Info{}, nil, err
	}
	info.Size = size
	return info, file, nil
}

// Stat implements Backend.
func (d *Directory) Stat(ctx context.Context, key string) (Info, error) {
	exists, err := d.present(ctx, key)
	if err != nil {
		return Info{}, err
	}
	if !exists {
		return Info{}, ErrNotFound
	}
	stored, err := d.attributes(key)
	if err != nil {
		return Info{}, err
	}
	file, size, err := d.openRegular(key + "/" + contentFile)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: size, Attributes: Attributes(stored)}, file.Close()
}

// Delete implements Backend. The object leaves its place by one rename, so a
// reader never sees half of it.
func (d *Directory) Delete(ctx context.Context, key string) error {
	exists, err := d.present(ctx, key)
	if err != nil || !exists {
		return err
	}
	removed := stagingFolder + "/" + uuid.NewString()
	err = d.root.Rename(key, removed)
	if err != nil {
		return d.gone(ctx, key, fmt.Errorf("remove artifact: %w", err))
	}
	err = d.syncFolder(path.Dir(key))
	if err != nil {
		return fmt.Errorf("flush artifact folder: %w", err)
	}
	return d.root.RemoveAll(removed)
}

// gone turns the failure to remove an object into success when there is none
// any more. A rename that finds nothing is no proof: its target's folder may be
// what is missing.
func (d *Directory) gone(ctx context.Context, key string, cause error) error {
	exists, err := d.present(ctx, key)
	if err == nil && !exists {
		return nil
	}
	return errors.Join(cause, err)
}
