package transporttest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
)

// record is a running consumer and what its handler saw.
type record struct {
	t        testing.TB
	log      observetest.Log
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ctx      context.Context //nolint:containedctx // the consumer's life, which the test ends
	stopped  chan struct{}   // closed once Consume has returned
	err      error

	mu      sync.Mutex
	changed chan struct{} // closed and renewed by each event
	began   []transports.Message
	ended   []string
	running int
	peak    int
}

func (s *suite) start(handler func(ctx context.Context, m transports.Message, delivery int) error) *record {
	s.Helper()
	return s.startDraining(patience, handler)
}

// startDraining starts a consumer whose handler is told how often it has seen
// the message.
func (s *suite) startDraining(drain time.Duration, handler func(ctx context.Context, m transports.Message, delivery int) error) *record {
	s.Helper()
	r := &record{t: s, registry: prometheus.NewRegistry(), stopped: make(chan struct{}), changed: make(chan struct{})}
	receiver, err := transports.NewReceiver(transports.ReceiverParams{
		Transport: "test", Registerer: r.registry, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Handler: func(ctx context.Context, m transports.Message) error {
			delivery := r.begin(m)
			defer r.end(m)
			if handler == nil {
				return nil
			}
			return handler(ctx, m, delivery)
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	consumer := s.broker.Consumer(s, receiver, drain)
	err = consumer.Ready(s.Context())
	if err != nil {
		s.Fatalf("not ready: %v", err)
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(s.Context()))
	go func() {
		defer close(r.stopped)
		r.err = consumer.Consume(r.ctx)
	}()
	s.Cleanup(func() {
		r.stop()
		if err := consumer.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return r
}

// stop ends the consumer and waits until it has returned.
func (r *record) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case <-r.stopped:
	case <-time.After(patience):
		r.t.Error("the consumer does not return")
	}
}

// awaitStopping waits until a stop has been asked for.
func (r *record) awaitStopping() { <-r.ctx.Done() }

func (r *record) begin(m transports.Message) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = append(r.began, m)
	r.running++
	r.peak = max(r.peak, r.running)
	r.tell()
	return count(r.began, m.JobID)
}

func (r *record) end(m transports.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, m.JobID)
	r.running--
	r.tell()
}

func (r *record) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits until n deliveries have begun.
func (r *record) await(n int) {
	r.t.Helper()
	limit := time.After(patience)
	for {
		r.mu.Lock()
		have, changed := len(r.began), r.changed
		r.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			r.t.Fatalf("%d deliveries of %d; the log:\n%s", have, n, r.log.String())
		}
	}
}

// expectNoMore gives a delivery that must not begin some time to do so. What
// waits here is a defect's chance to show itself: a correct consumer passes
// however slow the machine is.
func (r *record) expectNoMore(n int) {
	r.t.Helper()
	limit := time.After(100 * time.Millisecond)
	for {
		r.mu.Lock()
		have, changed := len(r.began), r.changed
		r.mu.Unlock()
		if have > n {
			r.t.Fatalf("%d deliveries have begun, want %d", have, n)
		}
		select {
		case <-changed:
		case <-limit:
			return
		}
	}
}

func (r *record) messages() []transports.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transports.Message(nil), r.began...)
}

// ids are those of the deliveries, in their order.
func (r *record) ids() []string {
	var ids []string
	for _, m := range r.messages() {
		ids = append(ids, m.JobID)
	}
	return ids
}

func (r *record) endedIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.ended...)
}

func (r *record) deliveries(id string) int { return count(r.messages(), id) }

func (r *record) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

func count(messages []transports.Message, id string) int {
	n := 0
	for _, m := range messages {
		if m.JobID == id {
			n++
		}
	}
	return n
}

// count reads the consumer's metric.
func (r *record) count(result string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "edge_workers_messages_total" && label.GetName() == "result" && label.GetValue() == result {
					return metric.GetCounter().GetValue()
				}
			}
		}
	}
	r.t.Fatalf("the metric has no %q", result)
	return 0
}

// until waits for what a broker does by itself.
func (s *suite) until(what string, holds func() bool) {
	s.Helper()
	limit := time.After(patience)
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			s.Fatalf("never: %s", what)
		}
	}
}
