package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/inprocess"
)

var errLater = errors.New("later")

// record is a handler that notes its deliveries.
type record struct {
	mu   sync.Mutex
	seen []string
	do   func(ctx context.Context, id string, n int) error
}

func (r *record) handle(ctx context.Context, m transports.Message) error {
	r.mu.Lock()
	r.seen = append(r.seen, m.JobID)
	n := len(r.seen)
	r.mu.Unlock()
	if r.do == nil {
		return nil
	}
	return r.do(ctx, m.JobID, n)
}

func (r *record) deliveries() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.seen...)
}

func receiver(t *testing.T, handler transports.Handler) *transports.Receiver {
	t.Helper()
	r, err := transports.NewReceiver(transports.ReceiverParams{
		Transport: "legacy", Handler: handler, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t *testing.T, r *record, change func(*inprocess.Params)) *inprocess.Transport {
	t.Helper()
	p := inprocess.Params{Receiver: receiver(t, r.handle), Workers: 1, Queue: 2, RedeliverAfter: 10 * time.Second, MaxDeliveries: 3, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&p)
	}
	transport, err := inprocess.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func publish(t *testing.T, transport *inprocess.Transport, ids ...string) {
	t.Helper()
	for _, id := range ids {
		err := transport.Publish(t.Context(), transports.Deploy("o", "c", "d", id))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
}

func shut(t *testing.T, transport *inprocess.Transport) {
	t.Helper()
	if err := transport.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, r *record, want ...string) {
	t.Helper()
	if got := r.deliveries(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

// A full queue refuses at once; what it took is delivered once, in order.
func TestFullQueueRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &record{do: func(context.Context, string, int) error { <-release; return nil }}
		transport := start(t, r, nil)
		publish(t, transport, "a")
		synctest.Wait() // the consumer has it
		publish(t, transport, "b", "c")
		err := transport.Publish(t.Context(), transports.Deploy("o", "c", "d", "d"))
		if !errors.Is(err, transports.ErrRefused) {
			t.Errorf("%v", err)
		}
		close(release)
		synctest.Wait()
		expect(t, r, "a", "b", "c")
		publish(t, transport, "e")
		synctest.Wait()
		expect(t, r, "a", "b", "c", "e")
		shut(t, transport)
	})
}

// A malformed message is not taken, and one that its handler calls malformed is
// dropped after one delivery (S1-267).
func TestMalformed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &record{do: func(_ context.Context, id string, _ int) error {
			if id == "bad" {
				return fmt.Errorf("args: %w", transports.ErrMalformed)
			}
			return nil
		}}
		transport := start(t, r, nil)
		err := transport.Publish(t.Context(), transports.Message{Function: "x"})
		if !errors.Is(err, transports.ErrMalformed) {
			t.Errorf("%v", err)
		}
		publish(t, transport, "bad", "good")
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, r, "bad", "good")
		shut(t, transport)
	})
}

// A failed job is delivered again after the pause, up to the limit, and then
// left to the recovery sweep; a success ends it before.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		started := time.Now()
		r := &record{do: func(_ context.Context, id string, n int) error {
			at = append(at, time.Since(started))
			if id == "mends" && n == 5 {
				return nil
			}
			return errLater
		}}
		transport := start(t, r, nil)
		publish(t, transport, "never", "mends")
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, r, "never", "never", "never", "mends", "mends")
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 20 * time.Second, 30 * time.Second}; fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("delivered at %v", at)
		}
		shut(t, transport)
	})
}

// Workers is how many jobs run at once.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &record{do: func(context.Context, string, int) error { <-release; return nil }}
		transport := start(t, r, func(p *inprocess.Params) { p.Workers, p.Queue = 2, 8 })
		publish(t, transport, "a", "b", "c")
		synctest.Wait()
		if got := r.deliveries(); len(got) != 2 {
			t.Errorf("%v run at once", got)
		}
		close(release)
		synctest.Wait()
		if got := r.deliveries(); len(got) != 3 {
			t.Errorf("delivered %v", got)
		}
		shut(t, transport)
	})
}

// Close waits for the running job without cancelling it, leaves what only
// waited, refuses what comes after, and may be called again.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	for range 20 { // a closing consumer must not take a waiting job by chance
		synctest.Test(t, func(t *testing.T) {
			var ended error
			r := &record{do: func(ctx context.Context, _ string, _ int) error {
				time.Sleep(5 * time.Second)
				ended = ctx.Err()
				return nil
			}}
			transport := start(t, r, func(p *inprocess.Params) { p.Queue = 8 })
			publish(t, transport, "runs", "w1", "w2", "w3")
			synctest.Wait()
			started := time.Now()
			shut(t, transport)
			if took := time.Since(started); took != 5*time.Second || ended != nil {
				t.Errorf("closed after %v, job saw %v", took, ended)
			}
			expect(t, r, "runs")
			err := transport.Publish(t.Context(), transports.Deploy("o", "c", "d", "late"))
			if !errors.Is(err, transports.ErrRefused) {
				t.Errorf("after Close: %v", err)
			}
			shut(t, transport)
		})
	}
}

// When its time is over Close cancels the running job and says so.
func TestCloseCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &record{do: func(ctx context.Context, _ string, _ int) error { <-ctx.Done(); return ctx.Err() }}
		transport := start(t, r, nil)
		publish(t, transport, "stuck")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		started := time.Now()
		err := transport.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		expect(t, r, "stuck")
	})
}

// Close does not wait for a pause between deliveries.
func TestCloseEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &record{do: func(context.Context, string, int) error { return errLater }}
		transport := start(t, r, func(p *inprocess.Params) { p.RedeliverAfter = time.Hour })
		publish(t, transport, "a")
		synctest.Wait()
		started := time.Now()
		shut(t, transport)
		if time.Since(started) != 0 {
			t.Errorf("waited %v", time.Since(started))
		}
		expect(t, r, "a")
	})
}

func TestParams(t *testing.T) {
	t.Parallel()
	good := inprocess.Params{Receiver: receiver(t, (&record{}).handle), Workers: 1, Queue: 1, MaxDeliveries: 1, Log: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*inprocess.Params){
		"receiver": func(p *inprocess.Params) { p.Receiver = nil }, "log": func(p *inprocess.Params) { p.Log = nil }, "workers": func(p *inprocess.Params) { p.Workers = 0 },
		"queue": func(p *inprocess.Params) { p.Queue = 0 }, "deliveries": func(p *inprocess.Params) { p.MaxDeliveries = 0 },
	} {
		p := good
		change(&p)
		if _, err := inprocess.New(p); err == nil {
			t.Errorf("no %s was accepted", name)
		}
	}
	transport, err := inprocess.New(good)
	if err != nil {
		t.Fatal(err)
	}
	shut(t, transport)
}
