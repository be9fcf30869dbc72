//go:build sqs

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/sqs"
)

// handler notes what begins and does what the test says.
type handler struct {
	began chan string
	do    func(ctx context.Context, id string) error

	mu   sync.Mutex
	seen map[string]int
}

func newHandler(do func(ctx context.Context, id string) error) *handler {
	return &handler{began: make(chan string, 1000), do: do, seen: map[string]int{}}
}

func (h *handler) handle(ctx context.Context, m transports.Message) error {
	h.mu.Lock()
	h.seen[m.JobID]++
	h.mu.Unlock()
	h.began <- m.JobID
	if h.do == nil {
		return nil
	}
	return h.do(ctx, m.JobID)
}

func (h *handler) deliveries(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[id]
}

func (h *handler) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-h.began:
		case <-time.After(time.Minute):
			t.Fatal("a delivery does not come")
		}
	}
}

// running is a consumer at work.
type running struct {
	stopping chan struct{} // closed once the stop was asked for
	stop     func() error  // stops it and gives what Consume and Close returned
}

func (b *broker) consume(t *testing.T, h *handler, p sqs.Params) *running {
	t.Helper()
	var err error
	p.Receiver, err = transports.NewReceiver(transports.ReceiverParams{Transport: "sqs", Handler: h.handle, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := b.consumer(t, p)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{stopping: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- c.Consume(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		close(r.stopping)
		return errors.Join(<-ended, c.Close())
	})
	t.Cleanup(func() { _ = r.stop() }) // where the test did not look, it does not matter
	return r
}

func (b *broker) publish(t *testing.T, id string) {
	t.Helper()
	if err := b.Publish(t.Context(), transports.Deploy("outbox", "company", "department", id)); err != nil {
		t.Fatal(err)
	}
}

// left is how many messages the queue still has, in work or not.
func (b *broker) left(t *testing.T) int {
	t.Helper()
	return b.messages(t, b.queue.URL, "") + b.messages(t, b.queue.URL, "NotVisible") + b.messages(t, b.queue.URL, "Delayed")
}

// A message in long work is not delivered to a second consumer, because of the
// heartbeats: without them it is, in the same time.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	const visibility = 6 * time.Second
	release := make(chan struct{})
	block := func(context.Context, string) error { <-release; return nil }
	kept, lost := open(t, nil), open(t, nil)
	long, control := newHandler(block), newHandler(block)
	var consumers []*running
	for range 2 {
		consumers = append(consumers, kept.consume(t, long, sqs.Params{Visibility: visibility}),
			lost.consume(t, control, sqs.Params{Visibility: visibility, MaxLease: time.Nanosecond}))
	}
	kept.publish(t, "long")
	long.await(t, 1)
	lost.publish(t, "control") // its time begins after the other's
	control.await(t, 2)
	if n := long.deliveries("long"); n != 1 {
		t.Errorf("%d deliveries of a message in work", n)
	}
	close(release)
	for _, c := range consumers {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	}
	if long.deliveries("long") != 1 || kept.left(t) != 0 || kept.Dead(t) != 0 {
		t.Errorf("%d deliveries, %d left, %d dead", long.deliveries("long"), kept.left(t), kept.Dead(t))
	}
}

// S1-266: what SQS may do, deliver copies and out of order, two consumers take
// as it comes.
func TestCopiesOutOfOrder(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	h := newHandler(nil)
	for n := range 10 {
		body, err := transports.Deploy("outbox", "company", "department", fmt.Sprint(n)).Encode()
		if err != nil {
			t.Fatal(err)
		}
		for copied := range 2 {
			_, err = b.api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &b.queue.URL, MessageBody: aws.String(string(body)), DelaySeconds: int32((n + copied) % 3)})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	one, two := b.consume(t, h, sqs.Params{}), b.consume(t, h, sqs.Params{})
	h.await(t, 20)
	if err := errors.Join(one.stop(), two.stop()); err != nil {
		t.Error(err)
	}
	for n := range 10 {
		if h.deliveries(fmt.Sprint(n)) != 2 {
			t.Errorf("message %d: %d deliveries", n, h.deliveries(fmt.Sprint(n)))
		}
	}
	if b.left(t) != 0 {
		t.Errorf("%d left", b.left(t))
	}
}

// S1-259: what ends after the stop is deleted, though the consumer's context has
// ended; what fails after it is not.
func TestSettledAfterTheStop(t *testing.T) {
	t.Parallel()
	for left, result := range []error{nil, errors.New("later")} {
		b := open(t, nil)
		release := make(chan struct{})
		h := newHandler(func(context.Context, string) error { <-release; return result })
		c := b.consume(t, h, sqs.Params{})
		b.publish(t, "a")
		h.await(t, 1)
		ended := make(chan error, 1)
		go func() { ended <- c.stop() }()
		<-c.stopping
		close(release)
		if err := <-ended; err != nil || b.left(t) != left {
			t.Errorf("%v, %d messages left of %d", err, b.left(t), left)
		}
	}
}

// S1-270: a queue on which a message could circle for ever is refused.
func TestReadyRefuses(t *testing.T) {
	t.Parallel()
	for wanted, attributes := range map[string]map[string]string{
		"RedrivePolicy": {"RedrivePolicy": ""}, "VisibilityTimeout": {"VisibilityTimeout": "0"},
	} {
		c := open(t, attributes).consumer(t, sqs.Params{Receiver: &transports.Receiver{}})
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("without %s: %v", wanted, err)
		}
	}
	b := open(t, nil)
	if err := b.consumer(t, sqs.Params{Receiver: &transports.Receiver{}}).Ready(t.Context()); err != nil {
		t.Errorf("a good queue: %v", err)
	}
	b.queue.URL += "-of-another-name"
	if err := b.consumer(t, sqs.Params{Receiver: &transports.Receiver{}}).Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "NonExistentQueue") && !strings.Contains(err.Error(), "QueueDoesNotExist") {
		t.Errorf("no queue: %v", err)
	}
}

// A definite answer says that the message was not taken.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	err := b.Publish(t.Context(), transports.Deploy("outbox", "company", "department", "\uffff")) // SQS takes no such character
	if !errors.Is(err, transports.ErrRefused) || b.left(t) != 0 {
		t.Errorf("%v", err)
	}
	queue := b.queue
	queue.URL += "-of-another-name"
	elsewhere, err := sqs.NewPublisher(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	if err = elsewhere.Publish(t.Context(), transports.Deploy("o", "c", "d", "m")); !errors.Is(err, transports.ErrRefused) {
		t.Errorf("%v", err)
	}
	b.publish(t, "good")
	if b.left(t) != 1 {
		t.Errorf("%d messages", b.left(t))
	}
}
