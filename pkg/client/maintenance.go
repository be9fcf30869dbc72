package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// Gate names a gate of the edge host that an operator begins and ends.
type Gate string

// The gates.
const (
	Fence   Gate = "fence"
	Restore Gate = "restore"
	Resync  Gate = "resync"
)

// How often a fence is asked for until the edge host has confirmed it.
const (
	fenceAsks  = 20
	fencePause = 3 * time.Second
)

// Maintenance tells the gates of the edge host.
func (c *Client) Maintenance(ctx context.Context) (gen.Maintenance, error) {
	return fetch[gen.Maintenance](ctx, c, call{method: http.MethodGet, path: []string{"platform", "maintenance"}, repeatable: true})
}

// BeginGate begins a gate, or finds it begun. false: the edge host has not
// confirmed it, although it was asked for about a minute.
func (c *Client) BeginGate(ctx context.Context, gate Gate) (gen.Maintenance, bool, error) {
	return c.setGate(ctx, http.MethodPut, gate)
}

// EndGate ends a gate, or finds it ended; false as with BeginGate.
func (c *Client) EndGate(ctx context.Context, gate Gate) (gen.Maintenance, bool, error) {
	return c.setGate(ctx, http.MethodDelete, gate)
}

// setGate repeats a request until it is answered with 200.
func (c *Client) setGate(ctx context.Context, method string, gate Gate) (gen.Maintenance, bool, error) {
	for ask := 1; ; ask++ {
		status := 0
		state, err := fetch[gen.Maintenance](ctx, c, call{
			method: method, path: []string{"platform", "maintenance", string(gate)}, repeatable: true, timeout: changeTimeout, status: &status,
		})
		if err != nil || status == http.StatusOK || ask == fenceAsks {
			return state, status == http.StatusOK, err
		}
		err = c.pause(ctx, fencePause)
		if err != nil {
			return state, false, err
		}
	}
}

// Differences reads one page of Workers back from the edge host.
func (c *Client) Differences(ctx context.Context, cursor string) (gen.MaintenanceDifferencePage, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return fetch[gen.MaintenanceDifferencePage](ctx, c, call{
		method: http.MethodGet, path: []string{"platform", "maintenance", "differences"}, query: query, repeatable: true, timeout: changeTimeout,
	})
}
