// Package sqs is the transport over Amazon SQS: a standard queue with a
// dead-letter queue, read by long polls of one message each.
//
// SQS delivers at least once and in any order. A message that is being worked
// on is hidden from other consumers by a visibility time-out, which a heartbeat
// renews; what still comes twice is merged by the row's lease (S1-266).
package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/transports"
)

// Queue names one queue and who asks.
type Queue struct {
	// URL is the queue's, as SQS gives it. A standard queue: what a FIFO queue
	// promises is not needed, and it would hold messages up behind a failed one.
	URL string
	awsclient.Service

	dial func(ctx context.Context, network, address string) (net.Conn, error) // nil but in tests
}

// The limits of a call.
const (
	connectTimeout = 2 * time.Second
	// silence bounds the wait for an answer of any call but the long poll.
	silence = 4 * time.Second
	// callTimeout bounds a call with its retries. A publisher's caller has 10 s.
	callTimeout = 8 * time.Second
	// settleTimeout bounds the calls that nobody waits for: they may take more.
	settleTimeout = 20 * time.Second
	maxAttempts   = 3
	maxBackoff    = time.Second
	maxIdle       = 4
)

func (q Queue) check() error {
	parsed, err := url.Parse(q.URL)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" || len(parsed.Path) < 2 {
		return errors.New("SQS: the queue is not given by its URL, such as https://sqs.eu-west-1.amazonaws.com/123456789012/edge-workers")
	}
	if strings.HasSuffix(parsed.Path, ".fifo") {
		return errors.New("SQS: the queue is a FIFO queue: make a standard one")
	}
	return nil
}

// client gives the SDK's client, which retries within the limits.
func (q Queue) client(ctx context.Context) (*sqs.Client, error) {
	return q.connect(ctx, silence, maxAttempts)
}

func (q Queue) connect(ctx context.Context, silence time.Duration, attempts int) (*sqs.Client, error) {
	err := q.check()
	if err != nil {
		return nil, err
	}
	wire := awsclient.Wire{Connect: connectTimeout, Silence: silence, MaxIdle: maxIdle, Dial: q.dial}
	config, err := q.Config(ctx, wire, attempts, maxBackoff)
	if err != nil {
		return nil, fmt.Errorf("SQS: %w", err)
	}
	return sqs.NewFromConfig(config), nil
}

// Params is what a Consumer is made of.
type Params struct {
	Queue
	Receiver *transports.Receiver
	// Visibility hides a message that is being worked on from other consumers;
	// a heartbeat renews it at a third of that. 0: DefaultVisibility. It is also
	// how long a message of a killed consumer stays hidden.
	Visibility time.Duration
	// MaxLease ends the heartbeats; 0: transports.DefaultMaxLease.
	MaxLease time.Duration
	// Drain bounds the work in flight after a stop; 0: transports.DefaultDrain.
	Drain time.Duration
	// RetryAfter gives the pause before a failed message's next delivery, by
	// the number of deliveries so far; nil: RetryAfter of this package.
	RetryAfter func(deliveries int) time.Duration
	Log        *slog.Logger
}

const (
	// DefaultVisibility is above the row's lease of 90 s, so that what a killed
	// consumer leaves is not delivered to somebody who could not take it yet.
	DefaultVisibility = 120 * time.Second
	// minVisibility leaves a heartbeat time to arrive.
	minVisibility = time.Second
	// maxVisibility is the service's own bound.
	maxVisibility = 12 * time.Hour
)

// The pace of failed deliveries.
const (
	retryStep = 15 * time.Second
	retryMax  = 15 * time.Minute
)

// RetryAfter is 15 s for each delivery so far, 15 minutes at most.
func RetryAfter(deliveries int) time.Duration {
	return min(time.Duration(max(deliveries, 1))*retryStep, retryMax)
}

// complete fills in the defaults and says what cannot be right.
func (p *Params) complete() error {
	if p.Receiver == nil || p.Log == nil {
		return errors.New("SQS: receiver and log are required")
	}
	p.Visibility = cmp.Or(p.Visibility, DefaultVisibility)
	p.MaxLease = cmp.Or(p.MaxLease, transports.DefaultMaxLease)
	p.Drain = cmp.Or(p.Drain, transports.DefaultDrain)
	if p.RetryAfter == nil {
		p.RetryAfter = RetryAfter
	}
	if p.Visibility < minVisibility || p.Visibility > maxVisibility {
		return fmt.Errorf("SQS: a visibility time-out of %s is not between %s and %s", p.Visibility, minVisibility, maxVisibility)
	}
	if p.MaxLease < 0 || p.Drain < 0 {
		return errors.New("SQS: the lease's and the drain's limits must be positive")
	}
	return nil
}

// seconds is how SQS counts; what is left of a second rounds up.
func seconds(d time.Duration) int32 {
	return int32((max(0, min(d, maxVisibility)) + time.Second - 1) / time.Second)
}
