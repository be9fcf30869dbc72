package edgehost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

var (
	// errCapacity refuses an upload before anything was changed.
	errCapacity = errors.New("the edge host has no room for this script")
	// errHasStorage refuses a deletion that would lose data.
	errHasStorage = errors.New("the script has stored data; delete it with force=true")
)

// deploy makes a release the current one: validate, store, swap, start. The
// answer is given when the new process listens or could not be started. In
// the latter case the release before is current again and the error says so.
func (f *fleet) deploy(ctx context.Context, name string, release scriptstore.Release, bundle []byte) (scriptstore.Script, error) {
	w := f.worker(name)
	if err := w.beginDeploy(ctx); err != nil {
		return scriptstore.Script{}, err
	}
	defer w.endDeploy()
	before, err := f.store.Get(name)
	if err != nil && !notFound(err) {
		return scriptstore.Script{}, err
	}
	if err := f.room(notFound(err)); err != nil {
		return scriptstore.Script{}, err
	}
	if err := f.check(ctx, bundle, release.CompatibilityDate); err != nil {
		return scriptstore.Script{}, err
	}
	// From here on nothing is left half done because a caller went away.
	version, err := f.store.Stage(name, release, bundle, time.Now())
	if err != nil {
		return scriptstore.Script{}, err
	}
	w.forgive()
	if before.Version != version {
		if err := f.swap(w, before.Version, version); err != nil {
			return scriptstore.Script{}, err
		}
	}
	return f.store.Get(name)
}

func (w *worker) beginDeploy(ctx context.Context) error {
	select {
	case w.deploy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.fleet.ctx.Done():
		return errClosed
	}
	if w.fleet.closing.Load() {
		w.endDeploy()
		return errClosed
	}
	return nil
}

func (w *worker) endDeploy() { <-w.deploy }

// room refuses when the host is full.
func (f *fleet) room(isNew bool) error {
	free, err := freeBytes(f.p.DataDir)
	if err != nil {
		return fmt.Errorf("free space: %w", err)
	}
	if free < f.p.Limits.MinFreeBytes {
		return errCapacity
	}
	if !isNew {
		return nil
	}
	names, err := f.store.List()
	if err != nil {
		return err
	}
	if len(names) >= f.p.Limits.MaxScripts {
		return errCapacity
	}
	return nil
}

// check runs the validation start, at most a few at once.
func (f *fleet) check(ctx context.Context, bundle []byte, date string) error {
	select {
	case f.checks <- struct{}{}:
		defer func() { <-f.checks }()
	case <-ctx.Done():
		return ctx.Err()
	}
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	err := f.runner.Validate(ctx, bundle, date)
	result := "accepted"
	if _, rejected := errors.AsType[*workerd.Rejected](err); rejected {
		result = "rejected"
	} else if err != nil {
		result = "failed"
	}
	f.metrics.validations.WithLabelValues(result).Observe(time.Since(begun).Seconds())
	return err
}

// swap replaces the serving process. Requests that arrive meanwhile wait and
// are served by the new release, requests in flight end on the old process.
func (f *fleet) swap(w *worker, before, version string) error {
	var next *instance
	old := w.hold()
	defer func() { w.unhold(next) }()
	if old != nil {
		f.retire(f.patient, w, old, endReplaced)
	}
	if err := f.store.Activate(w.name, version, time.Now()); err != nil {
		return err
	}
	started, err := f.start(w)
	if err != nil && blameWorker(err) {
		return f.rollBack(w, before, err)
	}
	// Without a free slot, or while the host stops, the release is current
	// all the same and starts with the first request.
	next = started
	if err := f.store.Prune(w.name, version); err != nil {
		f.logger.Warn("old versions are left for the next sweep", "script", w.name, "error", err.Error())
	}
	return nil
}

// rollBack makes the release before current again after a failed start, so
// that what is read back is what is served.
func (f *fleet) rollBack(w *worker, before string, cause error) error {
	var err error
	if before == "" {
		err = f.store.Deactivate(w.name)
	} else {
		err = f.store.Activate(w.name, before, time.Now())
	}
	if err != nil {
		return fmt.Errorf("release did not start (%w) and could not be taken back: %w", cause, err)
	}
	f.logger.Error("release did not start, the one before is current again", "script", w.name, "error", cause.Error())
	return cause
}

// remove deletes a script with its storage.
func (f *fleet) remove(ctx context.Context, name string, force bool) error {
	w, err := f.lookup(name)
	if err != nil {
		return err
	}
	if err := w.beginDeploy(ctx); err != nil {
		return err
	}
	defer w.endDeploy()
	if _, err := f.store.Get(name); err != nil {
		return err
	}
	stored, err := f.store.HasStorage(name)
	if err != nil {
		return err
	}
	if stored && !force {
		return errHasStorage
	}
	inst := w.hold()
	defer w.unhold(nil)
	if inst != nil {
		f.retire(f.patient, w, inst, endDeleted)
	}
	for _, before := range w.predecessors() {
		<-before.gone
	}
	w.forgive()
	return f.store.Remove(name)
}
