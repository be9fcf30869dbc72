package downgrade

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// event is an upload or a control command, in the order of arrival.
type event struct {
	Operation         string            `json:"operation"` // "PUT" of an upload
	MutationID        string            `json:"mutationId"`
	ReleaseGeneration string            `json:"releaseGeneration"`
	Payload           map[string]string `json:"payload"`
}

func (e event) String() string {
	name := strings.TrimPrefix(e.Operation, "control.")
	if e.Payload["name"] != "" {
		name += ":" + e.Payload["name"]
	}
	return name
}

// loss happens to one command before it is executed, unless it ends the
// connection; forward has it executed.
type loss func(e event, forward func())

// recorder stands before the provider's API and the Workers' control doors.
type recorder struct {
	mu     sync.Mutex
	events []event
	seen   func(event) // at the arrival of each event, before it is executed
	faults map[string]loss
}

// arm sets what is to happen to commands of an operation, each time.
func (r *recorder) arm(operation string, f loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = map[string]loss{operation: f}
}

// look has each event shown at its arrival.
func (r *recorder) look(seen func(event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = seen
}

// disarm ends all faults and looks.
func (r *recorder) disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.seen = nil, nil
}

// The ways to lose an answer: the connection ends.
func lostAfter(_ event, forward func()) { forward(); panic(http.ErrAbortHandler) }
func lostBefore(event, func())          { panic(http.ErrAbortHandler) }

// copied has a copy of the request executed first: the Worker answers the
// request itself with 409 assertion_replayed.
func copied(_ event, forward func()) { forward() }

func (r *recorder) watch(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(http.MaxBytesReader(w, req.Body, 32<<20))
		fresh := func() *http.Request {
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(bytes.NewReader(raw))
			return again
		}
		e := event{Operation: req.Method}
		switch {
		case strings.HasSuffix(req.URL.Path, "/__control"):
			_ = json.Unmarshal(raw, &e)
		case req.Method != http.MethodPut:
			inner.ServeHTTP(w, fresh())
			return
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		seen, fault := r.seen, r.faults[e.Operation]
		r.mu.Unlock()
		if seen != nil {
			seen(e)
		}
		if fault != nil {
			fault(e, func() { inner.ServeHTTP(httptest.NewRecorder(), fresh()) })
		}
		inner.ServeHTTP(w, fresh())
	})
}

// take returns and forgets what arrived.
func (r *recorder) take() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.events
	r.events = nil
	return out
}

func spell(events []event) string {
	names := []string{}
	for _, e := range events {
		names = append(names, e.String())
	}
	return strings.Join(names, " ")
}
