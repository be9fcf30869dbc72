package transports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Verdict is what became of a delivery.
type Verdict string

// The verdicts, and the values of the metric's label.
const (
	// Done takes the message off the queue.
	Done Verdict = "done"
	// Malformed does too: the message can never be run (S1-267).
	Malformed Verdict = "malformed"
	// Retry gives it back; the broker delivers it again, up to its limit
	// (S1-268, S1-269).
	Retry Verdict = "retry"
	// returned is a message that a stopping consumer gives back unread.
	returned Verdict = "returned"
)

// ReceiverParams is what a Receiver is made of.
type ReceiverParams struct {
	// Transport is the label of the metric.
	Transport  string
	Handler    Handler
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Receiver turns what a transport delivers into runs of the handler, in the same
// way for every transport. No claim of a job id stands before the handler: a
// collision would destroy the message ahead of its row, and the deployment
// brings a claim of its own (S1-264, S1-265).
type Receiver struct {
	p       ReceiverParams
	results *prometheus.CounterVec
}

// NewReceiver registers the metric.
func NewReceiver(p ReceiverParams) (*Receiver, error) {
	if p.Transport == "" || p.Handler == nil || p.Registerer == nil || p.Log == nil {
		return nil, errors.New("receiver: transport, handler, registerer and log are required")
	}
	r := &Receiver{p: p, results: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_workers_messages_total",
		Help: "Messages that a consumer was handed, by what became of them: done, malformed (dropped), retry (to be delivered again), returned (not begun, because of a stop).",
	}, []string{"transport", "result"})}
	err := p.Registerer.Register(r.results)
	if err != nil {
		return nil, fmt.Errorf("register the messages' metric: %w", err)
	}
	for _, verdict := range []Verdict{Done, Malformed, Retry, returned} {
		r.results.WithLabelValues(p.Transport, string(verdict))
	}
	return r, nil
}

// Receive runs what a broker delivered.
func (r *Receiver) Receive(ctx context.Context, raw []byte) Verdict {
	m, err := Decode(raw)
	if err != nil {
		return r.drop(ctx, err)
	}
	return r.Run(ctx, m)
}

// Run runs one message.
func (r *Receiver) Run(ctx context.Context, m Message) Verdict {
	err := m.Validate()
	if err == nil {
		err = r.guarded(ctx, m)
	}
	switch {
	case err == nil:
		return r.count(Done)
	case errors.Is(err, ErrMalformed):
		return r.drop(ctx, err)
	}
	r.p.Log.WarnContext(ctx, "message not done; it is delivered again", "transport", r.p.Transport, "outbox_id", m.Args[0], "error", err)
	return r.count(Retry)
}

// drop logs nothing of the message, which may hold anything.
func (r *Receiver) drop(ctx context.Context, err error) Verdict {
	r.p.Log.WarnContext(ctx, "malformed message dropped", "transport", r.p.Transport, "error", err)
	return r.count(Malformed)
}

// guarded takes a panic for a failure: the row and its lease say what it left.
func (r *Receiver) guarded(ctx context.Context, m Message) error {
	var err error
	func() {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in the handler: %v", p)
			}
		}()
		err = r.p.Handler(ctx, m)
	}()
	return err
}

// Returned counts a message that a stopping consumer gives back unread (S1-258).
func (r *Receiver) Returned() { r.count(returned) }

func (r *Receiver) count(v Verdict) Verdict {
	r.results.WithLabelValues(r.p.Transport, string(v)).Inc()
	return v
}
