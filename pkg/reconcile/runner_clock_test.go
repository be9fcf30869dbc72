package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/reconcile"
)

// lane notes when it ran and does what the test says.
type lane struct {
	name string
	ran  *[]string
	do   func() (reconcile.Result, error)
}

func (l lane) Name() string { return l.name }

func (l lane) RunOnce(_ context.Context, budget time.Duration) (reconcile.Result, error) {
	*l.ran = append(*l.ran, l.name)
	if budget != 20*time.Second {
		return nil, fmt.Errorf("the budget is %v", budget)
	}
	if l.do == nil {
		return nil, nil
	}
	return l.do()
}

func valid() error { return nil }

// lines decodes what was logged.
func lines(t *testing.T, text *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		var v map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func logger(text *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// S1-008, S2-235: the lanes run in their order; one that fails or panics
// keeps no other from running, in this round and in the next. Each has 20
// seconds to start new work in.
func TestLanesAreIsolated(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func() (reconcile.Result, error){
		"an error": func() (reconcile.Result, error) { return nil, errors.New("broken") },
		"a panic":  func() (reconcile.Result, error) { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ran []string
				var text bytes.Buffer
				runner := &reconcile.Runner{Provider: valid, Log: logger(&text), Lanes: []reconcile.Lane{
					lane{"deployments", &ran, do}, lane{"audits", &ran, nil}, lane{"cleanup", &ran, nil},
				}}
				runner.Round(t.Context())
				runner.Round(t.Context())
				if want := []string{"deployments", "audits", "cleanup", "deployments", "audits", "cleanup"}; !slices.Equal(ran, want) {
					t.Errorf("ran %v", ran)
				}
				if first := lines(t, &text)[0]; first["level"] != "WARN" || first["lane"] != "deployments" || first["error"] == nil {
					t.Errorf("%v", first)
				}
				if second := lines(t, &text)[1]; second["level"] != "DEBUG" || second["lane"] != "audits" {
					t.Errorf("%v", second)
				}
			})
		})
	}
}

// S1-004 to S1-006, S1-012, S2-234, S1-272 to S1-277, S2-245, S2-246: rounds are 60 seconds apart
// and each asks for the provider first. An invalid one is one WARNING with the
// code and no lane; valid again, the next round works.
func TestRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		var text bytes.Buffer
		var at []time.Duration
		started := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		provider := func() error {
			at = append(at, time.Since(started))
			switch len(at) {
			case 2, 3:
				return errors.New("EDGE_WORKERS_PROVIDER is moon")
			case 4:
				cancel() // the round that has begun is the last
			}
			return nil
		}
		runner := &reconcile.Runner{
			Log: logger(&text), Provider: provider,
			Lanes: []reconcile.Lane{lane{"deployments", &ran, nil}, lane{"audits", &ran, nil}, lane{"cleanup", &ran, nil}},
		}
		runner.Run(ctx)
		if want := []time.Duration{0, 60 * time.Second, 120 * time.Second, 180 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("rounds at %v", at)
		}
		if len(ran) != 6 {
			t.Errorf("two valid rounds ran %v", ran)
		}
		var skipped []map[string]any
		for _, line := range lines(t, &text) {
			if line["level"] == "WARN" {
				skipped = append(skipped, line)
			}
		}
		if len(skipped) != 2 || skipped[0]["msg"] != "Edge Worker recovery skipped: edge_workers_provider_invalid" {
			t.Errorf("%v", skipped)
		}
	})
}

// What a lane did is logged with its counts.
func TestResultIsLogged(t *testing.T) {
	t.Parallel()
	var ran []string
	var text bytes.Buffer
	runner := &reconcile.Runner{Provider: valid, Log: logger(&text), Lanes: []reconcile.Lane{
		lane{"deployments", &ran, func() (reconcile.Result, error) { return reconcile.Result{"claimed": 2}, nil }},
	}}
	runner.Round(t.Context())
	line := lines(t, &text)[0]
	if result, _ := line["result"].(map[string]any); line["level"] != "INFO" || result["claimed"] != 2.0 {
		t.Errorf("%v", line)
	}
}
