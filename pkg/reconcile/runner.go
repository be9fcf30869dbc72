// Package reconcile holds the sweeps that bring every intent to its end when
// the first try was lost, one file for each lane, and the loop that runs them.
package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Constants of the 60-second loop; no environment variable changes them
// (S1-012, S2-242).
const (
	roundEvery = 60 * time.Second
	// laneBudget keeps one lane's backlog from starving the others.
	laneBudget = 20 * time.Second
)

// Result counts what a round of a lane did.
type Result map[string]int

// Lane is one sweep.
type Lane interface {
	Name() string
	// RunOnce does what is due. It starts nothing new once the budget is used
	// up, and ends what it has begun.
	RunOnce(ctx context.Context, budget time.Duration) (Result, error)
}

// Runner runs the lanes in their order, every 60 seconds, each isolated from
// the others' errors (S1-008, S2-235).
type Runner struct {
	// Provider tells whether the provider's settings are usable; it is asked
	// before each round (S1-272).
	Provider func() error
	Lanes    []Lane
	Metrics  *Metrics
	Log      *slog.Logger
}

// Run runs rounds until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	for {
		r.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(roundEvery):
		}
	}
}

// Round runs every lane once. An invalid provider skips the whole round
// (S1-273, S2-245, S2-246).
func (r *Runner) Round(ctx context.Context) {
	err := r.Provider()
	if err != nil {
		r.Log.WarnContext(ctx, "Edge Worker recovery skipped: edge_workers_provider_invalid", "error", err)
		return
	}
	for _, lane := range r.Lanes {
		r.lane(ctx, lane)
	}
}

func (r *Runner) lane(ctx context.Context, lane Lane) {
	started := time.Now()
	result, err := guarded(ctx, lane, laneBudget)
	r.Metrics.round(lane.Name(), result, err)
	level := slog.LevelDebug
	if len(result) > 0 {
		level = slog.LevelInfo
	}
	if err != nil {
		level = slog.LevelWarn
	}
	r.Log.Log(ctx, level, "recovery round", "lane", lane.Name(), "result", map[string]int(result),
		"duration_ms", time.Since(started).Milliseconds(), "error", err)
}

func guarded(ctx context.Context, lane Lane, budget time.Duration) (Result, error) {
	var result Result
	var err error
	func() {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in lane %s: %v", lane.Name(), p)
			}
		}()
		result, err = lane.RunOnce(ctx, budget)
	}()
	return result, err
}
