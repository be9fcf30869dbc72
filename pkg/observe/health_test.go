package observe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func admin(h *Health) http.Handler { return Admin(h, NewRegistry("test"), Discard()) }

func TestHealthzNeedsNothing(t *testing.T) {
	t.Parallel()
	h := NewHealth(0, nil)
	h.Add("database", func(context.Context) error { return errors.New("away") })
	h.Stop()
	response := get(t, admin(h), http.MethodGet, "/healthz")
	if response.Code != http.StatusOK || response.Body.String() != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", response.Code, response.Body)
	}
	// The positive control: readiness sees the same part fail.
	if response = get(t, admin(h), http.MethodGet, "/readyz"); response.Code != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d", response.Code)
	}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	fails := func(context.Context) error { return errors.New("dial tcp 10.0.0.7: password hunter2 refused") }
	passes := func(context.Context) error { return nil }
	panics := func(context.Context) error { panic("hunter2") }
	cases := []struct {
		name   string
		checks map[string]Check
		stop   bool
		status int
		body   string
	}{
		{"no checks", nil, false, 200, `{"status":"ready"}`},
		{"all pass", map[string]Check{"database": passes, "redis": passes}, false, 200, `{"status":"ready"}`},
		{"one fails", map[string]Check{"database": passes, "redis": fails}, false, 503, `{"status":"unavailable","failing":["redis"]}`},
		{"two fail", map[string]Check{"redis": fails, "database": fails, "keys": passes}, false, 503, `{"status":"unavailable","failing":["database","redis"]}`},
		{"one panics", map[string]Check{"keys": panics, "redis": passes}, false, 503, `{"status":"unavailable","failing":["keys"]}`},
		{"stopping", map[string]Check{"database": passes}, true, 503, `{"status":"unavailable","failing":["stopping"]}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := NewHealth(time.Minute, nil)
			for name, check := range c.checks {
				h.Add(name, check)
			}
			if c.stop {
				h.Stop()
			}
			response := get(t, admin(h), http.MethodGet, "/readyz")
			if response.Code != c.status || strings.TrimSpace(response.Body.String()) != c.body {
				t.Errorf("%d %s, want %d %s", response.Code, response.Body, c.status, c.body)
			}
			if strings.Contains(response.Body.String(), "hunter2") {
				t.Error("the reason left the process")
			}
			if response.Header().Get("Content-Type") != "application/json" || response.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("header %v", response.Header())
			}
		})
	}
}

func TestOnlyReadingMethods(t *testing.T) {
	t.Parallel()
	handler := admin(NewHealth(0, nil))
	for path, want := range map[string]int{"/readyz": http.StatusMethodNotAllowed, "/other": http.StatusNotFound} {
		if response := get(t, handler, http.MethodPost, path); response.Code != want {
			t.Errorf("POST %s: %d", path, response.Code)
		}
	}
	if response := get(t, handler, http.MethodHead, "/readyz"); response.Code != http.StatusOK {
		t.Errorf("HEAD: %d", response.Code)
	}
}

// A check that ignores its context is reported as failing after the timeout,
// and is not started a second time while it hangs.
func TestHangingCheckIsGivenUpAndNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		release := make(chan struct{})
		h := NewHealth(3*time.Second, nil)
		h.Add("slow", func(context.Context) error {
			runs.Add(1)
			<-release
			return nil
		})
		h.Add("fast", func(context.Context) error { return nil })
		for range 3 {
			began := time.Now()
			failing := h.Failing(t.Context())
			if len(failing) != 1 || failing[0] != "slow" {
				t.Errorf("failing = %v", failing)
			}
			// The clock is the bubble's: exact, whatever the machine does.
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("took %s", took)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("runs = %d", runs.Load())
		}
		close(release)
		synctest.Wait()
		if failing := h.Failing(t.Context()); len(failing) != 0 || runs.Load() != 2 {
			t.Errorf("after the release: %v, %d runs", failing, runs.Load())
		}
	})
}

// A check's context ends with the timeout, and not with the request that
// happened to start it.
func TestCheckContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(5*time.Second, nil)
		ended := make(chan error, 1)
		h.Add("slow", func(ctx context.Context) error {
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if failing := h.Failing(ctx); len(failing) != 1 {
			t.Errorf("failing = %v", failing)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the check ended by %v", err)
		}
	})
}

func TestFailureIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := NewHealth(time.Minute, NewLogger(&out, slog.LevelInfo))
	var failure error
	h.Add("database", func(context.Context) error { return failure })
	h.Failing(t.Context())
	failure = errors.New("connection refused")
	h.Failing(t.Context())
	h.Failing(t.Context())
	failure = nil
	h.Failing(t.Context())
	h.Failing(t.Context())
	got := lines(t, &out)
	if len(got) != 2 {
		t.Fatalf("%d lines: %v", len(got), got)
	}
	if got[0]["level"] != "WARN" || got[0]["check"] != "database" || got[0]["error"] != "connection refused" {
		t.Errorf("first line %v", got[0])
	}
	if got[1]["level"] != "INFO" || got[1]["check"] != "database" {
		t.Errorf("second line %v", got[1])
	}
}
