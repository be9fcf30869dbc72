package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/reconcile"
)

// hostLane notes when its passes begin, with the budget that it got.
type hostLane struct {
	begin   time.Time
	mu      sync.Mutex
	starts  []time.Duration
	budgets []time.Duration
	do      func(ctx context.Context, n int) error
}

func (l *hostLane) Name() string { return "host" }

func (l *hostLane) RunOnce(ctx context.Context, budget time.Duration) (reconcile.Result, error) {
	l.mu.Lock()
	l.starts, l.budgets = append(l.starts, time.Since(l.begin)), append(l.budgets, budget)
	n := len(l.starts)
	l.mu.Unlock()
	if l.do == nil {
		return nil, nil
	}
	return nil, l.do(ctx, n)
}

func seconds(all ...int) []time.Duration {
	var out []time.Duration
	for _, n := range all {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// hosts runs the loop for a time on the bubble's clock and returns the
// warnings. It ends when the last pass has.
func hosts(t *testing.T, lasts time.Duration, lanes ...*hostLane) []string {
	t.Helper()
	var text bytes.Buffer
	var all []reconcile.Lane
	for _, l := range lanes {
		l.begin = time.Now()
		all = append(all, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	(&reconcile.HostRunner{Lanes: all, Log: logger(&text)}).Run(ctx)
	var warnings []string
	for _, line := range lines(t, &text) {
		if line["level"] == slog.LevelWarn.String() {
			warnings = append(warnings, line["msg"].(string))
		}
	}
	return warnings
}

// S1-016, S1-330, S1-332, S2-247: a pass begins 15 seconds after the end of the
// one before, however long that was.
func TestHostCadence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &hostLane{do: func(_ context.Context, n int) error {
			<-time.After(time.Duration(n-1) * 5 * time.Second)
			return nil
		}}
		warnings := hosts(t, 61*time.Second, l)
		if want := seconds(0, 15, 35, 60); !slices.Equal(l.starts, want) || len(warnings) > 0 {
			t.Errorf("passes at %v, %v", l.starts, warnings)
		}
	})
}

// S1-331, S1-333, S1-334: a pass that hangs is given up after 20 seconds and no
// second one starts beside it; each tick that finds it says so. Once it has
// ended the next tick runs one, and says nothing.
func TestHostPassHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &hostLane{do: func(_ context.Context, n int) error {
			if n == 1 {
				<-time.After(52 * time.Second)
			}
			return nil
		}}
		warnings := hosts(t, 81*time.Second, l)
		want := []string{ // at 20, 35 and 50 seconds
			"Edge Worker host reconcile failed: the pass has not ended within 20s",
			"Edge Worker host reconcile skipped: the previous pass is still running",
			"Edge Worker host reconcile skipped: the previous pass is still running",
		}
		if !slices.Equal(warnings, want) || !slices.Equal(l.starts, seconds(0, 65, 80)) {
			t.Errorf("%q, passes at %v", warnings, l.starts)
		}
	})
}

// S1-335: any error, a panic too, is one warning with its text; the other lanes
// and the loop go on.
func TestHostPassFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := &hostLane{do: func(_ context.Context, n int) error {
			if n == 2 {
				panic("a defect")
			}
			return errors.New("the host is away")
		}}
		sound := &hostLane{}
		warnings := hosts(t, 16*time.Second, broken, sound)
		want := []string{"Edge Worker host reconcile failed: the host is away", "Edge Worker host reconcile failed: panic in lane host: a defect"}
		if !slices.Equal(warnings, want) || len(broken.starts) != 2 || len(sound.starts) != 2 {
			t.Errorf("%q, %d and %d passes", warnings, len(broken.starts), len(sound.starts))
		}
	})
}

// S1-337: the lanes of a pass share ten seconds in which something may begin.
func TestHostBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &hostLane{do: func(context.Context, int) error { <-time.After(4 * time.Second); return nil }}
		slower := &hostLane{do: func(context.Context, int) error { <-time.After(9 * time.Second); return nil }}
		last := &hostLane{}
		hosts(t, time.Second, slow, slower, last)
		if got := slices.Concat(slow.budgets, slower.budgets, last.budgets); !slices.Equal(got, seconds(10, 6, 0)) {
			t.Errorf("budgets %v", got)
		}
	})
}

// S1-017: the loops do not wait for each other.
func TestLoopsAreIndependent(t *testing.T) {
	t.Parallel()
	for name, hanging := range map[string]string{"the 60-second loop hangs": "minute", "the 15-second loop hangs": "host"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 130*time.Second)
				defer cancel()
				quiet := logger(&bytes.Buffer{})
				hang := func(loop string) func(context.Context, int) error {
					return func(ctx context.Context, _ int) error {
						if loop == hanging {
							<-ctx.Done()
						}
						return nil
					}
				}
				minute, host := &hostLane{begin: time.Now(), do: hang("minute")}, &hostLane{begin: time.Now(), do: hang("host")}
				var both sync.WaitGroup
				both.Go(func() {
					(&reconcile.Runner{Provider: valid, Lanes: []reconcile.Lane{minute}, Log: quiet}).Run(ctx)
				})
				both.Go(func() {
					(&reconcile.HostRunner{Lanes: []reconcile.Lane{host}, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
				})
				both.Wait()
				want := map[string]int{"minute": 3, "host": 9}
				want[hanging] = 1
				if len(minute.starts) != want["minute"] || len(host.starts) != want["host"] {
					t.Errorf("%d rounds, %d passes, want %v", len(minute.starts), len(host.starts), want)
				}
			})
		})
	}
}

// A stop waits for the pass that runs: what it uses is closed next.
func TestHostStopWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		l := &hostLane{do: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			<-time.After(3 * time.Second)
			ended = true
			return ctx.Err()
		}}
		warnings := hosts(t, 5*time.Second, l)
		if !ended || len(l.starts) != 1 || strings.Join(warnings, "") != "" {
			t.Errorf("ended: %t, %d passes, %q", ended, len(l.starts), warnings)
		}
	})
}
