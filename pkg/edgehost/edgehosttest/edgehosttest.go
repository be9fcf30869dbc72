// Package edgehosttest starts edge hosts for tests.
package edgehosttest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// Start starts a host on the installed workerd in a folder of the test's own
// and stops it with the test. What p does not say is filled in; its log is
// dropped.
func Start(t testing.TB, p edgehost.Params) *edgehost.Host {
	t.Helper()
	binary, err := workerd.Find("")
	if err != nil {
		t.Fatal(err)
	}
	p.Workerd, p.Registerer = binary, prometheus.NewRegistry()
	if p.DataDir == "" {
		p.DataDir = t.TempDir()
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	host, err := edgehost.New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err := host.Close(ctx)
		if err != nil {
			t.Error(err)
		}
	})
	return host
}
