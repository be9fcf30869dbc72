// Package npmtest has an npm registry in process: it serves tarballs that tests
// make, with the faults that they ask for, and writes lock files for them.
package npmtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Fault is how one request for a package goes wrong.
type Fault string

// The faults.
const (
	None        Fault = ""             // it does not
	Silent      Fault = "silent"       // no byte comes, the connection stays open
	Stalled     Fault = "stalled"      // half of the bytes come, then none
	Truncated   Fault = "truncated"    // the connection ends after half of the bytes
	OtherBytes  Fault = "other bytes"  // the answer is whole, and another package
	Missing     Fault = "missing"      // 404
	Forbidden   Fault = "forbidden"    // 403
	Broken      Fault = "broken"       // 500
	Throttled   Fault = "throttled"    // 429
	Elsewhere   Fault = "elsewhere"    // a redirect to another origin
	Within      Fault = "within"       // a redirect to another path of this origin
	Circle      Fault = "circle"       // a redirect to the same path
	Endless     Fault = "endless"      // more bytes than a package may have
	Dropped     Fault = "dropped"      // the connection ends before the answer
	HalfThenEnd Fault = "half the end" // half of the bytes as a whole answer
)

// Registry is one running registry.
type Registry struct {
	URL string

	t         testing.TB
	elsewhere *httptest.Server
	mu        sync.Mutex
	packages  map[string]Package // by path
	faults    map[string][]Fault // by name@version; the last one stays
	asked     map[string]int     // requests by name@version
	total     int
	strayed   int // requests to the other origin
	headers   []http.Header
}

// New starts a registry that ends with the test.
func New(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{t: t, packages: map[string]Package{}, faults: map[string][]Fault{}, asked: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(server.Close)
	r.elsewhere = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.strayed++
	}))
	t.Cleanup(r.elsewhere.Close)
	r.URL = server.URL
	return r
}

// Add publishes packages.
func (r *Registry) Add(packages ...Package) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range packages {
		r.packages[p.path()] = p
	}
}

// Fail sets how the next requests for a package go, one each; the last one stays.
func (r *Registry) Fail(p Package, faults ...Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[p.ID()] = faults
}

// Requests is how many tarballs were asked for.
func (r *Registry) Requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// Asked is how often a package was asked for.
func (r *Registry) Asked(p Package) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[p.ID()]
}

// Strayed is how many requests went to the origin that redirects name.
func (r *Registry) Strayed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.strayed
}

// Headers are those of all requests.
func (r *Registry) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers
}

// next notes a request and says how it goes.
func (r *Registry) next(path string, header http.Header) (Package, Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	r.headers = append(r.headers, header.Clone())
	p, ok := r.packages[strings.TrimPrefix(path, "/moved")]
	if !ok {
		return Package{}, Missing, false
	}
	r.asked[p.ID()]++
	fault := None
	if left := r.faults[p.ID()]; len(left) > 0 && !strings.HasPrefix(path, "/moved") {
		fault = left[0]
		if len(left) > 1 {
			r.faults[p.ID()] = left[1:]
		}
	}
	return p, fault, true
}

func (r *Registry) serve(w http.ResponseWriter, request *http.Request) {
	p, fault, _ := r.next(request.URL.Path, request.Header)
	content := p.Tarball
	if moved, ok := map[Fault]string{
		Elsewhere: r.elsewhere.URL + request.URL.Path, Within: "/moved" + request.URL.Path, Circle: request.URL.Path,
	}[fault]; ok {
		http.Redirect(w, request, moved, http.StatusFound)
		return
	}
	if status, ok := map[Fault]int{Missing: 404, Forbidden: 403, Broken: 500, Throttled: 429}[fault]; ok {
		w.WriteHeader(status)
		return
	}
	half := content[:len(content)/2]
	switch fault {
	case Silent:
		<-request.Context().Done()
	case Stalled:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(half)
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
	case Truncated:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(half)
		panic(http.ErrAbortHandler)
	case Dropped:
		panic(http.ErrAbortHandler)
	case HalfThenEnd:
		_, _ = w.Write(half)
	case OtherBytes:
		_, _ = w.Write(Make("other", "9.9.9", nil).Tarball)
	case Endless:
		block := make([]byte, 1<<20)
		for range 64 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	default:
		_, _ = w.Write(content)
	}
}
