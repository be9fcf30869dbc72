package setup

import (
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
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
