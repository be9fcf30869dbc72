package edgehost

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// endReason says why a process ended; it is the label of a metric.
type endReason string

const (
	endCrash        endReason = "crash"        // by itself
	endUnresponsive endReason = "unresponsive" // killed: its event loop was blocked
	endMemory       endReason = "memory"       // killed: it used too much memory
	endIdle         endReason = "idle"         // no requests for a while
	endEvicted      endReason = "evicted"      // made room for another
	endReplaced     endReason = "replaced"     // an upload
	endDeleted      endReason = "deleted"      // a deletion
	endShutdown     endReason = "shutdown"     // the host stops
)

// instance is one running process of a worker with what belongs to it.
type instance struct {
	server    *workerd.Server
	version   string
	transport *http.Transport
	egress    *http.Server
	lock      *os.File // of the storage folder, for the life of the process
	runDir    string
	started   time.Time
	gone      chan struct{} // closed when the process and its files are gone

	// The fields below are guarded by worker.mu.
	inFlight int
	lastUsed time.Time
	drained  chan struct{} // closed when inFlight gets 0
	dead     bool          // the process ended
	reason   endReason     // why the host ends it; empty: it did so itself
}

// serveEgress gives a process its own way out, so that the proxy knows the
// script without trusting anything that the Worker sends.
func serveEgress(ctx context.Context, socket string, handler http.Handler) (*http.Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func newTransport(server *workerd.Server) *http.Transport {
	return &http.Transport{
		DialContext:            server.Dial,
		DisableCompression:     true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// blameWorker reports whether a failed start counts for the back-off.
func blameWorker(err error) bool {
	return !errors.Is(err, errClosed) && !errors.Is(err, errNoRoom) && !notFound(err)
}

// watch follows a process until it is gone.
func (f *fleet) watch(w *worker, inst *instance) {
	ctx, cancel := context.WithCancel(context.Background())
	f.work.Go(func() { f.watchHealth(ctx, w, inst) })
	f.work.Go(func() { f.watchUse(ctx, w, inst) })
	<-inst.server.Done()
	cancel()
	f.reap(w, inst)
}

// watchHealth kills a process whose event loop does not answer. A process
// without requests is asked less often: it has little to be blocked by.
func (f *fleet) watchHealth(ctx context.Context, w *worker, inst *instance) {
	limits := f.p.Limits
	var silentSince time.Time
	for {
		asked := time.Now()
		err := inst.server.Healthy(ctx, limits.HealthTimeout)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			silentSince = time.Time{}
		} else if silentSince.IsZero() {
			silentSince = asked
		}
		if !silentSince.IsZero() && time.Since(silentSince) >= limits.HealthTimeout {
			f.kill(w, inst, endUnresponsive)
			return
		}
		if sleep(ctx, f.healthPause(w, inst)) != nil {
			return
		}
	}
}

func (f *fleet) healthPause(w *worker, inst *instance) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	interval := f.p.Limits.HealthInterval
	if inst.inFlight == 0 && time.Since(inst.lastUsed) > 10*interval {
		return 10 * interval
	}
	return interval
}

// watchUse kills a process that is too large and stops one without requests.
func (f *fleet) watchUse(ctx context.Context, w *worker, inst *instance) {
	limits := f.p.Limits
	for sleep(ctx, min(limits.HealthInterval/4, limits.IdleTimeout)) == nil {
		if used, ok := inst.server.Memory(limits.MaxMemoryBytes); ok && used > limits.MaxMemoryBytes {
			f.kill(w, inst, endMemory)
			return
		}
		if idle := w.detach(endIdle, time.Now().Add(-limits.IdleTimeout)); idle != nil {
			idle.server.Stop(limits.StopGrace)
			return
		}
	}
}

func (f *fleet) kill(w *worker, inst *instance, reason endReason) {
	w.mu.Lock()
	if inst.reason == "" {
		inst.reason = reason
	}
	w.mu.Unlock()
	inst.server.Kill()
}

// reap clears up after a process, frees its slot and counts its end.
func (f *fleet) reap(w *worker, inst *instance) {
	inst.transport.CloseIdleConnections()
	_ = inst.egress.Close()
	_ = inst.lock.Close()
	_ = os.RemoveAll(inst.runDir)
	f.freeSlot()
	w.mu.Lock()
	reason := inst.reason
	if reason == "" {
		reason = endCrash
	}
	inst.reason, inst.dead = reason, true
	if w.inst == inst {
		w.inst = nil
	}
	w.ending = slices.DeleteFunc(w.ending, func(other *instance) bool { return other == inst })
	if reason == endCrash || reason == endUnresponsive || reason == endMemory {
		if time.Since(inst.started) > backoffReset {
			w.failures = 0
		}
		w.countFailure(errors.New(string(reason)))
	}
	w.mu.Unlock()
	f.metrics.ends.WithLabelValues(string(reason)).Inc()
	f.logger.Info("worker process ended", "script", w.name, "reason", string(reason), "exit", inst.server.Exit(), "pid", inst.server.PID())
	close(inst.gone)
}
