package onprem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// Fence reads the host's backup fence.
func (p *Provider) Fence(ctx context.Context) (provider.Fence, error) {
	return p.fence(ctx, http.MethodGet, "fence")
}

// BeginFence puts a backup fence up, or finds it up: from the answer on no
// script of the host changes until its end. The host refuses an id that has
// ended, and any while another fence is up. After an error read Fence.
func (p *Provider) BeginFence(ctx context.Context, id string) (provider.Fence, error) {
	return p.fence(ctx, http.MethodPut, "fence/"+url.PathEscape(id))
}

// EndFence takes the backup fence down, or finds it ended. After an error read
// Fence.
func (p *Provider) EndFence(ctx context.Context, id string) (provider.Fence, error) {
	return p.fence(ctx, http.MethodDelete, "fence/"+url.PathEscape(id))
}

func (p *Provider) fence(ctx context.Context, method, path string) (provider.Fence, error) {
	var state struct{ Active, Ended *string }
	err := p.api.Host(ctx, method, path, &state)
	if err == nil && (state.Active == nil || state.Ended == nil) { // never taken for "no fence"
		err = errors.New("the answer does not tell both ids")
	}
	if err != nil {
		return provider.Fence{}, fmt.Errorf("backup fence of the edge host: %w", err)
	}
	return provider.Fence{Active: *state.Active, Ended: *state.Ended}, nil
}
