package setup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// How long an answer about the dispatch namespaces stands. The account's rate
// limit is shared with deployments, so readiness checks do not each ask.
const (
	guardGood  = 10 * time.Minute
	guardRetry = time.Minute
)

// guard refuses dispatch namespaces that must not be deployed to: one in
// trusted mode lets tenants see of each other what they must not. It is asked
// with the readiness check. Only a definite answer changes its verdict: a
// provider that cannot be asked stops neither the API nor its deployments.
type guard struct {
	ask func(context.Context) error
	now func() time.Time

	mu      sync.Mutex
	due     time.Time // when the provider is to be asked again
	refused error     // the last definite answer
}

func newGuard(ask func(context.Context) error, now func() time.Time) *guard {
	return &guard{ask: ask, now: now}
}

// ready is the readiness check.
func (g *guard) ready(ctx context.Context) error {
	if g.claim() {
		g.settle(g.ask(ctx))
	}
	return g.verdict()
}

// claim tells whether this call is to ask; others go on without.
func (g *guard) claim() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if now.Before(g.due) {
		return false
	}
	g.due = now.Add(guardRetry)
	return true
}

func (g *guard) settle(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.refused, g.due = nil, g.now().Add(guardGood)
	case errors.Is(err, cloudflare.ErrTrusted), errors.Is(err, cloudflare.ErrNoNamespace):
		g.refused = err
	}
}

// verdict is what the last definite answer was.
func (g *guard) verdict() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}
