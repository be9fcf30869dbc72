package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Front stands before a provider's server: it records requests, injects
// faults, and alters what reads answer. The suite puts it around the real edge
// host and around the model alike.
type Front struct {
	inner http.Handler

	mu       sync.Mutex
	requests []Request
	fault    func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool
	alter    func(end string, result map[string]any)
}

// Request is one request that arrived.
type Request struct {
	Method, Path, Authorization string
	Upload                      upload // of a PUT
}

// NewFront puts a front before inner.
func NewFront(inner http.Handler) *Front { return &Front{inner: inner} }

// Requests returns and forgets what arrived, of the given method.
func (f *Front) Requests(method string) []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []Request{}
	for _, r := range f.requests {
		if r.Method == method {
			out = append(out, r)
		}
	}
	f.requests = nil
	return out
}

func (f *Front) set(fault func(http.ResponseWriter, *http.Request, http.Handler) bool, alter func(string, map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.alter = fault, alter
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	record := Request{Method: r.Method, Path: r.URL.Path, Authorization: r.Header.Get("Authorization")}
	if r.Method == http.MethodPut {
		copied := r.Clone(r.Context())
		copied.Body = io.NopCloser(bytes.NewReader(raw))
		record.Upload, _ = parseUpload(copied)
	}
	f.mu.Lock()
	f.requests = append(f.requests, record)
	fault, alter := f.fault, f.alter
	f.mu.Unlock()
	if fault != nil && fault(w, r, f.inner) {
		return
	}
	if alter == nil || r.Method != http.MethodGet {
		f.inner.ServeHTTP(w, r)
		return
	}
	f.altered(w, r, alter)
}

// altered changes the result object of a read before it is sent.
func (f *Front) altered(w http.ResponseWriter, r *http.Request, alter func(string, map[string]any)) {
	recorder := httptest.NewRecorder()
	f.inner.ServeHTTP(recorder, r)
	var answer map[string]any
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		panic(http.ErrAbortHandler)
	}
	if result, ok := answer["result"].(map[string]any); ok {
		end, object := "settings", result
		if !strings.HasSuffix(r.URL.Path, "/settings") {
			end = "details"
			object, _ = result["script"].(map[string]any)
		}
		alter(end, object)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(recorder.Code)
	_ = json.NewEncoder(w).Encode(answer)
}

// dropAfter lets the server apply the request and then cuts the connection.
func dropAfter(_ http.ResponseWriter, r *http.Request, inner http.Handler) bool {
	inner.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// answerAfter lets the server apply the request and answers something else.
func answerAfter(status int, body string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		inner.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// answerInstead answers without applying the request.
func answerInstead(status int, body string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// refuseWith answers an error envelope without applying the request.
func refuseWith(status int, code any) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if status >= 300 && status < 400 {
			w.Header().Set("Location", r.URL.Path+"/elsewhere")
		}
		writeError(w, status, code)
		return true
	}
}
