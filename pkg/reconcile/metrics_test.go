package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/reconcile"
)

// counted is a lane that ends as it is told.
type counted struct {
	name   string
	result reconcile.Result
	err    error
}

func (c counted) Name() string { return c.name }

func (c counted) RunOnce(context.Context, time.Duration) (reconcile.Result, error) {
	return c.result, c.err
}

// What a lane did is counted by result, also when it ended with an error; only
// a good round moves the time of the last success.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics, err := reconcile.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	runner := &reconcile.Runner{
		Provider: func() error { return nil }, Metrics: metrics, Log: observe.Discard(),
		Lanes: []reconcile.Lane{
			counted{"good", reconcile.Result{"claimed": 3, "published": 2}, nil},
			counted{"bad", reconcile.Result{"claimed": 1}, errors.New("broken")},
		},
	}
	runner.Round(t.Context())
	runner.Round(t.Context())
	err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP edge_workers_recovery_rows_total Rows that a recovery lane handled, by what came of them.
# TYPE edge_workers_recovery_rows_total counter
edge_workers_recovery_rows_total{lane="bad",result="claimed"} 2
edge_workers_recovery_rows_total{lane="good",result="claimed"} 6
edge_workers_recovery_rows_total{lane="good",result="published"} 4
`), "edge_workers_recovery_rows_total")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "edge_workers_recovery_last_success_timestamp_seconds"); err != nil || n != 1 {
		t.Errorf("%d lanes ended well, %v", n, err)
	}
}
