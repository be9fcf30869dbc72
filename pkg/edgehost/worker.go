package edgehost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reasons why a request gets no process. ErrNotFound of the store is another.
var (
	errBusy   = errors.New("too many requests for this Worker")
	errNoRoom = errors.New("all process slots are in use")
	errClosed = errors.New("the edge host is stopping")
)

// backoffError says that the Worker failed several times in a row and is not
// started again before RetryAfter.
type backoffError struct{ RetryAfter time.Duration }

func (e *backoffError) Error() string {
	return fmt.Sprintf("the Worker failed repeatedly; next start in %s", e.RetryAfter.Round(time.Second))
}

// Back-off between starts after crashes in a row: none after the first, then
// doubling. Requests wait through a short pause and are refused in a long one.
const (
	backoffStep  = 250 * time.Millisecond
	backoffMax   = 30 * time.Second
	backoffWait  = 2 * time.Second
	backoffReset = time.Minute // a process that lived this long starts afresh
)

// worker is one script's runtime state. Its process comes and goes; the
// worker stays, so that uploads of one script are serialized for good.
type worker struct {
	fleet  *fleet
	name   string
	deploy chan struct{} // capacity 1: one upload or deletion at a time

	mu        sync.Mutex
	inst      *instance     // takes new requests; nil when there is none
	attempt   *attempt      // an on-demand start under way
	held      chan struct{} // a swap is under way; closed at its end
	ending    []*instance   // told to stop, not gone yet
	waiting   int
	failures  int // in a row
	notBefore time.Time
}

// attempt is one on-demand start that all waiting requests share.
type attempt struct {
	done chan struct{}
	err  error // valid after done
}

// acquire returns the process for one request, starting it when needed. The
// caller must release it.
func (w *worker) acquire(ctx context.Context) (*instance, error) {
	for {
		inst, wait, started, err := w.next()
		if inst != nil || err != nil {
			return inst, err
		}
		err = w.await(ctx, wait)
		if err != nil {
			return nil, err
		}
		if started != nil && started.err != nil {
			return nil, started.err
		}
	}
}

// next gives a process, or a channel to wait on, or a refusal.
func (w *worker) next() (*instance, <-chan struct{}, *attempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fleet.closing.Load() {
		return nil, nil, nil, errClosed
	}
	if w.held == nil && w.inst != nil {
		if w.inst.inFlight >= w.fleet.p.Limits.MaxInFlight {
			return nil, nil, nil, errBusy
		}
		w.inst.inFlight++
		return w.inst, nil, nil, nil
	}
	if w.waiting >= w.fleet.p.Limits.MaxWaiting {
		return nil, nil, nil, errBusy
	}
	if w.held != nil {
		w.waiting++
		return nil, w.held, nil, nil
	}
	if w.attempt == nil {
		pause := time.Until(w.notBefore)
		if pause > backoffWait {
			return nil, nil, nil, &backoffError{RetryAfter: pause}
		}
		a := &attempt{done: make(chan struct{})}
		w.attempt = a
		w.fleet.work.Go(func() { w.startOnDemand(a, pause) })
	}
	w.waiting++
	return nil, w.attempt.done, w.attempt, nil
}

func (w *worker) await(ctx context.Context, wait <-chan struct{}) error {
	var err error
	select {
	case <-wait:
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.mu.Lock()
	w.waiting--
	w.mu.Unlock()
	return err
}

func (w *worker) release(inst *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	inst.inFlight--
	inst.lastUsed = time.Now()
	if inst.inFlight == 0 && inst.drained != nil {
		close(inst.drained)
		inst.drained = nil
	}
}

func (w *worker) startOnDemand(a *attempt, pause time.Duration) {
	var inst *instance
	err := sleep(w.fleet.ctx, pause)
	if err == nil {
		inst, err = w.fleet.start(w)
	}
	w.mu.Lock()
	w.attempt = nil
	a.err = err
	w.serve(inst)
	if err != nil {
		w.countFailure(err)
	}
	w.mu.Unlock()
	close(a.done)
}

// serve puts a process into service unless it died since its start. Needs mu.
func (w *worker) serve(inst *instance) {
	w.inst = nil
	if inst != nil && !inst.dead {
		w.inst = inst
	}
}

// countFailure needs mu.
func (w *worker) countFailure(err error) {
	if !blameWorker(err) {
		return
	}
	w.failures++
	if w.failures > 1 {
		w.notBefore = time.Now().Add(min(backoffStep<<min(w.failures-2, 16), backoffMax))
	}
}

func (w *worker) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures, w.notBefore = 0, time.Time{}
}

// hold makes new requests wait and returns the process that serves until now,
// after an on-demand start under way has ended.
func (w *worker) hold() *instance {
	w.mu.Lock()
	w.held = make(chan struct{})
	started := w.attempt
	w.mu.Unlock()
	if started != nil {
		<-started.done
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inst
}

// unhold lets waiting requests go on to inst, or to an on-demand start when
// it is nil.
func (w *worker) unhold(inst *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve(inst)
	close(w.held)
	w.held = nil
}

// drain returns a channel that is closed when no request is in flight.
func (w *worker) drain(inst *instance) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if inst.drained == nil {
		inst.drained = make(chan struct{})
	}
	drained := inst.drained
	if inst.inFlight == 0 {
		close(drained)
		inst.drained = nil
	}
	return drained
}

// detach takes an idle process out of service so that it can be stopped. It
// is nil when there is none, it is in use, or a swap owns it.
func (w *worker) detach(reason endReason, idleSince time.Time) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	inst := w.inst
	if inst == nil || w.held != nil || inst.inFlight > 0 || inst.lastUsed.After(idleSince) {
		return nil
	}
	w.inst = nil
	w.ending = append(w.ending, inst)
	inst.reason = reason
	return inst
}

// predecessors returns the processes that must be gone before the next start.
func (w *worker) predecessors() []*instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*instance(nil), w.ending...)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errClosed
	}
}
