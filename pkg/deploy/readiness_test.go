package deploy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/outbox"
)

var errSilent = errors.New("silent")

// deaf is how long a probe runs that does not heed its context.
const deaf = time.Hour

// gate runs wait in a bubble with its own clock and returns when each probe
// began, counted from the start, and how long the wait was.
func gate(t *testing.T, probe func(ctx context.Context, at time.Duration) error, verify func(calls int) error) ([]time.Duration, time.Duration, error) {
	t.Helper()
	var mu sync.Mutex // a deaf probe may still run when the next one begins
	var starts []time.Duration
	var took time.Duration
	var err error
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		verified := 0
		g := readiness{
			probe: func(ctx context.Context) error {
				at := time.Since(begin)
				mu.Lock()
				starts = append(starts, at)
				mu.Unlock()
				return probe(ctx, at)
			},
			verify: func(context.Context) error {
				verified++
				if verify == nil {
					return nil
				}
				return verify(verified)
			},
		}
		err = g.wait(context.Background())
		took = time.Since(begin)
		<-time.After(2 * deaf) // on the bubble's clock: let deaf probes end
	})
	return starts, took, err
}

// S2-179, S1-104: the gaps are 1, 2, 4, 5, 5, … and a probe that fails counts
// as not ready.
func TestReadinessBackOff(t *testing.T) {
	t.Parallel()
	starts, _, err := gate(t, func(_ context.Context, at time.Duration) error {
		if at < 22*time.Second {
			return errSilent
		}
		return nil
	}, nil)
	want := make([]time.Duration, 0, 7)
	for _, seconds := range []int{0, 1, 3, 7, 12, 17, 22} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if err != nil || !slices.Equal(starts, want) {
		t.Errorf("probes at %v, %v", starts, err)
	}
}

// S2-178, S2-188, S1-103: ready after nine minutes, and just before the
// deadline, is ready; a silent release ends at 600 s with errNotReady.
func TestReadinessDeadline(t *testing.T) {
	t.Parallel()
	for _, ready := range []time.Duration{9 * time.Minute, 597 * time.Second} {
		_, took, err := gate(t, func(_ context.Context, at time.Duration) error {
			if at < ready {
				return errSilent
			}
			return nil
		}, nil)
		if err != nil || took < ready {
			t.Errorf("ready at %v: %v after %v", ready, err, took)
		}
	}
	starts, took, err := gate(t, func(context.Context, time.Duration) error { return errSilent }, nil)
	if !errors.Is(err, errNotReady) || took != 600*time.Second {
		t.Errorf("silent: %v after %v", err, took)
	}
	if last := starts[len(starts)-1]; last >= 600*time.Second { // S2-183, S1-105
		t.Errorf("a probe began at %v", last)
	}
}

// S2-184, S1-106, S1-107: a hanging probe is cut off at 40 s, and one that
// began shortly before the deadline at the deadline, even if it does not heed
// its context.
func TestReadinessProbeLimit(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
	starts, took, err := gate(t, hang, nil)
	if !errors.Is(err, errNotReady) || took != 600*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if starts[1] != 41*time.Second {
		t.Errorf("the second probe began at %v", starts[1])
	}
	starts, took, err = gate(t, func(ctx context.Context, _ time.Duration) error {
		<-time.After(deaf)
		return nil
	}, nil)
	if !errors.Is(err, errNotReady) || took < 600*time.Second || len(starts) < 10 {
		t.Errorf("deaf: %v after %v, %d probes", err, took, len(starts))
	}
}

// S2-181, S2-182, S1-108, S1-109: the lease is verified before and after each
// probe; a loss between probes stops the next one, and a loss during a good
// probe settles nothing.
func TestReadinessVerifiesTheLease(t *testing.T) {
	t.Parallel()
	lost := func(at int) func(int) error {
		return func(calls int) error {
			if calls == at {
				return outbox.ErrLeaseLost
			}
			return nil
		}
	}
	silent := func(context.Context, time.Duration) error { return errSilent }
	good := func(context.Context, time.Duration) error { return nil }
	for _, c := range []struct {
		name   string
		at     int
		probe  func(context.Context, time.Duration) error
		probes int
	}{
		{"before the first", 1, silent, 0}, {"after a good one", 2, good, 1}, {"between two", 3, silent, 1},
	} {
		starts, _, err := gate(t, c.probe, lost(c.at))
		if !errors.Is(err, outbox.ErrLeaseLost) || len(starts) != c.probes {
			t.Errorf("%s: %v, %d probes", c.name, err, len(starts))
		}
	}
	_, _, err := gate(t, good, lost(0)) // the control
	if err != nil {
		t.Error(err)
	}
}
