package sqs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
)

var errLater = errors.New("later")

var discard = slog.New(slog.DiscardHandler)

// bench is a consumer and a publisher on the model.
type bench struct {
	*testing.T
	*model

	log       observetest.Log
	registry  *prometheus.Registry
	publisher *Publisher
	consumer  *Consumer
	cancel    context.CancelFunc
	ended     chan error
	started   time.Time
}

// bubble runs a test in virtual time, with a consumer that is not yet started.
func bubble(t *testing.T, handle transports.Handler, change func(*Params), test func(b *bench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, model: newModel(), registry: prometheus.NewRegistry(), ended: make(chan error, 1), started: time.Now()}
		network := awsclienttest.Serve(b)
		log := slog.New(slog.NewTextHandler(&b.log, nil))
		receiver, err := transports.NewReceiver(transports.ReceiverParams{Transport: "sqs", Handler: handle, Registerer: b.registry, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		queue := Queue{URL: "http://sqs:1/queue", dial: network.Dial, Service: awsclient.Service{Region: "r", Endpoint: "http://sqs:1", Credentials: awsclienttest.Anybody}}
		p := Params{Queue: queue, Receiver: receiver, Log: log}
		if change != nil {
			change(&p)
		}
		b.consumer, err = NewConsumer(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		b.publisher, err = NewPublisher(t.Context(), queue)
		if err != nil {
			t.Fatal(err)
		}
		test(b)
		if b.cancel != nil {
			b.cancel()
		}
		_ = b.consumer.Close()
		network.Close()
		time.Sleep(time.Minute) // idle connections end
	})
}

func (b *bench) start() {
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(b.Context())
	go func() { b.ended <- b.consumer.Consume(ctx) }()
}

// stop asks the consumer to end and says how long it took and what it returned.
func (b *bench) stop() (time.Duration, error) {
	began := time.Now()
	b.cancel()
	err := <-b.ended
	return time.Since(began), err
}

func (b *bench) publish(id string) {
	b.Helper()
	if err := b.publisher.Publish(b.Context(), transports.Deploy("o", "c", "d", id)); err != nil {
		b.Fatalf("publish %s: %v", id, err)
	}
}

// count reads the consumer's metric.
func (b *bench) count(result string) float64 {
	families, err := b.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, metric := range families[0].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "result" && label.GetValue() == result {
				return metric.GetCounter().GetValue()
			}
		}
	}
	b.Fatalf("the metric has no %q", result)
	return 0
}

func (b *bench) expect(what string, got, want any) {
	b.Helper()
	if got != want {
		b.Errorf("%s: %v, want %v\n%s", what, got, want, b.log.String())
	}
}

// on gives the faults of one operation, by the number of the call.
func on(operation string, which func(n int) fault) func(string, int) fault {
	return func(called string, n int) fault {
		if called != operation {
			return fault{}
		}
		return which(n)
	}
}

// always is one fault for each call.
func always(f fault) func(int) fault { return func(int) fault { return f } }

// first is one fault for the first n calls.
func first(n int, f fault) func(int) fault {
	return func(call int) fault {
		if call > n {
			return fault{}
		}
		return f
	}
}

// A message in work is hidden anew every 40 s, for 120 s each time, until it is
// deleted.
func TestHeartbeatEach40Seconds(t *testing.T) {
	work := func(context.Context, transports.Message) error { time.Sleep(1010 * time.Second); return nil }
	bubble(t, work, nil, func(b *bench) {
		b.start()
		b.publish("long")
		time.Sleep(20 * time.Minute)
		beats := b.made("ChangeMessageVisibility")
		b.expect("heartbeats", len(beats), 25)
		for i, beat := range beats {
			if beat.visibility != 120*time.Second || beat.at.Sub(b.started).Round(time.Second) != time.Duration(i+1)*40*time.Second {
				b.Errorf("heartbeat %d at %s for %s", i+1, beat.at.Sub(b.started), beat.visibility)
			}
		}
		b.expect("done", b.count("done"), 1.0)
		b.expect("left", b.left(), 0)
		b.expect("deletions", len(b.made("DeleteMessage")), 1)
	})
}

// S1-255: after 3300 s the message is kept from others no more; the work goes on.
func TestMaxLease(t *testing.T) {
	work := func(ctx context.Context, _ transports.Message) error { time.Sleep(2 * time.Hour); return ctx.Err() }
	bubble(t, work, nil, func(b *bench) {
		b.start()
		b.publish("endless")
		time.Sleep(2*time.Hour + time.Minute)
		beats := b.made("ChangeMessageVisibility")
		b.expect("heartbeats", len(beats), 82) // 3280 s / 40 s
		if last := beats[len(beats)-1].at.Sub(b.started); last > transports.DefaultMaxLease {
			b.Errorf("a heartbeat after %s", last)
		}
		b.expect("done", b.count("done"), 1.0)
		b.expect("left", b.left(), 0)
	})
}

// S1-266: a heartbeat that is refused, lost or not answered does not stop the
// work: the row's lease decides.
func TestFailedHeartbeat(t *testing.T) {
	for name, wrong := range map[string]fault{"stale": {status: 400, code: "MessageNotInflight"}, "trouble": {status: 500}, "lost": {before: true}, "silent": {silent: true}} {
		t.Run(name, func(t *testing.T) {
			work := func(ctx context.Context, _ transports.Message) error { time.Sleep(110 * time.Second); return ctx.Err() }
			bubble(t, work, nil, func(b *bench) {
				b.fault = on("ChangeMessageVisibility", always(wrong))
				b.start()
				b.publish("a")
				time.Sleep(3 * time.Minute)
				b.expect("done", b.count("done"), 1.0)
				b.expect("left", b.left(), 0)
				b.expect("warnings", strings.Count(b.log.String(), "step=heartbeat"), 2)
				if strings.Contains(b.log.String(), "canary") {
					b.Error("the service's text is in the log")
				}
			})
		})
	}
}

// S1-267: a deletion whose answer is lost is made again, and the message does not
// come again. One that cannot be made is given up on, and it comes again.
func TestDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		wrong      func(int) fault
		deliveries float64
		deletions  int
	}{
		"good":             {first(0, fault{}), 1, 1},
		"answer lost":      {first(1, fault{after: true}), 1, 2},
		"request lost":     {first(2, fault{before: true}), 1, 3},
		"service restarts": {first(2, fault{status: 503}), 1, 3},
		"service away":     {first(3, fault{status: 503}), 2, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
				b.fault = on("DeleteMessage", test.wrong)
				b.start()
				b.publish("a")
				time.Sleep(10 * time.Minute)
				b.expect("deliveries", b.count("done"), test.deliveries)
				b.expect("deletions", len(b.made("DeleteMessage")), test.deletions)
				b.expect("left", b.left(), 0)
				b.expect("logged", strings.Count(b.log.String(), "step=delete"), int(test.deliveries)-1)
			})
		})
	}
}

// S1-268, S1-269, S2-231: a failed message comes again at the pace of its
// deliveries.
func TestRetryPace(t *testing.T) {
	bubble(t, func(context.Context, transports.Message) error { return errLater }, nil, func(b *bench) {
		b.start()
		b.publish("a")
		time.Sleep(15*time.Second + 30*time.Second + 45*time.Second + time.Second)
		var hidden []time.Duration
		for _, c := range b.made("ChangeMessageVisibility") {
			hidden = append(hidden, c.visibility)
		}
		b.expect("deliveries", b.count("retry"), 4.0)
		if len(hidden) != 4 || hidden[0] != 15*time.Second || hidden[3] != time.Minute {
			b.Errorf("hidden for %v", hidden)
		}
	})
	if RetryAfter(0) != 15*time.Second || RetryAfter(60) != 15*time.Minute || RetryAfter(61) != 15*time.Minute {
		t.Error("another pace")
	}
}

// A queue that cannot be read is tried again, with pauses that grow to 30 s,
// and each kind of failure is logged once.
func TestReceiveFailures(t *testing.T) {
	for name, wrong := range map[string]fault{"denied": {status: 403, code: "AccessDenied"}, "trouble": {status: 500}, "lost": {before: true}, "silent": {silent: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
				b.fault = on("ReceiveMessage", first(20, wrong))
				b.start()
				b.publish("a")
				time.Sleep(30 * time.Minute)
				b.expect("done", b.count("done"), 1.0)
				b.expect("failures logged", strings.Count(b.log.String(), "cannot be received"), 1)
				b.expect("recoveries logged", strings.Count(b.log.String(), "received again"), 1)
				polls := b.made("ReceiveMessage")
				pause := func(n int) time.Duration { return polls[n].at.Sub(polls[n-1].at) }
				waited := time.Duration(0)
				if wrong.silent {
					waited = pollSilence
				}
				if pause(1)-waited > time.Second || pause(15)-waited < backoffMax/2 || pause(15)-waited > backoffMax {
					b.Errorf("pauses %s and %s", pause(1), pause(15))
				}
			})
		})
	}
}

// S1-258: an idle consumer ends at once, and so does one that waits after a
// failure.
func TestStopWhileWaiting(t *testing.T) {
	for name, wrong := range map[string]fault{"idle": {}, "after failures": {status: 500}, "silent": {silent: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
				b.fault = on("ReceiveMessage", always(wrong))
				b.start()
				time.Sleep(3*time.Minute + 10*time.Second) // in mid-poll, and in mid-pause
				took, err := b.stop()
				if err != nil || took > pollGrace {
					b.Errorf("%v after %s", err, took)
				}
				polls := len(b.made("ReceiveMessage"))
				time.Sleep(time.Minute)
				b.expect("polls after the stop", len(b.made("ReceiveMessage"))-polls, 0)
			})
		})
	}
}

// S1-258: a message that comes with the stop is not run, and given back at once
// for another consumer.
func TestMessageWithTheStop(t *testing.T) {
	bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
		b.fault = on("ReceiveMessage", func(n int) fault {
			if n == 1 {
				return fault{handout: func() { b.cancel(); time.Sleep(pollGrace / 2) }} // the answer is on its way
			}
			return fault{}
		})
		b.publish("a")
		b.start()
		if err := <-b.ended; err != nil {
			b.Error(err)
		}
		b.expect("done", b.count("done"), 0.0)
		b.expect("returned", b.count("returned"), 1.0)
		changes := b.made("ChangeMessageVisibility")
		if len(changes) != 1 || changes[0].visibility != 0 || b.left() != 1 {
			b.Errorf("given back by %v, %d left", changes, b.left())
		}
		stopped := time.Now()
		b.start()
		time.Sleep(time.Second)
		b.expect("done by the next", b.count("done"), 1.0)
		b.expect("left", b.left(), 0)
		if polls := b.made("ReceiveMessage"); polls[1].at.Sub(stopped) > time.Second {
			b.Error("it was hidden")
		}
	})
}

// S1-256, S1-260: at the drain's limit the work's context ends, the message is
// given back, and the consumer says that it cut something off.
func TestDrainLimit(t *testing.T) {
	work := func(ctx context.Context, _ transports.Message) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, work, nil, func(b *bench) {
		b.start()
		b.publish("stuck")
		time.Sleep(time.Second)
		took, err := b.stop()
		if !errors.Is(err, transports.ErrCutOff) || took < transports.DefaultDrain || took > transports.DefaultDrain+time.Second {
			b.Errorf("%v after %s", err, took)
		}
		b.expect("retry", b.count("retry"), 1.0)
		b.expect("left", b.left(), 1)
		changes := b.made("ChangeMessageVisibility")
		b.expect("given back for", changes[len(changes)-1].visibility, 15*time.Second)
	})
}

// S1-267: a message that can never be run is deleted, and one that cannot be
// read as well.
func TestMalformedIsDeleted(t *testing.T) {
	work := func(_ context.Context, m transports.Message) error {
		if m.JobID == "bad" {
			return transports.ErrMalformed
		}
		return errLater
	}
	bubble(t, work, nil, func(b *bench) {
		b.start()
		b.send("noise")
		b.publish("bad")
		time.Sleep(time.Second)
		b.expect("malformed", b.count("malformed"), 2.0)
		b.expect("left", b.left(), 0)
		b.publish("failing")
		time.Sleep(time.Second)
		b.expect("retry", b.count("retry"), 1.0)
		b.expect("left", b.left(), 1)
	})
}

// A service that falls silent holds a stopping consumer up by the limit of the
// last call and no longer.
func TestStopOnASilentService(t *testing.T) {
	work := func(context.Context, transports.Message) error { time.Sleep(time.Minute); return nil }
	bubble(t, work, nil, func(b *bench) {
		b.fault = on("DeleteMessage", always(fault{silent: true}))
		b.start()
		b.publish("a")
		time.Sleep(30 * time.Second)
		took, err := b.stop()
		if err != nil || took > 30*time.Second+settleTimeout {
			b.Errorf("%v after %s", err, took)
		}
		b.expect("logged", strings.Count(b.log.String(), "step=delete"), 1)
	})
}
