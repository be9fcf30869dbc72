// Package artifact is the port of the store that keeps the submitted project
// archives and the built bundles as immutable evidence (S0).
//
// Every tenant lives under its own prefix, and one wrapper, Fenced, checks the
// ownership of each key before any call reaches a store. A backend therefore
// knows nothing of tenants, and no backend can be used without the fence.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The errors of the port. Each is found with errors.Is whatever was wrapped
// around it.
var (
	// ErrInvalid: the object or the arguments are not well-formed. Nothing was sent to the store.
	ErrInvalid = errors.New("artifact is not valid")
	// ErrForeignKey: the key is not one of this tenant and kind. Nothing was sent to the store.
	ErrForeignKey = errors.New("artifact key belongs to another tenant or kind")
	// ErrNotFound: the store answered that there is no such object.
	ErrNotFound = errors.New("artifact not found")
	// ErrTooLarge: the declared or the received size is over the bound.
	ErrTooLarge = errors.New("artifact is larger than its bound")
	// ErrMismatch: the object is not the one that was recorded (size or digest).
	ErrMismatch = errors.New("artifact differs from its recorded identity")
	// ErrExists: another content is already stored under this key; it was left as it is.
	ErrExists = errors.New("artifact key already holds another content")
	// ErrUnavailable: the store could not be asked or did not answer; the outcome is unknown.
	ErrUnavailable = errors.New("artifact store is unavailable")
)

// Store keeps artifacts. All methods are safe for concurrent use.
type Store interface {
	// Put stores an object. Storing an equal object again succeeds. Errors:
	// ErrInvalid and ErrMismatch before anything is written, ErrExists,
	// ErrUnavailable.
	Put(ctx context.Context, object Object) error
	// Get reads at most max bytes (0: the kind's own maximum). It checks bounds
	// only: compare what it returns with Verify. Errors: ErrInvalid,
	// ErrForeignKey, ErrNotFound, ErrTooLarge, ErrMismatch when the received
	// size is not the declared one, ErrUnavailable.
	Get(ctx context.Context, tenant Tenant, kind Kind, key string, max int64) ([]byte, error)
	// Delete removes an object; a missing one is a success. Errors: ErrInvalid,
	// ErrForeignKey, ErrUnavailable.
	Delete(ctx context.Context, tenant Tenant, kind Kind, key string) error
}

// Kind is the class of an artifact (S0-35).
type Kind string

// The two kinds.
const (
	Project Kind = "project" // the exact archive that the manager submitted
	Bundle  Kind = "bundle"  // the exact module that the platform built
)

// The size bounds in bytes (S0-38, S0-41). The lower bound of both is 1.
const (
	MaxProjectSize int64 = 2 << 20
	MaxBundleSize  int64 = 5 << 20
)

type kindRule struct {
	extension   string
	contentType string
	maxSize     int64
}

var kindRules = map[Kind]kindRule{
	Project: {extension: "tar.gz", contentType: "application/gzip", maxSize: MaxProjectSize},
	Bundle:  {extension: "mjs", contentType: "application/javascript+module", maxSize: MaxBundleSize},
}

// Valid reports whether k is one of the two kinds.
func (k Kind) Valid() bool { _, ok := kindRules[k]; return ok }

// Extension gives the key's extension without the leading dot (S0-36, S0-39).
func (k Kind) Extension() string { return kindRules[k].extension }

// ContentType gives the stored content type (S0-37, S0-40).
func (k Kind) ContentType() string { return kindRules[k].contentType }

// MaxSize gives the upper bound in bytes (S0-38, S0-41); 0 for an unknown kind.
func (k Kind) MaxSize() int64 { return kindRules[k].maxSize }

// Tenant is one department of one company.
type Tenant struct {
	CompanyID    string
	DepartmentID string
}

// maxTenantIDLength is the width of the id columns, in bytes.
const maxTenantIDLength = 255

// Validate refuses ids for which the prefix would not be unambiguous: empty
// ones, and ones with the separator in them.
func (t Tenant) Validate() error {
	for _, id := range []string{t.CompanyID, t.DepartmentID} {
		if id == "" || len(id) > maxTenantIDLength || strings.ContainsRune(id, 0) {
			return fmt.Errorf("%w: tenant id", ErrInvalid)
		}
	}
	return nil
}

// Prefix gives the tenant's 32 hex characters in every key (S0-33):
// sha256("edge-artifacts-v2\0" + company_id + "\0" + department_id)[:32]. A
// raw tenant id never appears in a key (S0-34).
func (t Tenant) Prefix() string {
	sum := sha256.Sum256([]byte("edge-artifacts-v2\x00" + t.CompanyID + "\x00" + t.DepartmentID))
	return hex.EncodeToString(sum[:])[:32]
}

// keyRoot is the first segment of every key (S0-32).
const keyRoot = "edge-workers"

var (
	artifactID = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
	keyName    = regexp.MustCompile(`\A[0-9a-f]{64}-[A-Za-z0-9_-]{1,64}\.(tar\.gz|mjs)\z`)
)

// Key gives the object key edge-workers/{prefix}/{kind}/{digest}-{artifact_id}.{ext}
// (S0-32). artifactID is 1 to 64 letters, digits, '_' or '-'. It fails with
// ErrInvalid.
func Key(tenant Tenant, kind Kind, digest, id string) (string, error) {
	if err := tenant.Validate(); err != nil {
		return "", err
	}
	switch {
	case !kind.Valid():
		return "", fmt.Errorf("%w: kind", ErrInvalid)
	case !canonical.IsSHA256(digest):
		return "", fmt.Errorf("%w: digest", ErrInvalid)
	case !artifactID.MatchString(id):
		return "", fmt.Errorf("%w: artifact id", ErrInvalid)
	}
	return ownPrefix(tenant, kind) + digest + "-" + id + "." + kind.Extension(), nil
}

func ownPrefix(tenant Tenant, kind Kind) string {
	return keyRoot + "/" + tenant.Prefix() + "/" + string(kind) + "/"
}

// Object is one artifact to be stored. Digest is the hex SHA-256 that the
// caller recorded; it must be that of Content.
type Object struct {
	Tenant     Tenant
	Kind       Kind
	ArtifactID string
	Digest     string
	Content    []byte
}

// Key gives the key under which the object is stored. It fails with ErrInvalid.
func (o Object) Key() (string, error) { return Key(o.Tenant, o.Kind, o.Digest, o.ArtifactID) }

// Verify compares content with its recorded size in bytes and hex SHA-256
// (S0-50, S0-51). It fails with ErrMismatch.
func Verify(content []byte, size int64, digest string) error {
	if int64(len(content)) != size {
		return fmt.Errorf("%w: size is %d, recorded %d", ErrMismatch, len(content), size)
	}
	if canonical.SHA256(content) != digest {
		return fmt.Errorf("%w: digest", ErrMismatch)
	}
	return nil
}
