package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/pkg/process"
)

// S1-260: while work in flight ends after the stop, the process lives and is not
// ready; then everything closes.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	var log observetest.Log
	sight := process.NewSight("test", slog.LevelInfo, &log)
	ctx, stop := context.WithCancel(t.Context())
	stopping, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- sight.Serve(ctx, process.Duties{
			MetricsAddr: "127.0.0.1:0",
			Work:        []process.Work{func(ctx context.Context) error { <-ctx.Done(); return nil }},
			Close:       func() error { close(stopping); <-release; return nil },
		})
	}()
	origin := "http://" + address(t, &log)
	if status := get(t, origin+"/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	stop()
	<-stopping
	if alive, ready := get(t, origin+"/healthz"), get(t, origin+"/readyz"); alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("while it drains: alive %d, ready %d", alive, ready)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := ask(t, origin+"/healthz"); err == nil {
		t.Error("it answers after its end")
	}
}

// A part that fails ends the process, and its error is the process's.
func TestServeFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, c := range map[string]struct {
		metrics   string
		listeners []process.Listener
		work      process.Work
	}{
		"work":     {"127.0.0.1:0", nil, func(context.Context) error { return broken }},
		"metrics":  {"192.0.2.1:1", nil, waits},
		"listener": {"127.0.0.1:0", []process.Listener{{Name: "api", Addr: "192.0.2.1:1", Handler: http.NotFoundHandler()}}, waits},
	} {
		var log observetest.Log
		closed := false
		err := process.NewSight("test", slog.LevelInfo, &log).Serve(t.Context(), process.Duties{
			MetricsAddr: c.metrics, Listeners: c.listeners, Work: []process.Work{waits, c.work}, Close: func() error { closed = true; return nil },
		})
		if !closed || err == nil || (name == "work") != errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// address waits until the log has the metrics' address.
func address(t *testing.T, log *observetest.Log) string {
	t.Helper()
	if err := log.Await(t.Context(), "server listens"); err != nil {
		t.Fatal(err)
	}
	var line struct{ Address string }
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
		t.Fatal(err)
	}
	return line.Address
}

func ask(t *testing.T, url string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func get(t *testing.T, url string) int {
	t.Helper()
	status, err := ask(t, url)
	if err != nil {
		t.Error(err)
	}
	return status
}
