package outbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Beat says how one hold is kept up.
type Beat struct {
	// Every is the pause between two renewals; TTL how long a renewal lasts.
	Every, TTL time.Duration
	// Renew extends the hold. Lost ends the hold at once; any other error is
	// tried again until the TTL has passed since the last success was sent.
	Renew func(context.Context) error
	Lost  error
	// Since is the local time when the hold was asked for; zero means now.
	Since time.Time
}

// Keep renews a hold until stop is called, and cancels the returned context
// with b.Lost as soon as the hold is lost or can no longer be shown to be
// alive. The local timer only ever ends work early: it runs from the moment
// when the last successful renewal was sent, so a renewal that stalls cannot
// carry the work past the hold's end. stop waits for the heartbeat to end
// (S1-135) and may be called more than once.
func Keep(ctx context.Context, b Beat) (context.Context, func()) {
	held, cancel := context.WithCancelCause(ctx)
	beats, stopBeats := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { b.run(beats, cancel) })
	return held, func() {
		stopBeats()
		done.Wait()
		cancel(context.Canceled)
	}
}

// retryBeat is the pause after a renewal that failed for another reason than
// loss: short enough for several tries within any TTL.
const retryBeat = time.Second

func (b Beat) run(ctx context.Context, lost context.CancelCauseFunc) {
	alive := b.Since
	if alive.IsZero() {
		alive = time.Now()
	}
	pause := max(0, b.Every-time.Since(alive))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		deadline := alive.Add(b.TTL)
		try, cancel := context.WithDeadline(ctx, deadline)
		err := b.Renew(try)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			alive, pause = sent, b.Every
		case errors.Is(err, b.Lost) || !time.Now().Before(deadline):
			lost(b.Lost)
			return
		default:
			pause = min(retryBeat, max(0, time.Until(deadline)))
		}
	}
}

// KeepLease keeps a deployment's lease up every HeartbeatEvery.
func (o *Outbox) KeepLease(ctx context.Context, lease Lease) (context.Context, func()) {
	return Keep(ctx, Beat{
		Every: HeartbeatEvery, TTL: LeaseTTL, Lost: ErrLeaseLost, Since: lease.Asked,
		Renew: func(ctx context.Context) error { return o.Renew(ctx, lease) },
	})
}
