// Package builder turns a project into the one module that is deployed, with
// the documents that prove where it came from: SBOM, build receipt, digests
// and the release generation (decision D8).
//
// A build runs in process and from memory: no file and no script of the project
// is touched, and no network but that of the npm registry, for the packages that
// the project's lock file names. Equal input gives equal bytes on any machine.
package builder

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// The bounds of a build.
const (
	MaxBundle      = 5 << 20          // bytes of the bundle (S2-144, S1-092)
	DefaultTimeout = 30 * time.Second // one build, waiting for a slot not counted
	MaxPublicKeys  = 2                // current and next (D10)
)

// Params configures a Builder.
type Params struct {
	// PublicKeys verify the control plane's assertions; they are compiled into
	// each bundle. One, or two while a key is being changed (D10).
	PublicKeys []ed25519.PublicKey
	// Packages brings the npm packages of projects; nil means npm's registry
	// without a cache folder.
	Packages *npm.Packages
	// Concurrency bounds the builds that run at once; 0 means the CPU count.
	Concurrency int
	// Timeout bounds one build once its packages are there; 0 means
	// DefaultTimeout. The packages have a limit of their own.
	Timeout time.Duration
	// Log receives one line for each build; nil discards.
	Log *slog.Logger
}

// Input is one build.
type Input struct {
	Project *project.Project
	// ScriptName is the provider's name of the Worker and the audience of the
	// assertions that its bundle accepts.
	ScriptName string
	// Policy is the builder policy; empty means Current. Older policies exist
	// for tests and migrations.
	Policy Policy
	// Progress, when set, is told while npm packages are brought.
	Progress npm.Progress
}

// Output is everything that a version stores.
type Output struct {
	Bundle            []byte // index.mjs
	SBOM              []byte // CycloneDX 1.6, JSON
	Receipt           []byte // canonical JSON with exactly twelve keys (S2-138)
	Manifest          []byte // canonical JSON of worker.json
	Digests           Digests
	ReleaseGeneration string
	RuntimeDigest     string
	BuilderPolicy     Policy
	CompatibilityDate string
	Language          project.Language
	Entry             string
	// Warnings are the bundler's remarks about the sources; they refuse nothing.
	Warnings []fault.Problem
}

// Builder builds projects. It is safe for concurrent use.
type Builder struct {
	keys     []publicKey
	runtime  string // runtime digest
	packages *npm.Packages
	slots    *semaphore.Weighted
	timeout  time.Duration
	log      *slog.Logger
}

// New checks the parameters and returns a Builder.
func New(p Params) (*Builder, error) {
	keys, err := describeKeys(p.PublicKeys)
	if err != nil {
		return nil, err
	}
	if p.Concurrency < 0 || p.Timeout < 0 {
		return nil, errors.New("builder: concurrency and timeout must not be negative")
	}
	digest, err := runtimeDigest(keys)
	if err != nil {
		return nil, err
	}
	b := &Builder{keys: keys, runtime: digest, packages: p.Packages, timeout: p.Timeout, log: p.Log}
	if b.packages == nil {
		b.packages, err = npm.New(npm.Params{Log: p.Log})
		if err != nil {
			return nil, err
		}
	}
	if b.timeout == 0 {
		b.timeout = DefaultTimeout
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	slots := p.Concurrency
	if slots == 0 {
		slots = runtime.NumCPU()
	}
	b.slots = semaphore.NewWeighted(int64(slots))
	return b, nil
}

// RuntimeDigest is the digest of the runtime source and the public keys that
// this builder compiles in (D8).
func (b *Builder) RuntimeDigest() string { return b.runtime }

// scriptNames: the control plane's names are "dw-" and 48 hex digits (S1); the
// builder needs only that a name is safe as one path segment and a claim.
var scriptNames = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,62}\z`)

// Build makes the bundle and its documents. What the author can mend is a
// fault of kind Invalid with file, line and column, or with the package's name;
// a build over its time limit is one of kind Timeout; an npm registry that does
// not deliver one of kind Unavailable; a defect of the bundler one of kind
// Internal.
// A cancelled ctx returns its error wrapped.
func (b *Builder) Build(ctx context.Context, in Input) (*Output, error) {
	if in.Project == nil || !scriptNames.MatchString(in.ScriptName) {
		return nil, errors.New("build: a project and a script name are required")
	}
	if in.Policy == "" {
		in.Policy = Current
	}
	if !in.Policy.Known() {
		return nil, fmt.Errorf("build: unknown builder policy %q", in.Policy)
	}
	started := time.Now()
	out, err := b.build(ctx, in)
	b.log.InfoContext(ctx, "project built",
		"script", in.ScriptName, "project_digest", in.Project.Digest,
		"ok", err == nil, "duration_ms", time.Since(started).Milliseconds())
	return out, err
}

// build waits for the packages before it waits for a slot: a slow registry must
// not stop the builds that need none.
func (b *Builder) build(ctx context.Context, in Input) (*Output, error) {
	deps, err := b.install(ctx, in)
	if err != nil {
		return nil, err
	}
	err = b.slots.Acquire(ctx, 1)
	if err != nil {
		return nil, fmt.Errorf("wait for a build slot: %w", err)
	}
	return b.run(ctx, in, deps)
}
