package npm

import (
	"context"
	"fmt"
	"sync"
)

// flights lets builds that need the same package at the same time share one
// fetch. A flight belongs to nobody: it goes on as long as one build waits for
// it, so that a build that is given up takes nothing from another.
type flights struct {
	mu   sync.Mutex
	live map[string]*flight
}

type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed when contents and err are set
	result  *Contents
	err     error
}

func newFlights() *flights { return &flights{live: map[string]*flight{}} }

// do joins the flight of a key, or starts it with work.
func (f *flights) do(ctx context.Context, key string, work func(context.Context) (*Contents, error)) (*Contents, error) {
	joined := f.join(ctx, key, work)
	select {
	case <-joined.done:
		f.leave(key, joined)
		return joined.result, joined.err
	case <-ctx.Done():
		f.leave(key, joined)
		return nil, ctx.Err()
	}
}

func (f *flights) join(ctx context.Context, key string, work func(context.Context) (*Contents, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	joined, ok := f.live[key]
	if ok {
		joined.waiting++
		return joined
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	joined = &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	f.live[key] = joined
	go func() {
		defer f.land(key, joined)
		// What is read here comes from outside: a defect must not end the
		// process that serves other tenants.
		defer func() {
			if reason := recover(); reason != nil {
				joined.err = fmt.Errorf("the package reader panicked: %v", reason)
			}
		}()
		joined.result, joined.err = work(ctx)
	}()
	return joined
}

// land ends a flight: who comes later starts a new one.
func (f *flights) land(key string, landed *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[key] == landed {
		delete(f.live, key)
	}
	landed.cancel()
	close(landed.done)
}

// leave cancels a flight for which nobody waits any more.
func (f *flights) leave(key string, left *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left.waiting--
	if left.waiting > 0 {
		return
	}
	if f.live[key] == left {
		delete(f.live, key)
	}
	left.cancel()
}
