package edgehost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// fenceWait is how long a beginning waits for changes under way, which is less
// than a client waits for its answer.
const fenceWait = 20 * time.Second

// The refusals that have to do with a backup fence.
var (
	errFenced = &refusal{http.StatusLocked, codeFenced, "backup fence active"}
	// errFenceDraining says that the fence is up and that a change which was
	// under way has not ended yet: the caller asks again.
	errFenceDraining = &refusal{http.StatusServiceUnavailable, codeInternal, "the fence is up; a change of a script is still under way: ask again"}
	errOtherFence    = &refusal{http.StatusConflict, codeFenceConflict, "another backup fence is up"}
	errFenceEnded    = &refusal{http.StatusConflict, codeFenceConflict, "this backup fence has ended; begin one with a new id"}
	errFenceID       = &refusal{http.StatusBadRequest, codeBadName, "a fence id has 1 to 64 letters, digits and hyphens"}
)

// fence is the gate that every change of a script passes. While a backup fence
// is up, scripts and their versions stand still; Workers go on serving. It
// outlives the process, because a backup does not end with a restart.
type fence struct {
	store *scriptstore.Store

	mu      sync.Mutex
	state   provider.Fence
	changes int           // under way
	drained chan struct{} // closed when changes reaches 0; nil while nobody waits
}

func openFence(store *scriptstore.Store) (*fence, error) {
	state, err := store.Fence()
	if err != nil {
		return nil, fmt.Errorf("read the backup fence: %w", err)
	}
	return &fence{store: store, state: state}, nil
}

// enter begins a change of a script, or refuses it with errFenced. leave ends
// it.
func (f *fence) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Active != "" {
		return errFenced
	}
	f.changes++
	return nil
}

func (f *fence) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes--
	if f.changes == 0 && f.drained != nil {
		close(f.drained)
		f.drained = nil
	}
}

func (f *fence) get() provider.Fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// gauge is 1 while a fence is up.
func (f *fence) gauge() float64 {
	if f.get().Active == "" {
		return 0
	}
	return 1
}

// begin puts the fence up and answers when no change is under way any more.
// New changes are refused from the start on.
func (f *fence) begin(ctx context.Context, id string) error {
	idle, err := f.raise(id)
	if err != nil {
		return err
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return errFenceDraining
	}
}

// raise makes the fence durable and returns a channel that is closed once no
// change is under way.
func (f *fence) raise(id string) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.state.Active {
	case id:
	case "":
		if f.state.Ended == id { // a request that was late: the backup is over
			return nil, errFenceEnded
		}
		err := f.set(provider.Fence{Active: id, Ended: f.state.Ended})
		if err != nil {
			return nil, err
		}
	default:
		return nil, errOtherFence
	}
	if f.changes == 0 {
		idle := make(chan struct{})
		close(idle)
		return idle, nil
	}
	if f.drained == nil {
		f.drained = make(chan struct{})
	}
	return f.drained, nil
}

// end takes the fence down. An id that was never up counts as ended, so that
// its lost beginning cannot come after its end.
func (f *fence) end(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.state.Active != "" && f.state.Active != id:
		return errOtherFence
	case f.state.Ended == id:
		return nil
	}
	return f.set(provider.Fence{Ended: id})
}

// set writes the state, or finds out which of both is on the disk. Needs mu.
func (f *fence) set(next provider.Fence) error {
	err := f.store.SetFence(next)
	if err == nil {
		f.state = next
		return nil
	}
	found, unread := f.store.Fence()
	if unread == nil {
		f.state = found
	}
	return errors.Join(fmt.Errorf("write the backup fence: %w", err), unread)
}

func (h *Host) getFence(w http.ResponseWriter, _ *http.Request) error {
	writeResult(w, h.fleet.fence.get(), nil)
	return nil
}

func (h *Host) putFence(w http.ResponseWriter, r *http.Request) error {
	return h.changeFence(w, r, "backup fence begun", func(id string) error {
		ctx, cancel := context.WithTimeout(r.Context(), fenceWait)
		defer cancel()
		return h.fleet.fence.begin(ctx, id)
	})
}

func (h *Host) deleteFence(w http.ResponseWriter, r *http.Request) error {
	return h.changeFence(w, r, "backup fence ended", h.fleet.fence.end)
}

func (h *Host) changeFence(w http.ResponseWriter, r *http.Request, done string, change func(id string) error) error {
	id := r.PathValue("id")
	if !scriptstore.ValidFence(id) {
		return errFenceID
	}
	err := change(id)
	if err != nil {
		return err
	}
	h.p.Logger.Info("backup fence changed", "event", done, "fence", id)
	writeResult(w, h.fleet.fence.get(), nil)
	return nil
}
