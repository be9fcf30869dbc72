package sqs

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/transports"
)

// Consumer takes a queue's messages one at a time.
type Consumer struct {
	p    Params
	api  *sqs.Client
	poll *sqs.Client // waits for messages longer than any answer may take
}

var _ transports.Consumer = (*Consumer)(nil)

const (
	// pollWait is the longest that SQS lets a receive wait for a message.
	pollWait = 20 * time.Second
	// pollSilence leaves the answer of such a wait its time.
	pollSilence = pollWait + 10*time.Second
	// pollGrace lets an answer arrive that is on its way when a stop comes: its
	// message can then be given back at once.
	pollGrace = time.Second
	// The pauses after failed receives.
	backoffFirst = time.Second
	backoffMax   = 30 * time.Second
)

// NewConsumer makes a consumer. It asks nobody but for where credentials come
// from.
func NewConsumer(ctx context.Context, p Params) (*Consumer, error) {
	err := p.complete()
	if err != nil {
		return nil, err
	}
	api, err := p.client(ctx)
	if err != nil {
		return nil, err
	}
	poll, err := p.connect(ctx, pollSilence, 1) // Consume has a back-off of its own
	if err != nil {
		return nil, err
	}
	return &Consumer{p: p, api: api, poll: poll}, nil
}

// Consume implements transports.Consumer. A queue that cannot be read, for
// whatever reason, is tried again until ctx ends. A message that SQS was just
// handing out when ctx ended may stay hidden for the visibility time-out.
func (c *Consumer) Consume(ctx context.Context) error {
	var t trouble
	for ctx.Err() == nil {
		messages, err := c.receive(ctx)
		if err != nil {
			t = c.backOff(ctx, t, err)
			continue
		}
		if t != (trouble{}) {
			c.p.Log.InfoContext(ctx, "messages are received again")
			t = trouble{}
		}
		for _, message := range messages {
			err = c.take(ctx, message)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// trouble is what a consumer knows of a queue that it cannot read.
type trouble struct {
	kind  string
	pause time.Duration
}

// backOff logs each kind of failure once, and pauses.
func (c *Consumer) backOff(ctx context.Context, t trouble, err error) trouble {
	if ctx.Err() != nil {
		return t // the stop has ended the receive
	}
	kind := awsclient.Kind(err)
	if kind != t.kind {
		c.p.Log.ErrorContext(ctx, "messages cannot be received; trying again", "error", err)
	}
	t = trouble{kind: kind, pause: min(max(2*t.pause, backoffFirst), backoffMax)}
	wait(ctx, jitter(t.pause))
	return t
}

// wait ends with the context.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// jitter keeps consumers that failed together from coming back together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) // #nosec G404 -- it spreads load
}

// receive waits for one message.
func (c *Consumer) receive(ctx context.Context) ([]types.Message, error) {
	ctx, cancel := transports.Outlive(ctx, pollGrace)
	defer cancel()
	ctx, expire := context.WithTimeout(ctx, pollSilence+2*connectTimeout)
	defer expire()
	out, err := c.poll.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.p.URL, MaxNumberOfMessages: 1, // S1-254
		WaitTimeSeconds: seconds(pollWait), VisibilityTimeout: seconds(c.p.Visibility),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
	})
	if err != nil {
		return nil, awsclient.Failure("SQS ReceiveMessage", err)
	}
	return out.Messages, nil
}

// take runs a message, or gives it back when it came with the stop (S1-258).
func (c *Consumer) take(ctx context.Context, message types.Message) error {
	if ctx.Err() != nil {
		c.p.Receiver.Returned()
		c.hide(context.WithoutCancel(ctx), message, 0, "give back")
		return nil
	}
	work, cancel := transports.Outlive(ctx, c.p.Drain)
	defer cancel()
	stop := c.keep(context.WithoutCancel(ctx), message)
	verdict := c.p.Receiver.Receive(work, []byte(aws.ToString(message.Body)))
	stop()
	cutOff := work.Err() != nil && verdict == transports.Retry
	c.settle(context.WithoutCancel(ctx), message, verdict)
	if cutOff {
		return transports.ErrCutOff
	}
	return nil
}

// settle tells SQS what became of a message (S1-267 to S1-269). The stop does
// not end it. What fails here is delivered again, which does no harm.
func (c *Consumer) settle(ctx context.Context, message types.Message, verdict transports.Verdict) {
	if verdict == transports.Retry {
		c.hide(ctx, message, c.p.RetryAfter(deliveries(message)), "give back")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_, err := c.api.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &c.p.URL, ReceiptHandle: message.ReceiptHandle})
	if err != nil {
		c.complain(ctx, message, "delete", awsclient.Failure("SQS DeleteMessage", err))
	}
}

// hide keeps the message from every consumer for d from now.
func (c *Consumer) hide(ctx context.Context, message types.Message, d time.Duration, what string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.api.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &c.p.URL, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: seconds(d),
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		c.complain(ctx, message, what, awsclient.Failure("SQS ChangeMessageVisibility", err))
	}
}

// complain logs no part of the message but the id that SQS gave it.
func (c *Consumer) complain(ctx context.Context, message types.Message, what string, err error) {
	c.p.Log.WarnContext(ctx, "message not settled; it may be delivered again", "step", what, "sqs_message_id", aws.ToString(message.MessageId), "error", err)
}

// keep renews the visibility until the given function has returned, for
// MaxLease at most. A renewal that fails is logged and the work goes on: the
// row's lease decides who may work (S1-266).
func (c *Consumer) keep(ctx context.Context, message types.Message) func() {
	ctx, cancel := context.WithTimeout(ctx, c.p.MaxLease)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(c.p.Visibility / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if ctx.Err() == nil { // both may be ready
					c.hide(ctx, message, c.p.Visibility, "heartbeat")
				}
			}
		}
	}()
	return func() { cancel(); <-ended } // so that no renewal comes after what settles the message
}

// deliveries is how often SQS has handed the message out.
func deliveries(message types.Message) int {
	n, err := strconv.Atoi(message.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil {
		return 1
	}
	return n
}

// Close implements transports.Consumer.
func (c *Consumer) Close() error {
	for _, api := range []*sqs.Client{c.api, c.poll} {
		if client, ok := api.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
			client.CloseIdleConnections()
		}
	}
	return nil
}
