package deploy_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
)

// limited is a provider that tells for how long it refuses everything.
type limited struct {
	*plane.Provider
	block atomic.Int64 // what is left of it, told once
}

func (l *limited) RetryIn() time.Duration { return time.Duration(l.block.Swap(0)) }

// S2-164, S2-209 to S2-212: a read that is refused for the rate limit shows
// nothing of the release and is sent again after the block, without another
// upload. A block that is longer than the patience, another unreadable answer
// and a difference are what they were.
func TestReadBackUnderARateLimit(t *testing.T) {
	t.Parallel()
	refused := &provider.UnreadableError{Cause: errors.New("status 429")}
	for name, c := range map[string]struct {
		first error // of the first read-back; the second one is exact
		block time.Duration
		want  settled
		calls []string
	}{
		"refused, then shown": {
			refused, time.Millisecond,
			settled{models.OutboxCompleted, "", models.VersionDeployed, models.WorkerActive, 1}, []string{"PUT", "GET", "GET"},
		},
		"blocked for longer than anybody waits": {
			refused, 11 * time.Minute,
			settled{models.OutboxUncertain, "provider_settlement_lost", models.VersionUncertain, models.WorkerPaused, 1}, []string{"PUT", "GET"},
		},
		"unreadable for another reason": {
			refused, 0,
			settled{models.OutboxUncertain, "provider_settlement_lost", models.VersionUncertain, models.WorkerPaused, 1}, []string{"PUT", "GET"},
		},
		"different, and blocked": {
			&provider.MismatchError{Detail: "tags"}, time.Millisecond,
			settled{models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused, 1}, []string{"PUT", "GET"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plane.New(t, databasetest.MySQL(t))
			v, ticketID, m := admitted(t, p, "one")
			target := &limited{Provider: p.Provider}
			p.Provider.OnReadBack = func(provider.Release) error {
				p.Provider.OnReadBack = nil
				target.block.Store(int64(c.block))
				return c.first
			}
			handle(t, p.Task(func(d *deploy.Params) { d.Provider = func() (provider.Provider, error) { return target, nil } }), m)
			if got := observe(p, ticketID, v.ID); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if got := p.Provider.Calls(); !slices.Equal(got, c.calls) {
				t.Errorf("calls %v", got)
			}
		})
	}
}
