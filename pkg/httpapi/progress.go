package httpapi

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// HeaderProgress asks, in a request, for interim answers about its progress
// (102, RFC 2518 section 10.1), and carries the progress in each of them:
// "packages;done=3;total=27". Many clients take any interim answer but 100 for
// the last one, so none is sent to a client that did not ask.
const (
	HeaderProgress  = "X-Edge-Workers-Progress"
	progressInterim = "interim"
)

// progressEvery keeps a fast registry from filling the line.
const progressEvery = 200 * time.Millisecond

// progress sends interim answers of one request until it is ended.
type progress struct {
	mu     sync.Mutex
	writer http.ResponseWriter
	last   time.Time
	ended  bool
}

// newProgress returns nil when the client did not ask for interim answers, or
// speaks a version of HTTP that has none.
func newProgress(c echo.Context) *progress {
	if c.Request().Header.Get(HeaderProgress) != progressInterim || !c.Request().ProtoAtLeast(1, 1) {
		return nil
	}
	return &progress{writer: c.Response().Writer}
}

// packages tells how many npm packages are there.
func (p *progress) packages(done, total int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || (done < total && time.Since(p.last) < progressEvery) {
		return
	}
	p.last = time.Now()
	p.writer.Header().Set(HeaderProgress, fmt.Sprintf("packages;done=%d;total=%d", done, total))
	p.writer.WriteHeader(http.StatusProcessing)
	p.writer.Header().Del(HeaderProgress)
}

// end lets no interim answer pass any more. It must come before the answer.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
