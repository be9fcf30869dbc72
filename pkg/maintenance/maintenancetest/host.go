// Package maintenancetest is a model of the edge host's backup fence that
// speaks its real protocol and loses what a test tells it to lose.
package maintenancetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// Token opens the model's door.
const Token = "maintenancetest-0123456789abcdef"

// Loss is what becomes of one call.
type Loss int

// The losses.
const (
	None    Loss = iota // it is answered
	Request             // it is not carried out, and not answered
	Answer              // it is carried out, and not answered
)

// Host is the model.
type Host struct {
	URL string

	mu    sync.Mutex
	fence provider.Fence
	calls []string
	next  []Loss
	// Seen, when set, runs before each call is carried out.
	Seen func(method string)
}

// Start serves a host without a fence until the test ends.
func Start(t testing.TB) *Host {
	t.Helper()
	h := &Host{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /edge-host/v1/fence", h.serve(func(string) bool { return true }))
	mux.HandleFunc("PUT /edge-host/v1/fence/{id}", h.serve(h.begin))
	mux.HandleFunc("DELETE /edge-host/v1/fence/{id}", h.serve(h.end))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// Lose decides what becomes of the next calls that change something, in their
// order.
func (h *Host) Lose(losses ...Loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = losses
}

// Set replaces the fence, as a restore of the host's data does.
func (h *Host) Set(fence provider.Fence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fence = fence
}

// Fence is the fence as it is.
func (h *Host) Fence() provider.Fence {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fence
}

// Calls lists the methods of the calls since the last time.
func (h *Host) Calls() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := strings.Join(h.calls, " ")
	h.calls = nil
	return calls
}

// begin and end need mu.
func (h *Host) begin(id string) bool {
	if h.fence.Active == id {
		return true
	}
	if h.fence.Active != "" || h.fence.Ended == id {
		return false
	}
	h.fence.Active = id
	return true
}

func (h *Host) end(id string) bool {
	if h.fence.Active != "" && h.fence.Active != id {
		return false
	}
	h.fence = provider.Fence{Ended: id}
	return true
}

func (h *Host) serve(change func(id string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h.Seen != nil {
			h.Seen(r.Method)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, r.Method)
		loss := None
		if r.Method != http.MethodGet && len(h.next) > 0 {
			loss, h.next = h.next[0], h.next[1:]
		}
		if loss == Request {
			panic(http.ErrAbortHandler)
		}
		taken := r.Header.Get("Authorization") == "Bearer "+Token && change(r.PathValue("id"))
		if loss == Answer {
			panic(http.ErrAbortHandler)
		}
		h.answer(w, taken)
	}
}

func (h *Host) answer(w http.ResponseWriter, taken bool) {
	body := map[string]any{"success": taken, "errors": []any{}, "messages": []string{}, "result": h.fence}
	w.Header().Set("Content-Type", "application/json")
	if !taken {
		w.WriteHeader(http.StatusConflict)
		body["errors"], body["result"] = []any{map[string]any{"code": "edge_host_fence_conflict", "message": "conflict"}}, nil
	}
	_ = json.NewEncoder(w).Encode(body)
}
