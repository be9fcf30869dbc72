package liveplane

import (
	"context"
	"log/slog"
	"os"
	"sync"
)

// Processes are the Workers' processes, as the edge host's log tells of them.
type Processes struct {
	mu   sync.Mutex
	pids map[int64]bool
}

// Kill ends those that run now, as a crash would, and tells how many there were.
func (p *Processes) Kill() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for pid := range p.pids {
		process, err := os.FindProcess(int(pid))
		if err == nil && process.Kill() == nil {
			n++
		}
	}
	return n
}

func (p *Processes) set(pid int64, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pids == nil {
		p.pids = map[int64]bool{}
	}
	if runs {
		p.pids[pid] = true
	} else {
		delete(p.pids, pid)
	}
}

// watch is a log handler that keeps the books of Processes.
type watch struct {
	slog.Handler
	processes *Processes
}

// Enabled lets all records come by.
func (watch) Enabled(context.Context, slog.Level) bool { return true }

// Handle passes a record on.
func (w watch) Handle(ctx context.Context, r slog.Record) error {
	started, ended := r.Message == "worker process started", r.Message == "worker process ended"
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pid" && (started || ended) {
			w.processes.set(a.Value.Int64(), started)
		}
		return true
	})
	if !w.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}
