package cloudflare

import (
	"context"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/scriptapi"
)

// Exists reports whether the namespace has the script, in one attempt; while the
// token is blocked it asks nothing and answers with an error.
func (p *Provider) Exists(ctx context.Context, namespace, script string) (bool, error) {
	api, err := p.open(namespace, script)
	if err != nil {
		return false, err
	}
	there, err := api.Exists(ctx, script)
	return there, p.note(err)
}

// Delete deletes the script with its stored data, in one attempt. One that is not
// there is no error. While the token is blocked it sends nothing and answers with
// an error; after any error Exists tells what became of the script.
func (p *Provider) Delete(ctx context.Context, namespace, script string) error {
	api, err := p.open(namespace, script)
	if err != nil {
		return err
	}
	return p.note(api.Delete(ctx, script))
}

// open is the client of the namespace, unless the token is blocked.
func (p *Provider) open(namespace, script string) (*scriptapi.Client, error) {
	api, err := p.target(provider.Release{Namespace: namespace, ScriptName: script})
	if err == nil && p.gate.Remaining() > 0 {
		err = errBlocked
	}
	return api, err
}
