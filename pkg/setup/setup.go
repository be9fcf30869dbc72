// Package setup is the composition root: it builds a process's graph from its
// settings and nothing else, so that the binaries and the embedded development
// system are the same system with other endpoints.
package setup

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/inprocess"
)

// In-process jobs (S1-251): deployments wait for the provider most of their
// time, so a few at once do no harm; what does not fit is left to the sweep.
const (
	jobWorkers        = 4
	jobQueue          = 1024
	jobRedeliverAfter = 2 * time.Second
	jobMaxDeliveries  = 5
)

// System is a running control plane of one process with the legacy transport.
// With a broker it serves and publishes, and others do the rest.
type System struct {
	parts

	// Handler serves the API and the gateway.
	Handler http.Handler
	// Directory provisions tenants.
	Directory *tenancy.Directory
	// Recover is the republishing lane, for a start over a dead owner's rows;
	// nil with a broker.
	Recover func(claim outbox.RecoveryClaim) *reconcile.Republisher
	// TakeBack withdraws what a dead owner did not upload; see deploy.Task. nil
	// with a broker.
	TakeBack func(ctx context.Context, owner string) (int, error)

	loops *loops               // nil with a broker
	jobs  *inprocess.Transport // nil with a broker
}

// New opens what the settings name and wires the api's process. Close the system
// to give everything back.
func New(ctx context.Context, p Params) (*System, error) {
	s := &System{parts: parts{Params: p}}
	err := s.build(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *System) build(ctx context.Context) error {
	err := s.open(ctx)
	if err != nil {
		return err
	}
	s.Directory = tenancy.New(s.db)
	publisher, err := s.publisher(ctx)
	if err != nil {
		return err
	}
	return s.serve(ctx, publisher)
}

// publisher is where committed deployments go: to the broker, or to this very
// process, which then sweeps as well (D1).
func (s *System) publisher(ctx context.Context) (transports.Publisher, error) {
	if s.Settings.Transport.Type != config.Legacy {
		return s.openPublisher(ctx)
	}
	task, err := s.task()
	if err != nil {
		return nil, err
	}
	s.TakeBack = task.TakeBack
	receiver, err := s.receiver(task)
	if err != nil {
		return nil, err
	}
	s.jobs, err = inprocess.New(inprocess.Params{
		Receiver: receiver, Workers: jobWorkers, Queue: jobQueue,
		RedeliverAfter: jobRedeliverAfter, MaxDeliveries: jobMaxDeliveries, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	s.Recover = func(claim outbox.RecoveryClaim) *reconcile.Republisher {
		return reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: s.Outbox, Mirror: s.mirror, Publisher: s.jobs, Log: s.Log, Claim: &claim})
	}
	s.loops, err = s.newLoops(inprocess.Inline{Handler: task.Handle}) // S1-294
	return s.jobs, err
}

// Sweep runs the recovery loops until ctx ends. With a broker it is the
// reconciler's, and this returns at once.
func (s *System) Sweep(ctx context.Context) {
	if s.loops != nil {
		s.loops.run(ctx)
	}
}

// Close drains the running jobs until ctx ends and closes what was opened.
func (s *System) Close(ctx context.Context) error {
	var err error
	if s.jobs != nil {
		err = s.jobs.Close(ctx)
	}
	return errors.Join(err, s.close())
}
