// Package npm installs the packages of a project into memory: it reads the lock
// file, fetches each package from the registry, checks it against the lock
// file's sha512, and answers what an import in one file means.
//
// It is no npm: it decides nothing. The lock file says what is installed and
// where; a lock file that does not say it is refused. No script of a package
// ever runs, nothing is written but the cache of verified tarballs, and the only
// addresses that are asked are made here from a package's name and version.
package npm

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// DefaultRegistry is npm's public registry.
const DefaultRegistry = "https://registry.npmjs.org"

// The bounds of an installation. A Worker's bundle has at most 5 MiB, so a
// project that needs more than these could not be deployed anyway.
const (
	MaxPackages   = 1000      // installed packages of one project
	MaxLock       = 8 << 20   // bytes of a lock file
	MaxTarball    = 16 << 20  // bytes of one package, compressed
	MaxUnpacked   = 64 << 20  // bytes of one package, unpacked
	MaxFiles      = 20_000    // files of one package
	MaxImportable = 32 << 20  // bytes of the files of one package that code can import
	MaxTotal      = 128 << 20 // the same of all packages of one project
)

// parallel bounds the requests to the registry, of all builds together.
const parallel = 8

// Params configures Packages. The zero value is npm's registry without a cache
// folder.
type Params struct {
	// Registry is the base URL of the registry; empty means DefaultRegistry.
	// Lock files may name it or DefaultRegistry; packages come from it alone.
	Registry string
	// CacheDir is a folder for verified tarballs; several processes may share
	// it. Empty means none: packages stay in memory only.
	CacheDir string
	// CacheBytes bounds that folder; 0 means 1 GiB.
	CacheBytes int64
	// MemoryBytes bounds the unpacked packages that are kept between builds;
	// 0 means 128 MiB.
	MemoryBytes int64
	// Overall bounds the fetching of one project's packages; 0 means 90 s.
	Overall time.Duration
	// Request bounds one attempt to fetch one package; 0 means 45 s.
	Request time.Duration
	// Idle bounds the wait for the registry's next byte; 0 means 10 s.
	Idle time.Duration
	// Retry is the pause before the second attempt, and half of that before
	// the third; 0 means 300 ms.
	Retry time.Duration
	// Log receives a line for each fault of the cache and each failed attempt;
	// nil discards.
	Log *slog.Logger
}

func (p *Params) defaults() {
	for _, d := range []struct {
		value *time.Duration
		unset time.Duration
	}{{&p.Overall, 90 * time.Second}, {&p.Request, 45 * time.Second}, {&p.Idle, 10 * time.Second}, {&p.Retry, 300 * time.Millisecond}} {
		if *d.value == 0 {
			*d.value = d.unset
		}
	}
	if p.Registry == "" {
		p.Registry = DefaultRegistry
	}
	if p.CacheBytes == 0 {
		p.CacheBytes = 1 << 30
	}
	if p.MemoryBytes == 0 {
		p.MemoryBytes = 128 << 20
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
}

// Packages fetches, keeps and unpacks packages for all builds of a process. It
// is safe for concurrent use.
type Packages struct {
	registry *registry
	cache    *cache // nil without a folder
	memory   *memory
	flights  *flights
	unpacks  *semaphore.Weighted // one for each processor: unpacking is what costs memory
	overall  time.Duration
	log      *slog.Logger
}

// New checks the parameters and opens the cache folder, which it makes if it is
// missing.
func New(p Params) (*Packages, error) {
	p.defaults()
	if min(p.Overall, p.Request, p.Idle, p.Retry) < 0 || min(p.CacheBytes, p.MemoryBytes) < 0 {
		return nil, errors.New("npm: limits must not be negative")
	}
	base, err := ParseRegistry(p.Registry)
	if err != nil {
		return nil, fmt.Errorf("npm: %w", err)
	}
	packages := &Packages{
		registry: newRegistry(base, p), memory: newMemory(p.MemoryBytes), flights: newFlights(),
		unpacks: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), overall: p.Overall, log: p.Log,
	}
	if p.CacheDir != "" {
		packages.cache, err = openCache(p.CacheDir, p.CacheBytes, p.Log)
		if err != nil {
			return nil, err
		}
	}
	return packages, nil
}

// ParseRegistry checks the base URL of a registry: http or https, without user,
// query and fragment.
func ParseRegistry(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Hostname() == "" {
		return nil, errors.New("the npm registry is not an http or https URL")
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("the npm registry's URL must not have a user, a query or a fragment")
	}
	for len(base.Path) > 0 && base.Path[len(base.Path)-1] == '/' {
		base.Path = base.Path[:len(base.Path)-1]
	}
	base.RawPath = ""
	return base, nil
}
