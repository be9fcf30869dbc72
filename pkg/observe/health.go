package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// DefaultCheckTimeout bounds one readiness check. It lies below the usual
// timeout of the one who asks, so that an answer names what is slow.
const DefaultCheckTimeout = 2 * time.Second

// stopping is the failing name while a process is being stopped.
const stopping = "stopping"

// Check tells whether a part that this process needs is usable. It returns when
// its context ends.
type Check func(ctx context.Context) error

// Health answers two questions: does the process live, and can it do its work.
// Only names of failing parts leave the process; why one fails is logged, once
// when it begins and once when it is over. It is safe for concurrent use.
type Health struct {
	timeout time.Duration
	log     *slog.Logger

	mu       sync.Mutex
	parts    []*part
	stopping bool
}

// part is one named check.
type part struct {
	name  string
	check Check

	mu      sync.Mutex
	running chan struct{} // closed when the run in flight ends; nil when none is
	err     error         // of the last run that ended
	failing bool          // what the log last said
}

// NewHealth makes a Health without checks, which is ready. A timeout of 0 is
// DefaultCheckTimeout; a nil logger discards.
func NewHealth(timeout time.Duration, log *slog.Logger) *Health {
	if timeout == 0 {
		timeout = DefaultCheckTimeout
	}
	if log == nil {
		log = Discard()
	}
	return &Health{timeout: timeout, log: log}
}

// Add adds a readiness check. Names are public: "database", not an address.
func (h *Health) Add(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, &part{name: name, check: check})
}

// Stop makes the process unready for good, so that no new work is sent to it
// while it finishes what it has.
func (h *Health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Failing runs all checks at once and gives the sorted names of those that
// failed or did not end within the timeout.
func (h *Health) Failing(ctx context.Context) []string {
	h.mu.Lock()
	parts := slices.Clone(h.parts)
	failing := []string{}
	if h.stopping {
		failing = append(failing, stopping)
	}
	h.mu.Unlock()

	failed := make([]bool, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			err := p.result(ctx, h.timeout)
			failed[i] = err != nil
			h.report(ctx, p, err)
		})
	}
	all.Wait()
	for i, p := range parts {
		if failed[i] {
			failing = append(failing, p.name)
		}
	}
	slices.Sort(failing)
	return failing
}

// result waits for a run of the check, at most for the timeout. A run in flight
// is joined: a check that hangs is not started again and again.
func (p *part) result(ctx context.Context, timeout time.Duration) error {
	p.mu.Lock()
	running := p.running
	if running == nil {
		running = make(chan struct{})
		p.running = running
		// The run is shared, so one caller that leaves must not end it.
		go p.run(context.WithoutCancel(ctx), timeout, running)
	}
	p.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-running:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.err
	case <-timer.C:
		return fmt.Errorf("no answer within %s", timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *part) run(ctx context.Context, timeout time.Duration, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := p.attempt(ctx)
	p.mu.Lock()
	p.err = err
	p.running = nil
	p.mu.Unlock()
	close(done)
}

// attempt turns a panic into a failure: a broken check makes the process
// unready, and must not end it.
func (p *part) attempt(ctx context.Context) error {
	result := errors.New("the check panicked")
	func() {
		defer func() { _ = recover() }() // result says what happened
		result = p.check(ctx)
	}()
	return result
}

func (h *Health) report(ctx context.Context, p *part, err error) {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return // who asked has left; that says nothing of the part
	}
	p.mu.Lock()
	changed := p.failing != (err != nil)
	p.failing = err != nil
	p.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		h.log.WarnContext(ctx, "readiness check fails", slog.String("check", p.name), slog.Any("error", err))
	default:
		h.log.InfoContext(ctx, "readiness check passes again", slog.String("check", p.name))
	}
}

// answer is the body of both routes.
type answer struct {
	Status  string   `json:"status"`
	Failing []string `json:"failing,omitempty"`
}

// live answers 200 as long as the process can answer at all. It depends on
// nothing: a database that is away must not get every process restarted.
func (h *Health) live(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, answer{Status: "ok"})
}

func (h *Health) ready(w http.ResponseWriter, r *http.Request) {
	failing := h.Failing(r.Context())
	if len(failing) > 0 {
		h.write(w, http.StatusServiceUnavailable, answer{Status: "unavailable", Failing: failing})
		return
	}
	h.write(w, http.StatusOK, answer{Status: "ready"})
}

func (h *Health) write(w http.ResponseWriter, status int, body answer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	err := json.NewEncoder(w).Encode(body)
	if err != nil {
		h.log.Debug("health answer was not taken", slog.Any("error", err))
	}
}
