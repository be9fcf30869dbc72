package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/teamsync/edge-workers/transports"
)

// How long a consumer waits before it turns to a broker again that refused it.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// leaseStep is for how long a message is kept from others at a time, and so how
// soon one comes again whose consumer died. The service takes 10 to 600 s.
const leaseStep = 15 * time.Second

// ConsumerParams is what a Consumer is made of.
type ConsumerParams struct {
	Place
	Subscription string
	Receiver     *transports.Receiver
	// MaxLease is how long a message in work is kept from others
	// (PUBSUB_MAX_LEASE_SECONDS, S1-255), and Drain how long it may go on after
	// a stop (PUBSUB_DRAIN_TIMEOUT_SECONDS, S1-256).
	MaxLease, Drain time.Duration
	Log             *slog.Logger
}

// Consumer takes messages from one subscription.
type Consumer struct {
	p            ConsumerParams
	client       *pubsub.Client
	subscription *pubsub.Subscriber
}

// NewConsumer connects to the subscription of that id.
func NewConsumer(ctx context.Context, p ConsumerParams) (*Consumer, error) {
	if p.Subscription == "" || p.Receiver == nil || p.Log == nil || p.MaxLease <= 0 || p.Drain <= 0 {
		return nil, errors.New("pubsub consumer: subscription, receiver, limits and log are required")
	}
	client, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &Consumer{p: p, client: client, subscription: client.Subscriber(p.Subscription)}
	c.subscription.ReceiveSettings = pubsub.ReceiveSettings{
		MaxOutstandingMessages: 1, // max_messages=1 (S1-254)
		NumGoroutines:          1,
		MaxExtension:           p.MaxLease,

		MaxDurationPerAckExtension: leaseStep,
		// No ShutdownOptions: only the default waits until the last
		// acknowledgement is handed in.
	}
	return c, nil
}

// Consume takes messages until ctx ends and drains; see transports.Consumer.
func (c *Consumer) Consume(ctx context.Context) error {
	work, cancel := transports.Outlive(ctx, c.p.Drain)
	defer cancel()
	var received, cutOff atomic.Bool
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.subscription.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			received.Store(true)
			// The client ends its own context with the stop; work has another.
			if ctx.Err() != nil {
				c.p.Receiver.Returned()
				m.Nack() // S1-258
				return
			}
			c.deliver(work, m)
			if work.Err() != nil {
				cutOff.Store(true)
			}
		})
		if ctx.Err() != nil {
			break
		}
		if received.Swap(false) {
			pause = firstPause
		}
		c.p.Log.WarnContext(ctx, "the subscription cannot be received from; it is tried again", "subscription", c.p.Subscription, "pause", pause.String(), "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if cutOff.Load() {
		return transports.ErrCutOff
	}
	return nil
}

func (c *Consumer) deliver(work context.Context, m *pubsub.Message) {
	if c.p.Receiver.Receive(work, m.Data) == transports.Retry {
		m.Nack() // S1-268, S1-269
		return
	}
	m.Ack()
}

// Ready asks for the subscription. One without a dead-letter policy is refused:
// a message that never works would come for ever (S1-270).
func (c *Consumer) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	got, err := c.client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: c.subscription.String()})
	if err != nil {
		return fmt.Errorf("read the subscription %s: %w", c.p.Subscription, err)
	}
	if got.GetDeadLetterPolicy().GetDeadLetterTopic() == "" {
		return fmt.Errorf("the subscription %s has no dead-letter topic: give it one, with 5 delivery attempts", c.p.Subscription)
	}
	return nil
}

// Close gives the connection back.
func (c *Consumer) Close() error { return c.client.Close() }
