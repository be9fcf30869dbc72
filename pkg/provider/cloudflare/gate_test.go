package cloudflare_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// clock is moved by the test. Once told to, it tells when it is looked at.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	looks chan struct{}
}

func (c *clock) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = make(chan struct{}, 1)
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.looks <- struct{}{}:
	default:
	}
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// steps is a clock that moves on at every look, so that no gate stays closed.
func steps(d time.Duration) func(*cloudflare.Params) {
	c := newClock()
	return func(p *cloudflare.Params) { p.Now = func() time.Time { c.add(d); return c.Now() } }
}

func TestGate(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := cloudflare.NewGate(c.Now)
	check := func(want time.Duration) {
		t.Helper()
		if got := g.Remaining(); got != want {
			t.Errorf("remaining %s, want %s", got, want)
		}
	}
	check(0)
	g.Block(90 * time.Second)
	check(90 * time.Second)
	g.Block(30 * time.Second) // a shorter word does not open it earlier
	check(90 * time.Second)
	c.add(60 * time.Second)
	check(30 * time.Second)
	g.Block(time.Minute)
	check(time.Minute)
	c.add(2 * time.Minute)
	check(0)
	g.Block(24 * time.Hour)
	check(15 * time.Minute)
	c.add(16 * time.Minute)
	g.Block(0)
	g.Block(-time.Minute)
	check(0)
}

func TestGateWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := cloudflare.NewGate(time.Now)
		if g.Wait(t.Context()) != nil {
			t.Error("an open gate holds")
		}
		g.Block(time.Minute)
		begun := time.Now()
		waited := make(chan time.Duration, 1)
		go func() {
			if g.Wait(t.Context()) == nil {
				waited <- time.Since(begun)
			}
		}()
		synctest.Wait()
		time.Sleep(30 * time.Second) //nolint:forbidigo // the bubble's clock
		g.Block(90 * time.Second)    // a later refusal holds who already waits
		if got := <-waited; got != 2*time.Minute {
			t.Errorf("waited %s", got)
		}
		g.Block(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// D14: after a 429 this process sends no upload until Retry-After has passed,
// and says how long that is. The clock alone opens it again.
func TestUploadIsHeldAfterRateLimit(t *testing.T) {
	t.Parallel()
	soon := func(c *clock, d time.Duration) string { return c.Now().Add(d).Format(http.TimeFormat) }
	for title, c := range map[string]struct {
		header   func(*clock) string
		low, top time.Duration
	}{
		"seconds":       {func(*clock) string { return "120" }, 2 * time.Minute, 2 * time.Minute},
		"a date":        {func(*clock) string { return soon(&clock{now: time.Now()}, 10*time.Minute) }, 9 * time.Minute, 10 * time.Minute},
		"a day":         {func(*clock) string { return "86400" }, 15 * time.Minute, 15 * time.Minute},
		"nothing":       {func(*clock) string { return "" }, 5 * time.Minute, 5 * time.Minute},
		"nonsense":      {func(*clock) string { return "soon" }, 5 * time.Minute, 5 * time.Minute},
		"less than 0":   {func(*clock) string { return "-1" }, 5 * time.Minute, 5 * time.Minute},
		"a date before": {func(*clock) string { return "Mon, 02 Jan 2006 15:04:05 GMT" }, 5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			now := newClock()
			s := script(t, answer(429, "error code: 1015", "Retry-After", c.header(now)), func(p *cloudflare.Params) { p.Now = now.Now })
			limited := func() time.Duration {
				t.Helper()
				e, ok := errors.AsType[*provider.RateLimitedError](s.Upload(t.Context(), release()))
				if !ok || e.Code != "cloudflare_rate_limited" {
					t.Fatalf("got %v", e)
				}
				return e.RetryAfter
			}
			first := limited()
			if first < c.low || first > c.top || len(s.seen()) != 1 {
				t.Errorf("retry after %s", first)
			}
			now.add(first - time.Second)
			if left := limited(); left != time.Second || s.RetryIn() != time.Second {
				t.Errorf("left %s, %s", left, s.RetryIn())
			}
			if s.CheckNamespace(t.Context()) == nil || len(s.seen()) != 0 {
				t.Error("a request was sent while the token was blocked")
			}
			now.add(time.Second)
			limited()
			if len(s.seen()) != 1 {
				t.Error("the upload was not sent when the block was over")
			}
		})
	}
}

// The token is blocked for all calls: a 429 of one read holds uploads, and a
// read waits instead of spending the answer that tells what became of a write.
func TestReadsAndTheRateLimit(t *testing.T) {
	t.Parallel()
	now := newClock()
	s := script(t, answer(429, "", "Retry-After", "60"), func(p *cloudflare.Params) { p.Now = now.Now })
	unreadable := func(err error) {
		t.Helper()
		if _, ok := errors.AsType[*provider.UnreadableError](err); !ok {
			t.Fatalf("got %v", err)
		}
	}
	unreadable(s.ReadBack(t.Context(), release()))
	if len(s.seen()) == 0 || s.RetryIn() != time.Minute {
		t.Fatalf("the gate is closed for %s", s.RetryIn())
	}
	if got := class(s.Upload(t.Context(), release())); got != "rate limited cloudflare_rate_limited" {
		t.Errorf("upload: %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unreadable(s.ReadBack(ended, release()))
	if seen := s.seen(); len(seen) != 0 {
		t.Errorf("sent while blocked: %v", seen)
	}
	// A read that waits looks at the clock again and again, and is sent when the
	// clock says so.
	now.add(time.Minute - time.Millisecond)
	now.tell()
	read := make(chan error, 1)
	go func() { read <- s.ReadBack(t.Context(), release()) }()
	for range 3 {
		select {
		case <-now.looks:
		case err := <-read:
			t.Fatalf("the read did not wait: %v", err)
		}
	}
	if seen := s.seen(); len(seen) != 0 {
		t.Errorf("sent while blocked: %v", seen)
	}
	now.add(time.Millisecond)
	unreadable(<-read)
	if len(s.seen()) == 0 {
		t.Error("the read was not sent when the block was over")
	}
}
