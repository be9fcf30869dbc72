package batch_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

func receiver(t *testing.T, log *observetest.Log, handler transports.Handler) *transports.Receiver {
	t.Helper()
	r, err := transports.NewReceiver(transports.ReceiverParams{
		Transport: "batch", Handler: handler, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// S1-051 to S1-053: four ids in the seed's order; anything else is malformed,
// ends with 64 and without a run, and is not in the log.
func TestRunArguments(t *testing.T) {
	t.Parallel()
	var log observetest.Log
	var ran []transports.Message
	r := receiver(t, &log, func(_ context.Context, m transports.Message) error { ran = append(ran, m); return nil })
	const noise = transporttest.Canary
	poison := [][]string{
		nil, {""}, {"", "", "", ""}, {noise}, {"a", "b", noise}, {"a", "b", "c", "d", noise}, {"", noise, "c", "d"}, {"a", "", noise, "d"}, {"a", "b", "", noise}, {"a", "b", noise, ""},
		{strings.Repeat(noise, 10_000)},
	}
	for _, args := range poison {
		if code := batch.Run(t.Context(), r, time.Minute, args); code != 64 {
			t.Errorf("%.40q: exit code %d", args, code)
		}
	}
	if text := log.String(); len(ran) != 0 || strings.Contains(text, noise) || strings.Count(text, "malformed") < len(poison) {
		t.Errorf("ran %v, log:\n%s", ran, text)
	}
	if code := batch.Run(t.Context(), r, time.Minute, strings.Split("o,c,d,m", ",")); code != 0 || len(ran) != 1 || ran[0].JobID != "m" || strings.Join(ran[0].Args, ",") != "o,c,d,m" {
		t.Errorf("exit code %d, ran %v", code, ran)
	}
}

// S1-256, S1-259, S1-269: after a SIGTERM the work goes on to its end, or to the
// drain's limit, and then the run is one to try again.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	for need, want := range map[time.Duration]int{time.Minute: batch.ExitDone, time.Hour: batch.ExitRetry} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			r := receiver(t, &observetest.Log{}, func(work context.Context, _ transports.Message) error {
				cancel()
				select {
				case <-time.After(need):
					return nil
				case <-work.Done():
					return work.Err()
				}
			})
			code := batch.Run(ctx, r, 10*time.Minute, []string{"o", "c", "d", "m"})
			if took := time.Since(began); code != want || took != min(need, 10*time.Minute) {
				t.Errorf("exit code %d after %s", code, took)
			}
		})
	}
	if batch.ExitDone != 0 || batch.ExitMalformed != 64 || batch.ExitRetry != 75 {
		t.Error("another exit code")
	}
}
