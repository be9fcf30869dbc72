package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// readBackPatience is for how long a read-back waits altogether for a provider
// that refuses everything for its rate limit. Its blocks last five minutes; one
// that would last longer than this ends the wait at once.
const readBackPatience = 600 * time.Second

// showRelease reads the release back. A read that the provider refuses for its
// rate limit shows nothing of the release, and asking again changes nothing: it
// is repeated once the provider takes requests again, so that a deployment that
// stands is not left uncertain by a busy token. The heartbeats go on meanwhile;
// a lease that is lost ends ctx. What it returns last is the read-back's own
// answer (S2-209 to S2-212).
func (r *run) showRelease(ctx context.Context, target provider.Provider) error {
	for deadline := time.Now().Add(readBackPatience); ; {
		err := r.readBack(ctx, target)
		_, unreadable := errors.AsType[*provider.UnreadableError](err)
		left := retryIn(target)
		if !unreadable || left <= 0 || time.Now().Add(left).After(deadline) {
			return err
		}
		r.log.InfoContext(ctx, "read-back refused for the rate limit, asked again later", "seconds", int(left.Seconds()), "error", err)
		if awaitOpen(ctx, target) != nil {
			return err
		}
	}
}

func (r *run) readBack(ctx context.Context, target provider.Provider) error {
	// gofail: var readBackBefore string
	// if err := failpoint.Act(readBackBefore); err != nil { return err }
	err := target.ReadBack(ctx, r.release)
	// gofail: var readBackAfter string
	// if err == nil { err = failpoint.Act(readBackAfter) }
	return err
}
