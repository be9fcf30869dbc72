// Package transporttest is the conformance suite of the transports: what every
// one of them must do with messages, whatever carries them.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/transports"
)

// Broker is one fresh, empty queue with its dead-letter queue.
type Broker interface {
	transports.Publisher
	// Consumer makes a consumer of the queue, which gives failed messages back
	// without a pause and drains for at most drain.
	Consumer(t testing.TB, receiver *transports.Receiver, drain time.Duration) transports.Consumer
	// Inject puts bytes onto the queue that did not come through Publish.
	Inject(t testing.TB, raw []byte)
	// Dead is how many messages have been given up on after the last delivery.
	Dead(t testing.TB) int
	// Deliveries is how often a message is delivered before that.
	Deliveries() int
}

// Features are where transports differ by their nature.
type Features struct {
	// Serial: a consumer's second message begins only after its first ended.
	// Batch has none of this: each message has a process of its own.
	Serial bool
	// Durable: what a consumer has not taken is there for the next one. The
	// in-process transport leaves it to the recovery sweep.
	Durable bool
	// Injectable: anybody may put bytes onto the queue.
	Injectable bool
	// Merging: a copy of a message that is not done yet is taken as that message.
	// Batch knows the job of each message by its name.
	Merging bool
}

// patience bounds the wait for what must come; nothing is measured by it.
const patience = 60 * time.Second

// Run runs the suite; open makes a broker of its own for each test.
func Run(t *testing.T, features Features, open func(t *testing.T) Broker) {
	t.Helper()
	tests := map[string]func(*suite){
		"delivers once":         (*suite).deliversOnce,
		"refuses malformed":     (*suite).refusesMalformed,
		"failure comes again":   (*suite).failureComesAgain,
		"panic comes again":     (*suite).panicComesAgain,
		"gives up at the limit": (*suite).givesUp,
		"drains":                (*suite).drains,
		"drain has a limit":     (*suite).drainHasALimit,
	}
	if features.Serial {
		tests["one at a time"] = (*suite).oneAtATime
	}
	if !features.Merging {
		tests["copies are delivered"] = (*suite).copiesAreDelivered
	}
	if features.Injectable {
		tests["drops poison"] = (*suite).dropsPoison
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{T: t, features: features, broker: open(t)})
		})
	}
}

type suite struct {
	*testing.T

	features Features
	broker   Broker
}

func message(id string) transports.Message {
	return transports.Deploy("outbox-"+id, "company", "department", id)
}

func (s *suite) publish(ids ...string) {
	s.Helper()
	for _, id := range ids {
		err := s.broker.Publish(s.Context(), message(id))
		if err != nil {
			s.Fatalf("publish %s: %v", id, err)
		}
	}
}

// S1-253: what comes out is what went in, its job id being the message's id.
// One delivery is enough.
func (s *suite) deliversOnce() {
	r := s.start(nil)
	s.publish("a", "b", "c")
	r.await(3)
	r.stop()
	got := r.ids()
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b", "c"}) || r.count("done") != 3 || s.broker.Dead(s) != 0 {
		s.Errorf("delivered %v, done %v, dead %d", got, r.count("done"), s.broker.Dead(s))
	}
	for _, m := range r.messages() {
		if fmt.Sprint(m) != fmt.Sprint(message(m.JobID)) || m.JobID != m.Args[3] {
			s.Errorf("message %v", m)
		}
	}
}

// A message that no consumer could run is not put onto the queue.
func (s *suite) refusesMalformed() {
	r := s.start(nil)
	for _, m := range []transports.Message{{}, {JobID: "x", Function: "os.system", Args: []string{"a", "b", "c", "x"}}, {JobID: "", Function: transports.DeployFunction, Args: []string{"a", "b", "c"}}} {
		err := s.broker.Publish(s.Context(), m)
		if !errors.Is(err, transports.ErrMalformed) {
			s.Errorf("%v was published: %v", m, err)
		}
	}
	s.publish("good")
	r.await(1)
	r.stop()
	if got := r.ids(); !slices.Equal(got, []string{"good"}) {
		s.Errorf("delivered %v", got)
	}
}

// S1-254: two messages wait, and the second begins only after the first ended.
func (s *suite) oneAtATime() {
	release := make(chan struct{})
	r := s.start(func(ctx context.Context, _ transports.Message, _ int) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	s.publish("a", "b", "c")
	r.await(1)
	for released := range 3 {
		r.expectNoMore(released + 1)
		release <- struct{}{}
	}
	r.await(3)
	r.stop()
	if r.most() != 1 {
		s.Errorf("%d ran at once", r.most())
	}
}

// S1-268, S1-269: a failed delivery comes again, and after a good one no more.
func (s *suite) failureComesAgain() {
	r := s.start(func(_ context.Context, _ transports.Message, delivery int) error {
		if delivery == 1 {
			return errors.New("the database is away")
		}
		return nil
	})
	s.publish("a")
	r.await(2)
	s.publish("b")
	r.await(4)
	r.stop()
	if r.deliveries("a") != 2 || r.deliveries("b") != 2 || r.count("retry") != 2 || r.count("done") != 2 || s.broker.Dead(s) != 0 {
		s.Errorf("a %d, b %d, retry %v, done %v", r.deliveries("a"), r.deliveries("b"), r.count("retry"), r.count("done"))
	}
}

// A handler that panics has failed; the consumer lives on.
func (s *suite) panicComesAgain() {
	r := s.start(func(_ context.Context, _ transports.Message, delivery int) error {
		if delivery == 1 {
			panic("a defect")
		}
		return nil
	})
	s.publish("a")
	r.await(2)
	r.stop()
	if r.count("retry") != 1 || r.count("done") != 1 {
		s.Errorf("retry %v, done %v", r.count("retry"), r.count("done"))
	}
}

// S1-270: after the last allowed delivery the message is given up on, and not
// before; others are not held up by it.
func (s *suite) givesUp() {
	limit := s.broker.Deliveries()
	var early []int
	r := s.start(func(_ context.Context, m transports.Message, delivery int) error {
		if m.JobID == "good" {
			return nil
		}
		if dead := s.broker.Dead(s); delivery <= limit && dead != 0 {
			early = append(early, delivery)
		}
		return errors.New("it never works")
	})
	s.publish("bad")
	r.await(limit)
	s.until("the message is given up on", func() bool { return s.broker.Dead(s) == 1 })
	s.publish("good")
	s.until("the good one is done", func() bool { return r.deliveries("good") == 1 })
	r.stop()
	if r.deliveries("bad") != limit || len(early) > 0 {
		s.Errorf("%d deliveries of %d, given up before delivery %v", r.deliveries("bad"), limit, early)
	}
}

// S1-264, S1-265: nothing between broker and handler merges copies: only the
// row can tell which of them is to work.
func (s *suite) copiesAreDelivered() {
	r := s.start(nil)
	s.publish("a", "a", "a")
	r.await(3)
	r.stop()
	if r.deliveries("a") != 3 || r.count("done") != 3 {
		s.Errorf("%d deliveries", r.deliveries("a"))
	}
}

// S1-258, S1-259, S1-260: after a stop nothing begins, what runs ends, and only
// then the consumer returns. What it left is delivered to the next one.
func (s *suite) drains() {
	stopping, release := make(chan struct{}), make(chan struct{})
	r := s.start(func(ctx context.Context, m transports.Message, _ int) error {
		if m.JobID != "running" {
			return nil
		}
		<-release
		return ctx.Err() // a stop must not end it
	})
	s.publish("running")
	r.await(1)
	go func() { close(stopping); r.stop() }()
	<-stopping
	r.awaitStopping()
	if s.features.Durable {
		s.publish("later")
		r.expectNoMore(1)
	}
	select {
	case <-r.stopped:
		s.Error("it returned before the message in flight had ended")
	default:
	}
	close(release)
	<-r.stopped
	if r.err != nil || !slices.Equal(r.endedIDs(), []string{"running"}) || r.count("done") != 1 {
		s.Errorf("%v, ended %v, done %v", r.err, r.endedIDs(), r.count("done"))
	}
	if s.features.Durable {
		next := s.start(nil)
		next.await(1)
		next.stop()
		if got := next.ids(); !slices.Equal(got, []string{"later"}) {
			s.Errorf("the next consumer got %v", got)
		}
	}
}

// S1-256, S1-269: at the drain's limit the work's context ends, and its message
// comes again.
func (s *suite) drainHasALimit() {
	r := s.startDraining(time.Millisecond, func(ctx context.Context, _ transports.Message, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	})
	s.publish("stuck")
	r.await(1)
	r.stop()
	if r.count("retry") != 1 || !errors.Is(r.err, transports.ErrCutOff) {
		s.Errorf("retry %v, %v", r.count("retry"), r.err)
	}
	if s.features.Durable {
		next := s.start(nil)
		next.await(1)
		next.stop()
		if got := next.ids(); !slices.Equal(got, []string{"stuck"}) {
			s.Errorf("the next consumer got %v", got)
		}
	}
}

// S1-052, S1-053, S1-267: each poison message is dropped once, counted, and
// logged without its content; what comes after it is delivered.
func (s *suite) dropsPoison() {
	r := s.start(nil)
	poison := Poison()
	for _, raw := range poison {
		s.broker.Inject(s, raw)
	}
	s.publish("good")
	r.await(1)
	s.until("all poison is dropped", func() bool { return r.count("malformed") >= float64(len(poison)) })
	r.stop()
	if got := r.ids(); !slices.Equal(got, []string{"good"}) || r.count("malformed") != float64(len(poison)) || s.broker.Dead(s) != 0 {
		s.Errorf("delivered %v, malformed %v of %d, dead %d", got, r.count("malformed"), len(poison), s.broker.Dead(s))
	}
	if log := r.log.String(); strings.Contains(log, Canary) || strings.Count(log, "malformed message dropped") != len(poison) {
		s.Errorf("the log holds a message, or not a line for each:\n%s", log)
	}
}
