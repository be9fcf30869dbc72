package transports

import (
	"context"
	"errors"
	"time"
)

// ErrCutOff says that a drain's limit came before the end of the message in
// flight: its row is left to the recovery sweep.
var ErrCutOff = errors.New("the message in flight was cut off")

// Consumer takes a broker's messages one at a time (S1-254).
type Consumer interface {
	// Consume runs messages until ctx ends, and then drains: what the broker
	// still delivers is given back (S1-258), the message in flight goes on to
	// its end or to the drain limit (S1-259), and only then Consume returns
	// (S1-260). nil says that nothing was cut off, ErrCutOff that something was.
	// A broker that is away is waited for.
	Consume(ctx context.Context) error
	// Ready tells whether the broker can be reached and has the queue.
	Ready(ctx context.Context) error
	// Close gives the connections back; after Consume has returned.
	Close() error
}

// The limits of a consumer (S1-255, S1-256, S1-257).
const (
	// DefaultMaxLease is PUBSUB_MAX_LEASE_SECONDS: how long a message in work
	// is kept from other consumers. A longer run goes on, beside a second one,
	// which the row's lease holds off.
	DefaultMaxLease = 3300 * time.Second
	// DefaultDrain is PUBSUB_DRAIN_TIMEOUT_SECONDS: how long a message in work
	// may take to end after a stop.
	DefaultDrain = 3300 * time.Second
	// ShutdownGrace is how long a process manager waits before it kills; it is
	// longer than any drain.
	ShutdownGrace = 3600 * time.Second
)

// Outlive gives the context of work that a stop must not cut off: it ends limit
// after ctx, and with what cancel does.
func Outlive(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() { forget(); cancel() }
}
