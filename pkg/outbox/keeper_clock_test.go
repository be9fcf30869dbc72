package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/outbox"
)

var (
	errLost   = errors.New("lost")
	errBroken = errors.New("broken")
)

// beats is a hold that answers as its script says and notes when it was asked.
type beats struct {
	start  time.Time
	at     []time.Duration
	answer func(ctx context.Context, n int) error
}

func (b *beats) renew(ctx context.Context) error {
	b.at = append(b.at, time.Since(b.start))
	if b.answer == nil {
		return nil
	}
	return b.answer(ctx, len(b.at))
}

func (b *beats) keep(ctx context.Context) (context.Context, func()) {
	b.start = time.Now()
	return outbox.Keep(ctx, outbox.Beat{Every: 30 * time.Second, TTL: 90 * time.Second, Renew: b.renew, Lost: errLost})
}

func ended(ctx context.Context) bool { return ctx.Err() != nil }

// S2-121, S2-180, S1-135: a beat every 30 seconds while the work goes on, the
// 600 seconds of a readiness wait and longer, none after stop, which may be
// called again.
func TestKeepRenewsUntilStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{}
		held, stop := b.keep(t.Context())
		time.Sleep(610 * time.Second)
		synctest.Wait()
		if len(b.at) != 20 || b.at[0] != 30*time.Second || b.at[19] != 600*time.Second || ended(held) {
			t.Errorf("beats %v, %v", b.at, held.Err())
		}
		stop()
		if !errors.Is(context.Cause(held), context.Canceled) {
			t.Errorf("after stop: %v", context.Cause(held))
		}
		stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.at) != 20 {
			t.Errorf("beats after stop: %v", b.at)
		}
	})
}

// S1-135: the heartbeats end with the work also when it panics.
func TestKeepStopsAfterPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{}
		func() {
			defer func() { _ = recover() }()
			_, stop := b.keep(t.Context())
			defer stop()
			time.Sleep(40 * time.Second)
			panic("a defect")
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.at) != 1 {
			t.Errorf("beats %v", b.at)
		}
	})
}

// A hold that is lost ends the work at once, with the reason.
func TestKeepEndsWhenLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{answer: func(_ context.Context, n int) error {
			if n == 2 {
				return errors.Join(errBroken, errLost)
			}
			return nil
		}}
		held, stop := b.keep(t.Context())
		defer stop()
		<-held.Done()
		if time.Since(b.start) != 60*time.Second || !errors.Is(context.Cause(held), errLost) {
			t.Errorf("after %v: %v", time.Since(b.start), context.Cause(held))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.at) != 2 {
			t.Errorf("beats after the loss: %v", b.at)
		}
	})
}

// Other errors are tried again each second and forgiven by the next success.
func TestKeepRidesOutErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{answer: func(_ context.Context, n int) error {
			if n <= 40 {
				return errBroken
			}
			return nil
		}}
		held, stop := b.keep(t.Context())
		defer stop()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if ended(held) || b.at[40] != 70*time.Second || b.at[41] != 100*time.Second {
			t.Errorf("%v, beats %v", context.Cause(held), b.at)
		}
	})
}

// Without a success the hold ends a TTL after the last one was sent, whether
// the renewals fail or stall.
func TestKeepEndsAtTheTTL(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context, int) error{
		"failing": func(context.Context, int) error { return errBroken },
		"stalled": func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &beats{answer: func(ctx context.Context, n int) error {
					if n == 1 { // sent at 30 s, answered at 50 s
						time.Sleep(20 * time.Second)
						return nil
					}
					return answer(ctx, n)
				}}
				held, stop := b.keep(t.Context())
				defer stop()
				<-held.Done()
				if time.Since(b.start) != 120*time.Second || !errors.Is(context.Cause(held), errLost) {
					t.Errorf("after %v: %v", time.Since(b.start), context.Cause(held))
				}
			})
		})
	}
}

// A hold that took long to get is measured from when it was asked for.
func TestKeepCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{start: time.Now(), answer: func(context.Context, int) error { return errBroken }}
		asked := time.Now()
		time.Sleep(80 * time.Second) // a slow commit
		held, stop := outbox.Keep(t.Context(), outbox.Beat{Every: 30 * time.Second, TTL: 90 * time.Second, Renew: b.renew, Lost: errLost, Since: asked})
		defer stop()
		<-held.Done()
		if b.at[0] != 80*time.Second || time.Since(asked) != 90*time.Second {
			t.Errorf("beats %v, ended after %v", b.at, time.Since(asked))
		}
	})
}

// The end of the caller's context ends the heartbeat and is not a loss.
func TestKeepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &beats{answer: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
		held, stop := b.keep(ctx)
		defer stop()
		time.Sleep(40 * time.Second) // in the middle of a renewal
		cancel()
		<-held.Done()
		synctest.Wait()
		if errors.Is(context.Cause(held), errLost) {
			t.Error("reported as lost")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.at) != 1 {
			t.Errorf("beats %v", b.at)
		}
	})
}
