package setup

import (
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/transports"
)

// newKeeper is the keeper of the edge host's gates; nil where there is no edge
// host, so that its table is never read (S3-51).
func (p *parts) newKeeper() (*maintenance.Keeper, error) {
	scope := p.serving.scope
	if !scope.OnPrem() || scope.Default().Namespace == "" {
		return nil, nil
	}
	params := maintenance.Params{DB: p.db, Scope: scope.Default().Namespace, Log: p.Log}
	if host, ok := p.serving.target.(*onprem.Provider); ok {
		params.Host, params.Reader = host, host
	}
	return maintenance.New(params)
}

// gateLanes are the lanes of an edge host's gates (S1-050): what waited for a
// backup's end is published, and fences are confirmed.
func (p *parts) gateLanes(publisher transports.Publisher) []reconcile.Lane {
	if p.keeper == nil {
		return nil
	}
	deferred := reconcile.NewDeferred(reconcile.RepublishParams{Outbox: p.Outbox, Mirror: p.mirror, Publisher: publisher, Log: p.Log})
	return append(p.fenceLanes(), deferred)
}

// fenceLanes are those that ask the edge host and write nothing to it but its
// fence. They stand in the 60-second loop and belong into one of 15 seconds.
func (p *parts) fenceLanes() []reconcile.Lane {
	return []reconcile.Lane{reconcile.NewFences(p.keeper)}
}
