package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/teamsync/edge-workers/pkg/provider/providertest"
	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/test/faults/failpoint"
	"github.com/teamsync/edge-workers/test/faults/wire"
	"github.com/teamsync/edge-workers/transports"
)

// Request is one request at the provider or the release.
type Request struct {
	Method  string // PUT, GET, or PROBE
	Path    string
	Applied bool // it was carried out; a probe: it was answered
}

// outside is the world of one story: the provider, its release, the transport.
// It plays their faults on the wire.
type outside struct {
	server   *httptest.Server
	provider *providertest.Server
	onHit    func() // runs while the process that was hit waits

	mu         sync.Mutex
	armed      string // what happens to the next request
	unreadable bool   // reads of the provider fail
	requests   []Request
	messages   []transports.Message
	hits       []string
	frozen     string
}

func newOutside(onHit func()) *outside {
	o := &outside{provider: providertest.NewServer(), onHit: onHit}
	o.server = httptest.NewServer(o)
	return o
}

// ServeHTTP implements http.Handler.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	switch r.URL.Path {
	case control.HitPath:
		o.hit(string(body))
	case control.FrozenPath:
		o.mu.Lock()
		o.frozen = string(body)
		o.mu.Unlock()
	default:
		o.serve(w, r, body)
	}
}

func (o *outside) hit(value string) {
	o.mu.Lock()
	o.hits = append(o.hits, value)
	how, ofHTTP := strings.CutPrefix(value, failpoint.Wire+":"+string(HTTP)+":")
	if ofHTTP {
		o.armed = how
	}
	o.mu.Unlock()
	o.onHit()
}

// serve carries a request out, or loses it or its answer.
func (o *outside) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	o.mu.Lock()
	how := o.armed
	o.armed = ""
	o.mu.Unlock()
	if how == wire.CutBefore {
		o.note(r, false)
		panic(http.ErrAbortHandler)
	}
	recorder := httptest.NewRecorder()
	o.carryOut(recorder, r, body)
	o.note(r, recorder.Code == http.StatusOK)
	if how == wire.CutAfter {
		panic(http.ErrAbortHandler)
	}
	for name, values := range recorder.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

func (o *outside) carryOut(w http.ResponseWriter, r *http.Request, body []byte) {
	o.mu.Lock()
	unreadable := o.unreadable
	o.mu.Unlock()
	switch {
	case r.URL.Path == control.PublishPath:
		o.accept(w, body)
	case strings.HasPrefix(r.URL.Path, control.ProbePath):
		script, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, control.ProbePath), "/")
		o.provider.ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/scripts/"+script, http.NoBody))
	case unreadable && r.Method == http.MethodGet:
		w.WriteHeader(http.StatusBadGateway)
	default:
		o.provider.ServeHTTP(w, r)
	}
}

func (o *outside) accept(w http.ResponseWriter, body []byte) {
	var message transports.Message
	err := json.Unmarshal(body, &message)
	if err != nil || message.Validate() != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	o.messages = append(o.messages, message)
	o.mu.Unlock()
}

func (o *outside) note(r *http.Request, applied bool) {
	request := Request{Method: r.Method, Path: r.URL.Path, Applied: applied}
	switch {
	case r.URL.Path == control.PublishPath:
		return
	case strings.HasPrefix(r.URL.Path, control.ProbePath):
		request.Method = "PROBE"
	}
	o.mu.Lock()
	o.requests = append(o.requests, request)
	o.mu.Unlock()
}

// take takes all messages that wait.
func (o *outside) take() []transports.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.messages
	o.messages = nil
	return taken
}

// putBack gives a message that was not acknowledged back to the transport.
func (o *outside) putBack(m transports.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = append(o.messages, m)
}

func (o *outside) log() []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Request(nil), o.requests...)
}

func (o *outside) hitCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.hits)
}

// forgetHits leaves the hits so far out of the count.
func (o *outside) forgetHits() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hits = nil
}

// setReadable makes the provider's reads work or fail.
func (o *outside) setReadable(readable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unreadable = !readable
}

// loseNextAnswer arms the wire without a failpoint.
func (o *outside) loseNextAnswer() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = wire.CutAfter
}
