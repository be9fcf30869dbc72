package inprocess_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/inprocess"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

// S1-251, S1-253 to S1-270: the legacy transport is one like the others, but that it
// keeps nothing over the end of its process.
func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Features{Serial: true}, func(t *testing.T) transporttest.Broker { return &broker{t: t} })
}

// broker is the process that publishes and consumes.
type broker struct {
	t         *testing.T
	log       observetest.Log
	transport *inprocess.Transport
}

func (b *broker) Publish(ctx context.Context, m transports.Message) error {
	return b.transport.Publish(ctx, m)
}

func (b *broker) Consumer(t testing.TB, receiver *transports.Receiver, drain time.Duration) transports.Consumer {
	t.Helper()
	var err error
	b.transport, err = inprocess.New(inprocess.Params{
		Receiver: receiver, Workers: 1, Queue: 16, MaxDeliveries: b.Deliveries(), Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return consumer{b.transport, drain}
}

func (b *broker) Inject(t testing.TB, _ []byte) { t.Fatal("nothing but Publish reaches this queue") }

func (b *broker) Dead(testing.TB) int {
	return strings.Count(b.log.String(), "job left to the recovery sweep")
}

func (b *broker) Deliveries() int { return 3 }

// consumer drains as the process does that has the transport.
type consumer struct {
	transport *inprocess.Transport
	drain     time.Duration
}

func (c consumer) Consume(ctx context.Context) error {
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.drain)
	defer cancel()
	return c.transport.Close(closing)
}

func (c consumer) Ready(context.Context) error { return nil }
func (c consumer) Close() error                { return nil }
