package setup

import (
	"context"
	"errors"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/transports"
)

// Deployer takes deployments from a broker and does them, one at a time.
type Deployer struct {
	parts

	// Receiver runs one delivery.
	Receiver *transports.Receiver
	// Consumer takes messages from the broker; nil with batch, where the
	// process has got its one message from its command line.
	Consumer transports.Consumer
}

// NewDeployer opens what the settings name and wires the deployer's process.
func NewDeployer(ctx context.Context, p Params) (*Deployer, error) {
	d := &Deployer{parts: parts{Params: p}}
	err := d.build(ctx)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Deployer) build(ctx context.Context) error {
	err := d.open(ctx)
	if err != nil {
		return err
	}
	task, err := d.task()
	if err != nil {
		return err
	}
	d.Receiver, err = d.receiver(task)
	if err != nil || d.Settings.Transport.Type == config.BatchBroker {
		return err
	}
	d.Consumer, err = d.openConsumer(ctx, d.Receiver)
	if err != nil {
		return err
	}
	d.Health.Add("broker", d.Consumer.Ready)
	return nil
}

// Close gives back what was opened.
func (d *Deployer) Close() error { return d.close() }

// Reconciler runs the recovery sweeps and publishes through the broker what they
// find.
type Reconciler struct {
	parts

	loops *loops
}

// NewReconciler opens what the settings name and wires the reconciler's process.
func NewReconciler(ctx context.Context, p Params) (*Reconciler, error) {
	r := &Reconciler{parts: parts{Params: p}}
	err := r.build(ctx)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Reconciler) build(ctx context.Context) error {
	err := r.open(ctx)
	if err != nil {
		return err
	}
	publisher, err := r.openPublisher(ctx)
	if err != nil {
		return err
	}
	r.loops, err = r.newLoops(publisher)
	return err
}

// Sweep runs the recovery loops until ctx ends.
func (r *Reconciler) Sweep(ctx context.Context) { r.loops.run(ctx) }

// Close gives back what was opened.
func (r *Reconciler) Close() error { return r.close() }
