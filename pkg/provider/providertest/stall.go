package providertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// dropBefore cuts the connection without applying the request.
func dropBefore(http.ResponseWriter, *http.Request, http.Handler) bool {
	panic(http.ErrAbortHandler)
}

// dropWithin applies the request and cuts the connection within the answer.
func dropWithin(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
	inner.ServeHTTP(httptest.NewRecorder(), r)
	begin(w)
	panic(http.ErrAbortHandler)
}

// begin sends the headers and the first bytes of a good answer.
func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"success":true,"errors":[],"messages":[],"result":{"id":"`)
	_ = http.NewResponseController(w).Flush()
}

// stalls lets a server go silent in each phase of its answer. The caller's time
// ends when the server is known to be there, so that the test measures no time.
func (s *suite) stalls(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(http.ResponseWriter, *http.Request, http.Handler)
		applied bool
	}{
		"S2-207 before it is applied": {func(http.ResponseWriter, *http.Request, http.Handler) {}, false},
		"S2-207 before the headers": {func(_ http.ResponseWriter, r *http.Request, inner http.Handler) {
			inner.ServeHTTP(httptest.NewRecorder(), r)
		}, true},
		"S2-207 within the answer": {func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
			inner.ServeHTTP(httptest.NewRecorder(), r)
			begin(w)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			release := s.release("stall " + name)
			s.front.Requests("")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.front.set(func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
				c.before(w, r, inner)
				cancel()
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}, nil)
			err := s.p.Upload(ctx, release)
			s.front.set(nil, nil)
			if got := describe(err); got != "uncertain "+s.Codes.Uncertain {
				t.Errorf("got %q (%v)", got, err)
			}
			if puts := s.front.Requests(http.MethodPut); len(puts) != 1 {
				t.Errorf("%d uploads were sent, want 1", len(puts))
			}
			if back := s.p.ReadBack(t.Context(), release); c.applied != (back == nil) {
				t.Errorf("read-back: %v, applied should be %v", back, c.applied)
			}
		})
	}
}
