package liveplane

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Fault is what happens to one control command on its way.
type Fault int

// The faults.
const (
	None        Fault = iota
	LoseRequest       // the Worker never sees it; the connection breaks
	LoseReply         // the Worker has answered; the connection breaks
	Twice             // the Worker gets it twice; the second answer comes back
	Garbage           // the Worker has answered; something else comes back
)

// Sent is a control command as it came by.
type Sent struct {
	Script            string          `json:"-"`
	Operation         string          `json:"operation"`
	MutationID        string          `json:"mutationId"`
	ReleaseGeneration string          `json:"releaseGeneration"`
	Payload           json.RawMessage `json:"payload"`
}

// Front stands between the control plane and the edge host. It passes all on,
// remembers the control commands, and does to them what Next says.
type Front struct {
	host http.Handler
	mu   sync.Mutex
	sent []Sent
	next func(Sent) Fault
}

// Next sets what happens to the commands from now on; nil is nothing.
func (f *Front) Next(fault func(Sent) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fault
}

// Once makes the fault happen to the next command of the operation.
func (f *Front) Once(operation string, fault Fault) {
	var done bool
	f.Next(func(s Sent) Fault {
		if done || s.Operation != operation {
			return None
		}
		done = true
		return fault
	})
}

// Sent gives the commands that came since the last call.
func (f *Front) Sent() []Sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// Operations are the names of the commands that came since the last call.
func (f *Front) Operations() []string {
	var names []string
	for _, s := range f.Sent() {
		names = append(names, s.Operation)
	}
	return names
}

// ServeHTTP passes a request on.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, isControl := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/__control")
	if !isControl {
		f.host.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault := f.note(name, body)
	if fault == LoseRequest {
		panic(http.ErrAbortHandler)
	}
	answer := f.forward(r, body)
	if fault == Twice {
		answer = f.forward(r, body)
	}
	switch fault {
	case LoseReply:
		panic(http.ErrAbortHandler)
	case Garbage:
		answer = httptest.NewRecorder()
		_, _ = answer.WriteString(`{"operation":`)
	case None, LoseRequest, Twice:
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (f *Front) note(script string, body []byte) Fault {
	sent := Sent{Script: script}
	_ = json.Unmarshal(body, &sent) // a hostile body is passed on all the same
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, sent)
	if f.next == nil {
		return None
	}
	return f.next(sent)
}

func (f *Front) forward(r *http.Request, body []byte) *httptest.ResponseRecorder {
	copied := r.Clone(r.Context())
	copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := httptest.NewRecorder()
	f.host.ServeHTTP(answer, copied)
	return answer
}
