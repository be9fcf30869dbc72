// Package edgehost serves department Workers on the open-source workerd: one
// process for each script, started on demand, behind a script API that is a
// subset of the cloud provider's and a data plane that forwards signed
// requests (design decision D16).
//
// Durable Object alarms are not offered: the runtime in the bundles sets none
// and gives authors no way to, so a process may stop whenever it is idle.
package edgehost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/teamsync/edge-workers/pkg/edgehost/egress"
	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// Host is one edge host. It is safe for concurrent use.
type Host struct {
	p        Params
	fleet    *fleet
	control  http.Handler
	dispatch http.Handler
	close    sync.Once
	closed   chan struct{}
}

// New opens the data folder, sweeps what an interrupted run left in it and
// returns a host without running processes. It fails when another host owns
// the folder, when workerd does not run, and when isolation is wanted but not
// possible.
func New(p Params) (*Host, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	if p.Isolation != nil && !workerd.IsolationSupported() {
		return nil, errors.New("edge host: isolation needs Linux and root; run without it only where all Workers may trust each other")
	}
	store, err := scriptstore.Open(p.DataDir, p.Logger)
	if err != nil {
		return nil, err
	}
	f, err := openFleet(p, store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	h := &Host{p: p, fleet: f, closed: make(chan struct{})}
	h.control = h.controlRoutes()
	h.dispatch = &dispatcher{fleet: f}
	return h, nil
}

func openFleet(p Params, store *scriptstore.Store) (*fleet, error) {
	if p.Isolation != nil {
		if err := traversable(p.DataDir); err != nil {
			return nil, err
		}
	}
	return newFleet(p, store)
}

func newFleet(p Params, store *scriptstore.Store) (*fleet, error) {
	runDir, err := openRunDir(p.DataDir)
	if err != nil {
		return nil, err
	}
	gate, err := openFence(store)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(p.Registerer, gate)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	patient, hurry := context.WithCancel(context.Background())
	f := &fleet{
		p: p, store: store, fence: gate, metrics: m, logger: p.Logger, runDir: runDir,
		ctx: ctx, cancel: cancel, patient: patient, hurry: hurry,
		proxy:  egress.NewProxy(p.Egress, nil, p.Logger),
		starts: make(chan struct{}, p.Limits.ConcurrentStarts), checks: make(chan struct{}, p.Limits.ConcurrentValidations),
		uploads: make(chan struct{}, p.Limits.MaxUploads), workers: map[string]*worker{},
	}
	params := workerd.Params{
		Binary: p.Workerd, Logger: p.Logger, StartTimeout: p.Limits.StartTimeout,
		MaxHeapMiB: p.Limits.MaxHeapMiB, MaxMemoryBytes: p.Limits.MaxMemoryBytes, ScratchDir: runDir,
	}
	if p.Isolation != nil {
		params.ValidationUID = p.Isolation.FirstUID + p.Isolation.Count
	}
	f.runner, err = workerd.NewRunner(ctx, params)
	if err != nil {
		cancel()
		hurry()
		m.unregister()
		return nil, err
	}
	return f, nil
}

// ControlHandler serves the script API, /healthz, /edge-host/v1/capacity and
// /edge-host/v1/fence.
func (h *Host) ControlHandler() http.Handler { return h.control }

// DispatchHandler serves the data plane.
func (h *Host) DispatchHandler() http.Handler { return h.dispatch }

// MaxCompatibilityDate is the newest compatibility date that the host takes.
func (h *Host) MaxCompatibilityDate() string { return h.fleet.runner.MaxCompatibilityDate() }

// Close refuses new work, waits for requests and uploads in flight and stops
// all processes. When ctx ends first, what still runs is killed. A second call
// waits for the first.
func (h *Host) Close(ctx context.Context) error {
	var err error
	h.close.Do(func() {
		err = h.fleet.shutdown(ctx)
		close(h.closed)
	})
	<-h.closed
	return err
}

func (f *fleet) shutdown(ctx context.Context) error {
	defer f.hurry()
	defer context.AfterFunc(ctx, f.hurry)()
	f.closing.Store(true)
	f.cancel() // starts under way end; running processes do not
	f.mu.Lock()
	workers := make([]*worker, 0, len(f.workers))
	for _, w := range f.workers {
		workers = append(workers, w)
	}
	f.mu.Unlock()
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(func() { f.shutWorker(w) })
	}
	stopping.Wait()
	f.work.Wait()
	f.proxy.Close()
	f.runner.Close()
	f.metrics.unregister()
	return errors.Join(removeRunDir(f.runDir), f.store.Close())
}

// shutWorker waits for the upload under way and stops the process.
func (f *fleet) shutWorker(w *worker) {
	w.deploy <- struct{}{} // kept: no upload follows
	if inst := w.hold(); inst != nil {
		f.retire(f.patient, w, inst, endShutdown)
	}
	for _, inst := range w.predecessors() {
		<-inst.gone
	}
	w.unhold(nil)
}

// Capacity is what GET /edge-host/v1/capacity tells.
type Capacity struct {
	Scripts              int            `json:"scripts"`
	Processes            int            `json:"processes"`
	MaxCompatibilityDate string         `json:"max_compatibility_date"`
	Limits               CapacityLimits `json:"limits"`
}

// CapacityLimits are the limits that an operator plans by.
type CapacityLimits struct {
	Scripts      int    `json:"scripts"`
	Processes    int    `json:"processes"`
	BundleBytes  int64  `json:"bundle_bytes"`
	MemoryBytes  uint64 `json:"memory_bytes"`
	MinFreeBytes uint64 `json:"min_free_bytes"`
}

// Capacity counts scripts and processes.
func (h *Host) Capacity() (Capacity, error) {
	names, err := h.fleet.store.List()
	if err != nil {
		return Capacity{}, fmt.Errorf("capacity: %w", err)
	}
	h.fleet.mu.Lock()
	processes := h.fleet.slots
	h.fleet.mu.Unlock()
	l := h.p.Limits
	return Capacity{
		Scripts: len(names), Processes: processes, MaxCompatibilityDate: h.MaxCompatibilityDate(),
		Limits: CapacityLimits{
			Scripts: l.MaxScripts, Processes: l.MaxProcesses, BundleBytes: l.MaxBundleBytes,
			MemoryBytes: l.MaxMemoryBytes, MinFreeBytes: l.MinFreeBytes,
		},
	}, nil
}
