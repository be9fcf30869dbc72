// Package inprocess is the "legacy" transport: jobs run in the process that
// enqueued them (S1-251). It remembers nothing: what a crash or a full queue
// loses, the recovery sweep finds in the outbox.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/transports"
)

// Params configures the transport.
type Params struct {
	Receiver *transports.Receiver
	// Workers is how many jobs run at once; each takes one at a time.
	Workers int
	// Queue is how many accepted jobs may wait; a full queue refuses.
	Queue int
	// RedeliverAfter is the pause before a failed job is tried again; it is
	// tried MaxDeliveries times at most and then left to the sweep.
	RedeliverAfter time.Duration
	MaxDeliveries  int
	Log            *slog.Logger
}

// Transport is a bounded queue with its consumers.
type Transport struct {
	p      Params
	queue  chan transports.Message
	stop   chan struct{}
	cancel context.CancelFunc
	work   context.Context
	wg     sync.WaitGroup
	once   sync.Once
	mu     sync.RWMutex
	closed bool
}

// New starts the consumers. They live until Close.
func New(p Params) (*Transport, error) {
	if p.Receiver == nil || p.Log == nil {
		return nil, errors.New("in-process transport: receiver and log are required")
	}
	if p.Workers < 1 || p.Queue < 1 || p.MaxDeliveries < 1 {
		return nil, errors.New("in-process transport: workers, queue and deliveries must be positive")
	}
	t := &Transport{p: p, queue: make(chan transports.Message, p.Queue), stop: make(chan struct{})}
	t.work, t.cancel = context.WithCancel(context.Background())
	for range p.Workers {
		t.wg.Go(t.consume)
	}
	return t, nil
}

// Publish puts the message into the queue. A full or closed queue refuses: the
// row stays pending and the sweep publishes it again.
func (t *Transport) Publish(_ context.Context, message transports.Message) error {
	err := message.Validate()
	if err != nil {
		return err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return fmt.Errorf("%w: it is closing", transports.ErrRefused)
	}
	select {
	case t.queue <- message:
		return nil
	default:
		return fmt.Errorf("%w: its queue is full", transports.ErrRefused)
	}
}

func (t *Transport) consume() {
	for {
		select {
		case <-t.stop:
			return
		case message := <-t.queue:
			if t.stopping() { // both may be ready: what only waited stays undone
				return
			}
			t.deliver(message)
		}
	}
}

func (t *Transport) stopping() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

func (t *Transport) deliver(message transports.Message) {
	for delivery := 1; ; delivery++ {
		if t.p.Receiver.Run(t.work, message) != transports.Retry {
			return
		}
		if delivery >= t.p.MaxDeliveries {
			t.p.Log.Warn("job left to the recovery sweep", "job_id", message.JobID, "deliveries", delivery)
			return
		}
		select {
		case <-t.stop:
			return
		case <-time.After(t.p.RedeliverAfter):
			if t.stopping() { // both may be ready
				return
			}
		}
	}
}

// Close refuses new jobs, lets the running ones end until ctx is done, and
// then cancels them. Jobs that only waited are left to the recovery sweep.
func (t *Transport) Close(ctx context.Context) error {
	t.once.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		close(t.stop)
	})
	drained := make(chan struct{})
	go func() { t.wg.Wait(); close(drained) }()
	select {
	case <-drained:
		t.cancel()
		return nil
	case <-ctx.Done():
		t.cancel()
		<-drained
		return fmt.Errorf("drain the jobs: %w: %w", transports.ErrCutOff, ctx.Err())
	}
}

// Inline runs each message in the caller's own goroutine and returns when it
// has ended: the legacy transport's form of a republication (S1-294). A
// deployment that did not end well is left to the next round.
type Inline struct{ Handler transports.Handler }

// Publish runs the message.
func (i Inline) Publish(ctx context.Context, message transports.Message) error {
	return i.Handler(ctx, message)
}
