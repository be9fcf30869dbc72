// Package provider is the neutral port to what serves Workers: Cloudflare
// Workers for Platforms or our own edge host. The deployment task decides by
// the error classes of this package alone and never by a provider's name
// (S1-132).
package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The parts of a release that never vary (S2-157, S2-159, S2-160).
const (
	MainModule   = "index.mjs"
	BindingName  = "TEAMSYNC_DEPARTMENT_STORAGE"
	StorageClass = "TeamSyncDepartmentStorage"
	TagPrefix    = "release-"
)

// Kind names a provider; it is the value of EDGE_WORKERS_PROVIDER.
type Kind string

// The providers. Cloudflare is the default (S2-001).
const (
	Cloudflare Kind = "cloudflare"
	OnPrem     Kind = "onprem"
)

// Release is the full desired state of one script: what an upload sends and
// what a read-back must find.
type Release struct {
	// Namespace is the dispatch namespace that the deployment's row is stamped
	// with. A provider with one namespace takes the empty one for its own.
	Namespace         string
	ScriptName        string
	CompatibilityDate string
	Bundle            []byte // empty for a read-back
	BundleDigest      string // hex SHA-256 of the bundle
}

// Binding is the one Durable Object binding of a release in the provider's
// own vocabulary.
type Binding struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	ClassName string `json:"class_name"`
}

// Export is one declarative Durable Object export.
type Export struct {
	Type    string `json:"type"`
	Storage string `json:"storage"`
}

// Bindings returns the exact bindings of every release.
func Bindings() []Binding {
	return []Binding{{Type: "durable_object_namespace", Name: BindingName, ClassName: StorageClass}}
}

// Exports returns the exact exports of every release.
func Exports() map[string]Export {
	return map[string]Export{StorageClass: {Type: "durable-object", Storage: "sqlite"}}
}

// Digest is the provider_release_digest: SHA-256 over the domain
// "teamsync-edge-worker-release", one NUL byte and the canonical JSON of the
// six fields (S2-199).
func (r Release) Digest() (string, error) {
	return canonical.JSONDigest("teamsync-edge-worker-release", map[string]any{
		"bindings":           Bindings(),
		"bundle_digest":      r.BundleDigest,
		"compatibility_date": r.CompatibilityDate,
		"exports":            Exports(),
		"main_module":        MainModule,
		"version":            2,
	})
}

// Tag is the one tag of a release: release-<provider_release_digest>.
func (r Release) Tag() (string, error) {
	digest, err := r.Digest()
	if err != nil {
		return "", fmt.Errorf("release digest: %w", err)
	}
	return TagPrefix + digest, nil
}

// Provider puts releases on the serving side and reads them back. A provider
// makes exactly one attempt for each call: the outbox owns retries.
type Provider interface {
	// Upload sends the full desired state. A nil error says only that the
	// provider acknowledged; it is no settlement (S2-164). Errors are of the
	// classes below.
	Upload(ctx context.Context, release Release) error
	// ReadBack compares both ends of the persisted script with the release.
	// nil: exact. *MismatchError: provably different. *UnreadableError:
	// neither could be shown.
	ReadBack(ctx context.Context, release Release) error
}

// Fence is what an edge host tells of its backup fence, behind which scripts
// stand still: the id of the one that is up, and of the one that ended last.
// An empty id stands for none.
type Fence struct {
	Active string `json:"active"`
	Ended  string `json:"ended"`
}

// TerminalError says that the provider definitely refused and did not change
// anything. Guidance is a fixed public text that may be stored as the
// version's error message (S2-228); it is empty for all but one code.
type TerminalError struct {
	Code     string
	Guidance string
	Cause    error
}

func (e *TerminalError) Error() string { return class("terminal", e.Code, e.Cause) }

// Unwrap gives the cause.
func (e *TerminalError) Unwrap() error { return e.Cause }

// RateLimitedError says that the provider provably refused for its rate limit;
// only this class withdraws the fence (S2-200).
//
// RetryAfter is how long the provider will go on refusing, 0 when it is not
// known: nothing is gained by an earlier attempt, and the second refusal ends
// the deployment (S2-204, S2-205).
type RateLimitedError struct {
	Code       string
	RetryAfter time.Duration
	Cause      error
}

func (e *RateLimitedError) Error() string { return class("rate limited", e.Code, e.Cause) }

// Unwrap gives the cause.
func (e *RateLimitedError) Unwrap() error { return e.Cause }

// UncertainError says that the write may or may not have been applied.
type UncertainError struct {
	Code  string
	Cause error
}

func (e *UncertainError) Error() string { return class("uncertain", e.Code, e.Cause) }

// Unwrap gives the cause.
func (e *UncertainError) Unwrap() error { return e.Cause }

// DeferredError says that the host will take the release later and did not
// change anything: an active backup fence (S2-223).
type DeferredError struct{ Code string }

func (e *DeferredError) Error() string { return class("deferred", e.Code, nil) }

// MismatchError says that a read-back found something provably different.
// Detail names the field that differs, for logs.
type MismatchError struct{ Detail string }

func (e *MismatchError) Error() string { return "provider read-back differs: " + e.Detail }

// UnreadableError says that a read-back could not be completed.
type UnreadableError struct{ Cause error }

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("provider read-back failed: %v", e.Cause)
}

// Unwrap gives the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// ErrUnavailable says that an on-prem provider cannot be built from its
// settings: nothing can be deployed until they are corrected (S1-069).
var ErrUnavailable = errors.New("Edge Worker provider is unavailable") //nolint:staticcheck // the text is the specification's, word for word

// ErrNotFound is the cause of a read of a script that does not exist.
var ErrNotFound = errors.New("script does not exist at the provider")

func class(name, code string, cause error) string {
	if cause == nil {
		return "provider " + name + ": " + code
	}
	return fmt.Sprintf("provider %s: %s: %v", name, code, cause)
}
