package sqs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/transports"
)

// What a publisher says is what is known: taken, definitely not taken, or open;
// and it says it in time.
func TestPublishOutcomes(t *testing.T) {
	denied := fault{status: 403, code: "AccessDenied"}
	for name, test := range map[string]struct {
		wrong   func(n int) fault
		queued  int
		ok      bool
		refused bool
	}{
		"good":                   {first(0, fault{}), 1, true, false},
		"request lost":           {first(1, fault{before: true}), 1, true, false},
		"answer lost":            {first(1, fault{after: true}), 2, true, false},
		"each answer lost":       {always(fault{after: true}), 3, false, false},
		"trouble":                {always(fault{status: 500}), 0, false, false},
		"silent":                 {always(fault{silent: true}), 0, false, false},
		"silent at first":        {first(1, fault{silent: true}), 1, true, false},
		"denied":                 {always(denied), 0, false, true},
		"no queue":               {always(fault{status: 400, code: "QueueDoesNotExist"}), 0, false, true},
		"throttled":              {always(fault{status: 400, code: "RequestThrottled"}), 0, false, true},
		"throttled at first":     {first(2, fault{status: 400, code: "RequestThrottled"}), 1, true, false},
		"answer lost and denied": {func(n int) fault { return map[int]fault{1: {after: true}, 2: denied}[n] }, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
				b.fault = on("SendMessage", test.wrong)
				err := b.publisher.Publish(b.Context(), transports.Deploy("o", "c", "d", "m"))
				if (err == nil) != test.ok || errors.Is(err, transports.ErrRefused) != test.refused {
					b.Errorf("%v", err)
				}
				if err != nil && strings.Contains(err.Error(), "canary") {
					b.Errorf("the service's text is in the error: %v", err)
				}
				b.expect("queued", b.left(), test.queued)
				if took := time.Since(b.started); took > callTimeout {
					b.Errorf("it took %s", took)
				}
			})
		})
	}
}

// The caller's own end is an end, and leaves the outcome open.
func TestPublishCallerGivesUp(t *testing.T) {
	bubble(t, func(context.Context, transports.Message) error { return nil }, nil, func(b *bench) {
		b.fault = on("SendMessage", always(fault{silent: true}))
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		err := b.publisher.Publish(ctx, transports.Deploy("o", "c", "d", "m"))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, transports.ErrRefused) || time.Since(b.started) != time.Second {
			b.Errorf("%v after %s", err, time.Since(b.started))
		}
	})
}

func TestParams(t *testing.T) {
	t.Parallel()
	const good = "https://sqs.eu-west-1.amazonaws.com/123456789012/edge-workers"
	for _, url := range []string{"", "edge-workers", "arn:aws:sqs:eu-west-1:123456789012:edge-workers", "https://sqs.eu-west-1.amazonaws.com/", good + ".fifo", "ftp" + good[5:]} {
		q := Queue{URL: url}
		q.Region, q.Credentials = "eu-west-1", awsclienttest.Anybody
		if _, err := NewPublisher(t.Context(), q); err == nil {
			t.Errorf("%q is a queue", url)
		}
	}
	q := Queue{URL: good}
	q.Credentials = awsclienttest.Anybody
	if _, err := NewPublisher(t.Context(), q); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("no region: %v", err)
	}
	q.Region = "eu-west-1"
	if _, err := NewPublisher(t.Context(), q); err != nil {
		t.Error(err)
	}
	for name, p := range map[string]Params{
		"nothing": {}, "no log": {Queue: q, Receiver: &transports.Receiver{}},
		"a short visibility": {Queue: q, Receiver: &transports.Receiver{}, Log: discard, Visibility: time.Millisecond},
		"a long visibility":  {Queue: q, Receiver: &transports.Receiver{}, Log: discard, Visibility: 13 * time.Hour},
		"a negative drain":   {Queue: q, Receiver: &transports.Receiver{}, Log: discard, Drain: -1},
		"no queue":           {Receiver: &transports.Receiver{}, Log: discard},
	} {
		if _, err := NewConsumer(t.Context(), p); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	c, err := NewConsumer(t.Context(), Params{Queue: q, Receiver: &transports.Receiver{}, Log: discard})
	if err != nil || c.p.Visibility != 120*time.Second || c.p.MaxLease != 3300*time.Second || c.p.Drain != 3300*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
}

// S1-270: a queue without a limit of deliveries is refused.
func TestCheckQueue(t *testing.T) {
	t.Parallel()
	for policy, good := range map[string]bool{
		`{"deadLetterTargetArn":"arn:aws:sqs:r:1:dead","maxReceiveCount":5}`:   true,
		`{"deadLetterTargetArn":"arn:aws:sqs:r:1:dead","maxReceiveCount":"5"}`: true,
		``: false, `{}`: false, `no`: false, `{"deadLetterTargetArn":"a"}`: false, `{"maxReceiveCount":5}`: false,
		`{"deadLetterTargetArn":"a","maxReceiveCount":0}`: false,
	} {
		err := checkQueue(map[string]string{"RedrivePolicy": policy, "VisibilityTimeout": "120"})
		if (err == nil) != good {
			t.Errorf("%s: %v", policy, err)
		}
		if checkQueue(map[string]string{"RedrivePolicy": policy, "VisibilityTimeout": "0"}) == nil {
			t.Error("a visibility time-out of 0 was accepted")
		}
	}
}
