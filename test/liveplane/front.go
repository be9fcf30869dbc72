package liveplane

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	Echo              // the answer comes back; the Worker gets it again with Deliver
	Late              // the connection breaks; the Worker gets it with Deliver
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
	late []func()
	// What came of the mutations: their ids in the order in which the Worker
	// first got them, and its answers.
	order   []string
	answers map[string][]Answer
}

// Answer is what the Worker said, whatever became of it on the way back.
type Answer struct {
	Status int
	Body   []byte
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
	sent, fault := f.note(name, body)
	switch fault {
	case Late:
		f.delay(r, body, sent)
		panic(http.ErrAbortHandler)
	case LoseRequest:
		panic(http.ErrAbortHandler)
	case Echo:
		f.delay(r, body, sent)
	case None, LoseReply, Twice, Garbage:
	}
	answer := f.forward(r.Context(), r, body, sent)
	switch fault {
	case Twice:
		answer = f.forward(r.Context(), r, body, sent)
	case LoseReply:
		panic(http.ErrAbortHandler)
	case Garbage:
		answer = httptest.NewRecorder()
		_, _ = answer.WriteString(`{"operation":`)
	case None, LoseRequest, Echo, Late:
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (f *Front) note(script string, body []byte) (Sent, Fault) {
	sent := Sent{Script: script}
	_ = json.Unmarshal(body, &sent) // a hostile body is passed on all the same
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, sent)
	if f.next == nil {
		return sent, None
	}
	return sent, f.next(sent)
}

// delay keeps a request for Deliver. Its client is gone by then.
func (f *Front) delay(r *http.Request, body []byte, sent Sent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx := context.WithoutCancel(r.Context())
	f.late = append(f.late, func() { f.forward(ctx, r, body, sent) })
}

// Deliver gives the Worker what is still on its way.
func (f *Front) Deliver() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, deliver := range late {
		deliver()
	}
}

// Order lists the mutations as the Worker first got them.
func (f *Front) Order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order)
}

// Answers are the Worker's answers to a mutation.
func (f *Front) Answers(mutationID string) []Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.answers[mutationID])
}

func (f *Front) forward(ctx context.Context, r *http.Request, body []byte, sent Sent) *httptest.ResponseRecorder {
	f.arrive(sent.MutationID)
	copied := r.Clone(ctx)
	copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := httptest.NewRecorder()
	f.host.ServeHTTP(answer, copied)
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent.MutationID != "" {
		f.answers[sent.MutationID] = append(f.answers[sent.MutationID], Answer{answer.Code, answer.Body.Bytes()})
	}
	return answer
}

func (f *Front) arrive(mutationID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mutationID != "" && !slices.Contains(f.order, mutationID) {
		f.order = append(f.order, mutationID)
	}
}
