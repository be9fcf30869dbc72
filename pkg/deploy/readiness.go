package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The readiness gate's constants (S2-178, S2-179, S2-184).
const (
	readinessDeadline = 600 * time.Second // from the match of the read-back
	probeTimeout      = 40 * time.Second  // 5 s connect plus 35 s read at the gateway
)

// backOff is 1 → 2 → 4 → 5 seconds and then 5.
var backOff = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}

// errNotReady says that no probe was answered before the deadline.
var errNotReady = errors.New("the release did not answer")

// readiness waits until a release answers. probe is nil only for an answer of
// the exact generation; verify checks that the lease is still this run's.
type readiness struct {
	probe  func(context.Context) error
	verify func(context.Context) error
}

// wait returns nil once a probe was answered while the lease was held before
// and after it, errNotReady after the deadline, and verify's error at once.
// A probe that fails counts as not ready (S1-104); none starts after the
// deadline (S2-183).
func (g readiness) wait(ctx context.Context) error {
	deadline := time.Now().Add(readinessDeadline)
	var last error
	for n := 0; ; n++ {
		err := g.verify(ctx)
		if err != nil {
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("%w: %w", errNotReady, last)
		}
		last = g.once(ctx, deadline)
		err = g.verify(ctx)
		if err != nil {
			return err
		}
		if last == nil {
			return nil
		}
		pause := min(backOff[min(n, len(backOff)-1)], time.Until(deadline))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// once runs one probe, cut off at its own limit or at the deadline, whichever
// comes first, even if the probe does not heed its context.
func (g readiness) once(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, min(probeTimeout, time.Until(deadline)))
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- g.probe(ctx) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
