package reconcile

import (
	"context"
	"time"

	"github.com/teamsync/edge-workers/pkg/maintenance"
)

// FenceKeeper compares the environment's row with the edge host's backup fence;
// maintenance.Keeper is one.
type FenceKeeper interface {
	Reconcile(ctx context.Context) (maintenance.Confirmation, error)
}

// Fences is the on-prem lane that confirms backup fences whose beginning, end or
// confirmation was lost (S1-344).
type Fences struct{ keeper FenceKeeper }

// NewFences returns the lane.
func NewFences(keeper FenceKeeper) *Fences { return &Fences{keeper: keeper} }

// Name is the lane's name in logs and metrics.
func (f *Fences) Name() string { return "fence" }

// RunOnce compares once.
func (f *Fences) RunOnce(ctx context.Context, budget time.Duration) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	found, err := f.keeper.Reconcile(ctx)
	if err != nil || found == maintenance.Agree {
		return Result{}, err
	}
	return Result{string(found): 1}, nil
}
