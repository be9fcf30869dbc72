package npm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// Tree is a project's installed packages.
type Tree struct {
	// Lock is what was installed.
	Lock     *Lock
	packages map[string]*Contents // by installation path
}

// NoPackages is the tree of a project without packages.
func NoPackages() *Tree { return &Tree{Lock: &Lock{}} }

// Progress is told how many of a project's packages are there. Calls never
// overlap and done never falls.
type Progress func(done, total int)

// Install brings the packages of a lock file into memory: from memory, from the
// cache folder or from the registry. A package that is not what the lock file
// says is a fault of kind Invalid that names it; a registry that does not
// deliver is one of kind Unavailable, npm_registry_unavailable. The progress may
// be nil. Nothing is kept of a package that was refused.
func (p *Packages) Install(ctx context.Context, lock *Lock, progress Progress) (*Tree, error) {
	limited, cancel := context.WithTimeout(ctx, p.overall)
	defer cancel()
	i := &installation{
		tree:     &Tree{Lock: lock, packages: make(map[string]*Contents, len(lock.Packages))},
		progress: progress, total: len(lock.Packages),
	}
	group, within := errgroup.WithContext(limited)
	// More than the requests that may run: packages that are there pass by
	// those that are waited for.
	group.SetLimit(2 * parallel)
	for _, entry := range lock.Packages {
		group.Go(func() error {
			contents, err := p.contents(within, entry)
			if err != nil {
				return i.failed(entry, err)
			}
			return i.add(entry, contents)
		})
	}
	err := group.Wait()
	switch {
	case err == nil:
		return i.tree, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("install the packages: %w", ctx.Err())
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*fault.Error)):
		return nil, unavailable(i.waited).Because(err)
	}
	return nil, err
}

// installation is one Install.
type installation struct {
	mu       sync.Mutex
	tree     *Tree
	size     int64
	progress Progress
	total    int
	waited   Entry // the first package that did not come in time
}

func (i *installation) add(entry Entry, contents *Contents) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.size += contents.size
	if i.size > MaxTotal {
		return refuse(tooLarge, entry, "the packages of the project have more than 128 MiB of code; %s is one of them", entry)
	}
	i.tree.packages[entry.Path] = contents
	if i.progress != nil {
		i.progress(len(i.tree.packages), i.total)
	}
	return nil
}

func (i *installation) failed(entry Entry, err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) && i.waited.Path == "" {
		i.waited = entry
	}
	var refused *fault.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	// The work may have been another project's, with another path.
	problem := refused.Problems[0]
	problem.Loc = []any{LockName, "packages", entry.Path}
	return fault.Refuse(problem)
}

// contents gives an unpacked package. Builds that need it at the same time share
// the work.
func (p *Packages) contents(ctx context.Context, entry Entry) (*Contents, error) {
	key := cacheKey(entry)
	if found := p.memory.get(key); found != nil {
		return found, nil
	}
	return p.flights.do(ctx, key, func(ctx context.Context) (*Contents, error) {
		return p.load(ctx, key, entry)
	})
}

func (p *Packages) load(ctx context.Context, key string, entry Entry) (*Contents, error) {
	if found := p.memory.get(key); found != nil {
		return found, nil // another flight landed between the two looks
	}
	var raw []byte
	if p.cache != nil {
		raw = p.cache.get(ctx, entry)
	}
	fetched := raw == nil
	if fetched {
		var err error
		raw, err = p.registry.fetch(ctx, entry)
		if err != nil {
			return nil, err
		}
	}
	contents, err := p.unpack(ctx, entry, raw)
	if err != nil {
		return nil, err
	}
	if fetched && p.cache != nil {
		p.cache.put(ctx, entry, raw)
	}
	p.memory.put(key, contents)
	return contents, nil
}

func (p *Packages) unpack(ctx context.Context, entry Entry, raw []byte) (*Contents, error) {
	err := p.unpacks.Acquire(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer p.unpacks.Release(1)
	return unpack(entry, raw)
}

// Licences gives what the package at a path says of its licence, usually one
// SPDX expression; nothing when it says nothing.
func (t *Tree) Licences(path string) []string {
	contents := t.packages[path]
	if contents == nil {
		return nil
	}
	return contents.manifests[""].licences
}
