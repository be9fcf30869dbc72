package maintenance_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/maintenance/maintenancetest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
)

// The model answers as the edge host does, call for call, refusals included.
func TestModelIsTheHost(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(edgehosttest.Start(t, edgehost.Params{Token: maintenancetest.Token, Account: onprem.DefaultAccount, Namespace: onprem.DefaultNamespace}).ControlHandler())
	t.Cleanup(server.Close)
	real, model := story(t, server.URL), story(t, maintenancetest.Start(t).URL)
	if !slices.Equal(real, model) {
		t.Errorf("host  %+v\nmodel %+v", real, model)
	}
}

// told is one answer; a refusal tells nothing.
type told struct {
	call    string
	fence   provider.Fence
	refused bool
}

func story(t *testing.T, url string) []told {
	t.Helper()
	client, err := onprem.New(onprem.Params{Origin: url, Token: maintenancetest.Token})
	must(t, err)
	begin, end := client.BeginFence, client.EndFence
	read := func(ctx context.Context, _ string) (provider.Fence, error) { return client.Fence(ctx) }
	var all []told
	for _, c := range []struct {
		name, id string
		do       func(context.Context, string) (provider.Fence, error)
	}{
		{"read", "", read}, {"begin", "one", begin}, {"begin", "one", begin}, {"begin", "two", begin}, {"end", "two", end}, {"read", "", read},
		{"end", "one", end}, {"end", "one", end}, {"begin", "one", begin}, {"end", "never", end}, {"begin", "never", begin}, {"begin", "two", begin}, {"read", "", read},
	} {
		fence, err := c.do(t.Context(), c.id)
		all = append(all, told{c.name + " " + c.id, fence, err != nil})
	}
	return all
}
