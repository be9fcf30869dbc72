package edgehost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/egress"
	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// fleet owns all workers and bounds their processes.
type fleet struct {
	p       Params
	store   *scriptstore.Store
	fence   *fence
	runner  *workerd.Runner
	proxy   *egress.Proxy
	metrics *metrics
	logger  *slog.Logger
	runDir  string

	ctx     context.Context // ends starts and validations when the host stops
	cancel  context.CancelFunc
	patient context.Context // ends when the host must not wait any longer
	hurry   context.CancelFunc
	closing atomic.Bool
	work    sync.WaitGroup // goroutines of starts and processes
	starts  chan struct{}  // semaphore
	checks  chan struct{}  // semaphore of validations
	uploads chan struct{}  // semaphore of uploads

	mu      sync.Mutex // taken before any worker's mu
	workers map[string]*worker
	slots   int
	serial  int
}

// worker returns the runtime state of a script, making it when missing.
func (f *fleet) worker(name string) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[name]
	if w == nil {
		w = &worker{fleet: f, name: name, deploy: make(chan struct{}, 1)}
		f.workers[name] = w
	}
	return w
}

// lookup returns the worker of a script that exists, or ErrNotFound. It reads
// the disk only for a script that was not used since the start.
func (f *fleet) lookup(name string) (*worker, error) {
	if !scriptstore.ValidName(name) {
		return nil, scriptstore.ErrNotFound
	}
	f.mu.Lock()
	w := f.workers[name]
	f.mu.Unlock()
	if w != nil {
		return w, nil
	}
	if _, err := f.store.Get(name); err != nil {
		return nil, err
	}
	return f.worker(name), nil
}

func notFound(err error) bool { return errors.Is(err, scriptstore.ErrNotFound) }

// takeSlot reserves room for one process and stops the least recently used
// idle one when there is none.
func (f *fleet) takeSlot() error {
	for range f.p.Limits.MaxProcesses + 1 {
		f.mu.Lock()
		if f.slots < f.p.Limits.MaxProcesses {
			f.slots++
			f.metrics.processes.Set(float64(f.slots))
			f.mu.Unlock()
			return nil
		}
		victim := f.leastRecentlyUsed()
		f.mu.Unlock()
		if victim == nil {
			return errNoRoom
		}
		victim.server.Stop(f.p.Limits.StopGrace)
		<-victim.gone
	}
	return errNoRoom
}

// leastRecentlyUsed detaches the idle process that waits longest. Needs mu.
func (f *fleet) leastRecentlyUsed() *instance {
	for {
		var oldest *worker
		var since time.Time
		for _, w := range f.workers {
			if used, ok := w.idleSince(); ok && (oldest == nil || used.Before(since)) {
				oldest, since = w, used
			}
		}
		if oldest == nil {
			return nil
		}
		if inst := oldest.detach(endEvicted, since); inst != nil {
			return inst
		}
	}
}

func (w *worker) idleSince() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inst == nil || w.held != nil || w.inst.inFlight > 0 {
		return time.Time{}, false
	}
	return w.inst.lastUsed, true
}

func (f *fleet) freeSlot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots--
	f.metrics.processes.Set(float64(f.slots))
}

// start starts the current version of a worker. The caller makes sure that
// no other start of the same worker runs.
func (f *fleet) start(w *worker) (*instance, error) {
	for _, before := range w.predecessors() {
		<-before.gone
	}
	if _, err := f.store.Get(w.name); err != nil {
		return nil, err // a deleted script must not cost another its process
	}
	begun := time.Now()
	if err := f.takeSlot(); err != nil {
		return nil, err
	}
	inst, err := f.startInSlot(w)
	if err != nil {
		f.freeSlot()
		if f.ctx.Err() != nil {
			err = errClosed
		}
		if blameWorker(err) {
			f.metrics.starts.WithLabelValues("failed").Inc()
			f.logger.Error("worker start failed", "script", w.name, "error", err.Error())
		}
		return nil, err
	}
	f.metrics.starts.WithLabelValues("started").Inc()
	f.metrics.startSeconds.Observe(time.Since(begun).Seconds())
	f.logger.Info("worker process started", "script", w.name, "version", inst.version, "pid", inst.server.PID(), "milliseconds", time.Since(begun).Milliseconds())
	f.work.Go(func() { f.watch(w, inst) })
	return inst, nil
}

func (f *fleet) startInSlot(w *worker) (*instance, error) {
	select {
	case f.starts <- struct{}{}:
		defer func() { <-f.starts }()
	case <-f.ctx.Done():
		return nil, errClosed
	}
	script, err := f.store.Get(w.name)
	if err != nil {
		return nil, err
	}
	bundle, err := f.store.Bundle(w.name, script.Version, script.Release)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.p.Limits.StartTimeout)
	defer cancel()
	lock, err := f.store.LockStorage(ctx, w.name)
	if err != nil {
		return nil, err
	}
	inst, err := f.launch(w, script, bundle, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return inst, nil
}

func (f *fleet) launch(w *worker, script scriptstore.Script, bundle []byte, lock *os.File) (*instance, error) {
	runDir, err := f.newRunDir()
	if err != nil {
		return nil, err
	}
	proxy, err := serveEgress(f.ctx, filepath.Join(runDir, workerd.EgressSocket), f.proxy.Handler(w.name))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("egress socket: %w", err), os.RemoveAll(runDir))
	}
	server, err := f.runner.Start(f.ctx, workerd.Spec{
		Logger: f.logger.With("script", w.name), Bundle: bundle, CompatibilityDate: script.Release.CompatibilityDate,
		UniqueKey: script.UniqueKey, StorageDir: f.store.StorageDir(w.name), RunDir: runDir, Lock: lock, UID: f.uid(script.UniqueKey),
	})
	if err != nil {
		return nil, errors.Join(err, proxy.Close(), os.RemoveAll(runDir))
	}
	now := time.Now()
	return &instance{
		server: server, version: script.Version, transport: newTransport(server), egress: proxy, lock: lock,
		runDir: runDir, started: now, lastUsed: now, gone: make(chan struct{}),
	}, nil
}

// newRunDir makes the folder of one process; its name is short because the
// sockets in it have bounded paths.
func (f *fleet) newRunDir() (string, error) {
	f.mu.Lock()
	f.serial++
	dir := filepath.Join(f.runDir, strconv.Itoa(f.serial))
	f.mu.Unlock()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("run folder: %w", err)
	}
	return dir, nil
}

// uid derives the isolated uid of a script from its storage key.
func (f *fleet) uid(uniqueKey string) uint32 {
	if f.p.Isolation == nil {
		return 0
	}
	n, err := strconv.ParseUint(uniqueKey[:8], 16, 32)
	if err != nil {
		n = 0
	}
	return f.p.Isolation.FirstUID + uint32(n)%f.p.Isolation.Count
}

// retire stops a process that no new request can reach: it waits for its
// requests, then for the process itself, both bounded.
func (f *fleet) retire(ctx context.Context, w *worker, inst *instance, reason endReason) {
	w.mu.Lock()
	if inst.reason == "" {
		inst.reason = reason
	}
	w.mu.Unlock()
	timer := time.NewTimer(f.p.Limits.DrainTimeout)
	defer timer.Stop()
	select {
	case <-w.drain(inst):
	case <-inst.gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	grace := f.p.Limits.StopGrace
	if ctx.Err() != nil {
		grace = 0
	}
	if inst.server.Stop(grace) {
		f.logger.Warn("worker process did not stop in time and was killed", "script", w.name)
	}
	<-inst.gone
}
