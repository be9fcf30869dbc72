package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// MetadataDigest is the only metadata entry of a stored object (S0-42).
const MetadataDigest = "sha256digest"

// Attributes go with an object's content. No backend may add tags (S0-43).
type Attributes struct {
	ContentType string
	// Metadata holds exactly one entry, MetadataDigest.
	Metadata map[string]string
}

// Info is what a store says of an object without sending its content.
type Info struct {
	// Size is the declared length in bytes; -1 where the store did not declare one.
	Size int64
	Attributes
}

// Backend is a raw store of keys. It knows no tenants and is only ever used
// behind Fenced. Failures that are none of the port's errors count as
// ErrUnavailable.
type Backend interface {
	// Put stores the content durably or not at all: when it returns nil the
	// object survives a crash. An equal object under the key is a success, a
	// different one is ErrExists and stays.
	Put(ctx context.Context, key string, content []byte, attributes Attributes) error
	// Get opens an object; the caller closes the body. A missing one is ErrNotFound.
	Get(ctx context.Context, key string) (Info, io.ReadCloser, error)
	// Stat describes an object. A missing one is ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes an object; a missing one is a success.
	Delete(ctx context.Context, key string) error
}

// Fenced is the Store over a Backend. It is the one place where ownership,
// sizes and digests are checked, so that every backend has the same fence.
type Fenced struct{ backend Backend }

var _ Store = (*Fenced)(nil)

// NewFenced puts the fence around a backend.
func NewFenced(backend Backend) *Fenced { return &Fenced{backend: backend} }

// Put implements Store. Size (S0-38, S0-41) and digest are checked before the
// backend is called.
func (f *Fenced) Put(ctx context.Context, object Object) error {
	key, err := object.Key()
	if err != nil {
		return fmt.Errorf("store artifact: %w", err)
	}
	if len(object.Content) == 0 {
		return fmt.Errorf("store artifact: %w: empty content", ErrInvalid)
	}
	if int64(len(object.Content)) > object.Kind.MaxSize() {
		return fmt.Errorf("store artifact: %w: %w", ErrInvalid, ErrTooLarge)
	}
	if canonical.SHA256(object.Content) != object.Digest {
		return fmt.Errorf("store artifact: %w: digest", ErrMismatch)
	}
	err = f.backend.Put(ctx, key, object.Content, Attributes{
		ContentType: object.Kind.ContentType(),
		Metadata:    map[string]string{MetadataDigest: object.Digest},
	})
	if err != nil {
		return fmt.Errorf("store artifact: %w", classify(err))
	}
	return nil
}

// Get implements Store. Both the declared size (S0-48) and the bytes received
// (S0-49) are bounded.
func (f *Fenced) Get(ctx context.Context, tenant Tenant, kind Kind, key string, max int64) ([]byte, error) {
	if err := Owned(tenant, kind, key); err != nil {
		return nil, fmt.Errorf("read artifact: %w", err)
	}
	if max < 0 {
		return nil, fmt.Errorf("read artifact: %w: negative bound", ErrInvalid)
	}
	if max == 0 || max > kind.MaxSize() {
		max = kind.MaxSize()
	}
	info, body, err := f.backend.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read artifact: %w", classify(err))
	}
	content, err := readBounded(body, info.Size, max)
	closeErr := body.Close()
	if err != nil {
		return nil, fmt.Errorf("read artifact: %w", classify(err))
	}
	if closeErr != nil {
		return nil, fmt.Errorf("read artifact: %w", classify(closeErr))
	}
	return content, nil
}

func readBounded(body io.Reader, declared, max int64) ([]byte, error) {
	if declared > max {
		return nil, fmt.Errorf("%w: declared %d, bound %d", ErrTooLarge, declared, max)
	}
	var buffer bytes.Buffer
	buffer.Grow(int(declared+1) + bytes.MinRead) // read without growing
	_, err := buffer.ReadFrom(io.LimitReader(body, max+1))
	if err != nil {
		return nil, err
	}
	content := buffer.Bytes()
	if int64(len(content)) > max {
		return nil, fmt.Errorf("%w: received more than %d", ErrTooLarge, max)
	}
	if declared >= 0 && int64(len(content)) != declared {
		return nil, fmt.Errorf("%w: declared %d, received %d", ErrMismatch, declared, len(content))
	}
	return content, nil
}

// Delete implements Store.
func (f *Fenced) Delete(ctx context.Context, tenant Tenant, kind Kind, key string) error {
	if err := Owned(tenant, kind, key); err != nil {
		return fmt.Errorf("delete artifact: %w", err)
	}
	if err := f.backend.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete artifact: %w", classify(err))
	}
	return nil
}

// Owned is the ownership fence (S0-44 to S0-47): the key starts with the
// tenant's own edge-workers/{prefix}/{kind}/, has no further '/', and its last
// segment has the exact form that Key gives. It fails with ErrInvalid for a
// tenant or kind that cannot own anything, else with ErrForeignKey.
func Owned(tenant Tenant, kind Kind, key string) error {
	if err := tenant.Validate(); err != nil {
		return err
	}
	if !kind.Valid() {
		return fmt.Errorf("%w: kind", ErrInvalid)
	}
	name, ok := strings.CutPrefix(key, ownPrefix(tenant, kind))
	if !ok || strings.Contains(name, "/") {
		return ErrForeignKey
	}
	if !keyName.MatchString(name) || !strings.HasSuffix(name, "."+kind.Extension()) {
		return ErrForeignKey
	}
	return nil
}

// classify keeps the port's own errors and marks all others as unavailability:
// what a store did not say clearly is not known.
func classify(err error) error {
	for _, known := range []error{ErrInvalid, ErrForeignKey, ErrNotFound, ErrTooLarge, ErrMismatch, ErrExists, ErrUnavailable} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
