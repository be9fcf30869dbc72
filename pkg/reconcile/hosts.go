package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Constants of the 15-second loop; no environment variable changes them
// (S1-336).
const (
	hostPause   = 15 * time.Second // from the end of a pass, or of the wait for it, to the next one (S1-332)
	hostTimeout = 20 * time.Second // how long the loop waits for a pass (S1-331)
	hostBudget  = 10 * time.Second // within which a pass may begin something (S1-337)
)

// HostRunner is the second loop: every 15 seconds it brings what the provider
// holds in line with the database (S1-016). It runs beside Runner and shares
// nothing with it (S1-017).
type HostRunner struct {
	Lanes   []Lane
	Metrics *Metrics
	Log     *slog.Logger
}

var errHostPass = errors.New("the pass has not ended within 20s")

// Run runs passes until ctx ends and the last one has ended. A pass has a
// goroutine of its own, so that one which hangs does not stop the loop; no
// second one starts beside it (S1-330, S1-333).
func (r *HostRunner) Run(ctx context.Context) {
	running := make(chan struct{}, 1)
	for ctx.Err() == nil {
		r.tick(ctx, running)
		select {
		case <-ctx.Done():
		case <-time.After(hostPause):
		}
	}
	running <- struct{}{} // the pass that still runs uses what is closed next
}

func (r *HostRunner) tick(ctx context.Context, running chan struct{}) {
	select {
	case running <- struct{}{}:
	default:
		r.Log.WarnContext(ctx, "Edge Worker host reconcile skipped: the previous pass is still running")
		return
	}
	ended := make(chan error, 1)
	go func() {
		err := r.pass(ctx)
		<-running
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-time.After(hostTimeout):
		err = errHostPass
	}
	if err != nil && ctx.Err() == nil {
		//nolint:sloglint // the error is part of the message (S1-335)
		r.Log.WarnContext(ctx, fmt.Sprintf("Edge Worker host reconcile failed: %v", err))
	}
}

// pass runs the lanes one after the other within one budget, each isolated from
// the others' errors.
func (r *HostRunner) pass(ctx context.Context) error {
	var failures []error
	began := time.Now()
	for _, lane := range r.Lanes {
		result, err := guarded(ctx, lane, max(hostBudget-time.Since(began), 0))
		r.Metrics.round(lane.Name(), result, err)
		if len(result) > 0 {
			r.Log.InfoContext(ctx, "host round", "lane", lane.Name(), "result", map[string]int(result))
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
