package pubsub_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/pubsub"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

const project = "edge-test"

func name(kind, id string) string { return "projects/" + project + "/" + kind + "/" + id }

// broker is Google's own fake with a topic, its subscription and a dead-letter
// topic. The fake keeps to neither flow control nor the retry policy.
type broker struct {
	*pubsub.Publisher

	server *pstest.Server
	mu     sync.Mutex
	dead   map[string]bool
}

func open(t testing.TB, options ...pstest.ServerReactorOption) *broker {
	t.Helper()
	b := &broker{server: pstest.NewServer(options...), dead: map[string]bool{}}
	t.Cleanup(func() { _ = b.server.Close() })
	for _, topic := range []string{"jobs", "dead"} {
		_, err := b.server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name("topics", topic)})
		must(t, err)
	}
	for subscription, policy := range map[string]*pubsubpb.DeadLetterPolicy{
		"jobs": {DeadLetterTopic: name("topics", "dead"), MaxDeliveryAttempts: int32(b.Deliveries())}, "dead": nil,
	} {
		_, err := b.server.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: name("subscriptions", subscription), Topic: name("topics", subscription), AckDeadlineSeconds: 10, DeadLetterPolicy: policy,
		})
		must(t, err)
	}
	var err error
	b.Publisher, err = pubsub.NewPublisher(t.Context(), b.place(), "jobs")
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *broker) place() pubsub.Place {
	return pubsub.Place{Project: project, Endpoint: b.server.Addr}
}

func (b *broker) Consumer(t testing.TB, receiver *transports.Receiver, drain time.Duration) transports.Consumer {
	t.Helper()
	c, err := pubsub.NewConsumer(t.Context(), b.params(receiver, drain))
	must(t, err)
	return c
}

func (b *broker) params(receiver *transports.Receiver, drain time.Duration) pubsub.ConsumerParams {
	return pubsub.ConsumerParams{
		Place: b.place(), Subscription: "jobs", Receiver: receiver, MaxLease: time.Hour, Drain: drain, Log: slog.New(slog.DiscardHandler),
	}
}

func (b *broker) Inject(_ testing.TB, raw []byte) { b.server.Publish(name("topics", "jobs"), raw, nil) }

func (b *broker) Dead(t testing.TB) int {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	got, err := b.server.GServer.Pull(context.WithoutCancel(t.Context()), &pubsubpb.PullRequest{
		Subscription: name("subscriptions", "dead"), MaxMessages: 100, ReturnImmediately: true, //nolint:staticcheck // a fake need not be spared
	})
	must(t, err)
	for _, m := range got.GetReceivedMessages() {
		b.dead[m.GetMessage().GetMessageId()] = true
	}
	return len(b.dead)
}

func (b *broker) Deliveries() int { return 5 }

// S1-252 to S1-270: Pub/Sub is a transport like the others.
func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Features{Serial: true, Durable: true, Injectable: true},
		func(t *testing.T) transporttest.Broker { return open(t) })
}

func receiver(t *testing.T, handler transports.Handler) *transports.Receiver {
	t.Helper()
	r, err := transports.NewReceiver(transports.ReceiverParams{
		Transport: "pubsub", Handler: handler, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	return r
}

func nothing(context.Context, transports.Message) error { return nil }

// A definite answer is a refusal; where the message may have arrived it is not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	m := transports.Deploy("o", "c", "d", "m")
	for code, refused := range map[codes.Code]bool{
		codes.NotFound: true, codes.PermissionDenied: true, codes.Unauthenticated: true, codes.InvalidArgument: true, codes.FailedPrecondition: true,
		codes.DataLoss: false, codes.OutOfRange: false,
	} {
		b := open(t)
		b.server.SetAutoPublishResponse(false)
		b.server.AddPublishResponse(nil, status.Error(code, "no"))
		err := b.Publish(t.Context(), m)
		if err == nil || errors.Is(err, transports.ErrRefused) != refused {
			t.Errorf("%v: %v", code, err)
		}
	}
	b := open(t)
	lost, err := pubsub.NewPublisher(t.Context(), b.place(), "another")
	must(t, err)
	t.Cleanup(func() { _ = lost.Close() })
	if err = lost.Publish(t.Context(), m); !errors.Is(err, transports.ErrRefused) {
		t.Errorf("a topic that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err = b.Publish(ctx, m); err == nil || errors.Is(err, transports.ErrRefused) {
		t.Errorf("a caller that left: %v", err)
	}
	must(t, b.Publish(t.Context(), m)) // the control
}

// A consumer is ready when its subscription is there and has a place for what
// never works (S1-270); the message says what to do.
func TestReady(t *testing.T) {
	t.Parallel()
	b := open(t)
	for subscription, says := range map[string]string{"jobs": "", "dead": "dead-letter topic", "another": "another"} {
		p := b.params(receiver(t, nothing), time.Second)
		p.Subscription = subscription
		c, err := pubsub.NewConsumer(t.Context(), p)
		must(t, err)
		err = c.Ready(t.Context())
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", subscription, err)
		}
		must(t, c.Close())
	}
}

// S1-266: a message in work is kept from other consumers for longer than the
// subscription's own limit of ten seconds.
func TestLongWorkIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := open(t)
	extended := make(chan struct{})
	began := make(chan struct{}, 10)
	work := receiver(t, func(ctx context.Context, _ transports.Message) error {
		began <- struct{}{}
		select {
		case <-extended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 2 {
		c := b.Consumer(t, work, time.Minute)
		group.Go(func() {
			if err := c.Consume(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { _ = c.Close() })
	}
	must(t, b.Publish(t.Context(), transports.Deploy("o", "c", "d", "m")))
	<-began
	// Beyond the first deadline: the fake has taken two extensions.
	for b.modified() < 2 {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("no extension")
		}
	}
	if len(began) != 0 {
		t.Error("it was delivered to another consumer too")
	}
	close(extended)
	for m := b.server.Messages()[0]; m.Acks == 0; m = b.server.Messages()[0] {
		<-time.After(10 * time.Millisecond)
	}
	stop()
	group.Wait()
	if m := b.server.Messages()[0]; m.Deliveries != 1 || len(began) != 0 {
		t.Errorf("%d deliveries", m.Deliveries)
	}
}

func (b *broker) modified() int {
	n := 0
	for _, m := range b.server.Messages() {
		n += len(m.Modacks)
	}
	return n
}

// A broker that is away when the consumer starts is waited for, and the log
// says so once for each try.
func TestBrokerIsAway(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	var log observetest.Log
	done := make(chan struct{})
	c, err := pubsub.NewConsumer(t.Context(), pubsub.ConsumerParams{
		Place: pubsub.Place{Project: project, Endpoint: address}, Subscription: "another", MaxLease: time.Hour, Drain: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Receiver: receiver(t, func(context.Context, transports.Message) error { close(done); return nil }),
	})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Consume(ctx) }()
	server := pstest.NewServerWithAddress(address)
	t.Cleanup(func() { _ = server.Close() })
	must(t, log.Await(t.Context(), "it is tried again")) // the subscription is not there yet
	_, err = server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name("topics", "jobs")})
	must(t, err)
	_, err = server.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name("subscriptions", "another"), Topic: name("topics", "jobs"), AckDeadlineSeconds: 10})
	must(t, err)
	raw, err := transports.Deploy("o", "c", "d", "m").Encode()
	must(t, err)
	server.Publish(name("topics", "jobs"), raw, nil)
	<-done
	stop()
	must(t, <-ended)
	must(t, c.Close())
}

// S1-023: two environments have a queue each; what one publishes reaches its own deployers and no others.
func TestEnvironmentsAreApart(t *testing.T) {
	t.Parallel()
	production, staging := open(t), open(t)
	got := make(chan string, 2)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for environment, b := range map[string]*broker{"production": production, "staging": staging} {
		c := b.Consumer(t, receiver(t, func(_ context.Context, m transports.Message) error {
			got <- environment + " got " + m.JobID
			return nil
		}), time.Minute)
		group.Go(func() {
			if err := c.Consume(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { _ = c.Close() })
	}
	must(t, production.Publish(t.Context(), transports.Deploy("o", "c", "d", "live")))
	if one := <-got; one != "production got live" {
		t.Error(one)
	}
	must(t, staging.Publish(t.Context(), transports.Deploy("o", "c", "d", "trial"))) // the control: the other consumer does work
	if one := <-got; one != "staging got trial" {
		t.Error(one)
	}
	stop()
	group.Wait()
	if len(got) != 0 {
		t.Errorf("and %s", <-got)
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	b := open(t)
	good := b.params(receiver(t, nothing), time.Second)
	for what, change := range map[string]func(*pubsub.ConsumerParams){
		"project": func(p *pubsub.ConsumerParams) { p.Project = "" }, "subscription": func(p *pubsub.ConsumerParams) { p.Subscription = "" },
		"receiver": func(p *pubsub.ConsumerParams) { p.Receiver = nil }, "lease": func(p *pubsub.ConsumerParams) { p.MaxLease = 0 },
		"drain": func(p *pubsub.ConsumerParams) { p.Drain = 0 }, "log": func(p *pubsub.ConsumerParams) { p.Log = nil },
	} {
		p := good
		change(&p)
		if _, err := pubsub.NewConsumer(t.Context(), p); err == nil {
			t.Errorf("no %s was accepted", what)
		}
	}
	if _, err := pubsub.NewPublisher(t.Context(), b.place(), ""); err == nil {
		t.Error("no topic was accepted")
	}
}
