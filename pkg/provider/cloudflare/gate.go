package cloudflare

import (
	"context"
	"errors"
	"sync"
	"time"
)

// How long a token is taken to be blocked. The provider documents that a token
// over its limit is refused for the next five minutes; a longer Retry-After
// than the cap is not believed.
const (
	defaultBlock = 5 * time.Minute
	maxBlock     = 15 * time.Minute
)

// errBlocked is the cause of an answer that was given without asking.
var errBlocked = errors.New("the API token is blocked for its rate limit")

// Gate remembers until when the provider refuses everything for its rate
// limit. It is safe for concurrent use.
type Gate struct {
	now func() time.Time

	mu    sync.Mutex
	until time.Time
}

// NewGate returns an open gate on the clock.
func NewGate(now func() time.Time) *Gate { return &Gate{now: now} }

// Block closes the gate for d from now, at most 15 minutes. It never opens it
// earlier than an earlier call said.
func (g *Gate) Block(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	until := g.now().Add(min(d, maxBlock))
	if until.After(g.until) {
		g.until = until
	}
}

// Remaining is the time until the gate opens, 0 when it is open.
func (g *Gate) Remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.until.Sub(g.now()), 0)
}

// Wait returns nil once the gate is open, or the context's cause.
func (g *Gate) Wait(ctx context.Context) error {
	for {
		left := g.Remaining()
		if left == 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(errBlocked, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
