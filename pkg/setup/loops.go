package setup

import (
	"context"
	"sync"

	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/retirement"
	"github.com/teamsync/edge-workers/runtime"
	"github.com/teamsync/edge-workers/transports"
)

// loops are the two that run beside each other: what brings intents to their end
// every minute, and what brings the provider in line every 15 seconds (S1-016,
// S1-017).
type loops struct {
	minute *reconcile.Runner
	hosts  *reconcile.HostRunner
}

// newLoops wires both; publisher takes the deployments that nobody works on.
func (p *parts) newLoops(publisher transports.Publisher) (*loops, error) {
	metrics, err := reconcile.NewMetrics(p.Registry)
	if err != nil {
		return nil, err
	}
	sweeps, err := p.sweeps(publisher)
	if err != nil {
		return nil, err
	}
	hosts, err := p.hostLanes()
	if err != nil {
		return nil, err
	}
	return &loops{
		minute: &reconcile.Runner{Provider: p.serving.check, Metrics: metrics, Log: p.Log, Lanes: sweeps},
		hosts:  &reconcile.HostRunner{Metrics: metrics, Log: p.Log, Lanes: hosts},
	}, nil
}

// run runs both until ctx ends and what they had begun has ended.
func (l *loops) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { l.minute.Run(ctx) })
	both.Go(func() { l.hosts.Run(ctx) })
	both.Wait()
}

// sweeps are the lanes of the 60-second loop (S1-004 to S1-006, S1-050).
func (p *parts) sweeps(publisher transports.Publisher) ([]reconcile.Lane, error) {
	republish := reconcile.RepublishParams{Outbox: p.Outbox, Mirror: p.mirror, Publisher: publisher, Log: p.Log}
	cleaner, err := reconcile.NewCleaner(reconcile.CleanupParams{DB: p.db, Outbox: p.Outbox, Store: p.Artifacts, Owner: p.Owner, Log: p.Log})
	if err != nil {
		return nil, err
	}
	auditor, err := reconcile.NewControlAuditor(reconcile.ControlAuditParams{
		DB: p.db, Outbox: p.Outbox, Receipts: p.serving.receipts(), Owner: p.Owner, Log: p.Log,
	})
	if err != nil {
		return nil, err
	}
	lanes := []reconcile.Lane{reconcile.NewRepublisher(republish), cleaner, auditor}
	if p.keeper != nil { // what waited for a backup's end is published
		lanes = append(lanes, reconcile.NewDeferred(republish))
	}
	return lanes, nil
}

// hostLanes are the lanes of the 15-second loop: backup fences are confirmed
// where there are any, then scripts are retired (S1-339 to S1-345).
func (p *parts) hostLanes() ([]reconcile.Lane, error) {
	params := retirement.Params{DB: p.db, Outbox: p.Outbox, Scripts: p.serving.scripts, Tombstone: runtime.Tombstone(), Log: p.Log}
	var lanes []reconcile.Lane
	if p.keeper != nil {
		lanes = append(lanes, reconcile.NewFences(p.keeper))
		params.Gate = p.gateOpen
	}
	retire, err := retirement.New(params)
	if err != nil {
		return nil, err
	}
	return append(lanes, retire), nil
}

// gateOpen reports whether scripts of the edge host may change now.
func (p *parts) gateOpen(ctx context.Context) (bool, error) {
	gate, err := maintenance.Peek(p.db.Read(ctx), p.serving.scope.Default().Namespace)
	return gate == maintenance.Open, err
}
