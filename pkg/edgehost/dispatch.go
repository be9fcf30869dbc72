package edgehost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dispatcher is the data plane: it forwards a request to the script's process
// with the script's name taken off the path. It checks no signature; the
// bundle does.
type dispatcher struct{ fleet *fleet }

var operationPattern = regexp.MustCompile(`\A[a-z][a-z0-9_.-]{0,63}\z`)

// The headers that reach a Worker. The query string is not forwarded: the
// signed assertion does not cover it.
var forwardedHeaders = []string{"Authorization", "Content-Type", "Accept", "X-Request-Id"}

// trouble is an answer of the host itself on the data plane.
type trouble struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
}

var (
	workerNotFound = &trouble{status: http.StatusNotFound, code: "worker_not_found", message: "Worker not found"}
	workerCrashed  = &trouble{status: http.StatusBadGateway, code: "worker_crashed", message: "Worker stopped while it handled the request"}
	workerTimeout  = &trouble{status: http.StatusGatewayTimeout, code: "worker_timeout", message: "Worker did not answer in time"}
	workerBusy     = &trouble{status: http.StatusServiceUnavailable, code: "worker_busy", message: "Worker has too many requests", retryAfter: time.Second}
	workerUnusable = &trouble{status: http.StatusServiceUnavailable, code: "worker_start_failed", message: "Worker could not be started", retryAfter: time.Second}
	hostBusy       = &trouble{status: http.StatusServiceUnavailable, code: "edge_host_busy", message: "Edge host has no free process", retryAfter: time.Second}
	hostStopping   = &trouble{status: http.StatusServiceUnavailable, code: "edge_host_unavailable", message: "Edge host is stopping", retryAfter: time.Second}
	bodyTooLarge   = &trouble{status: http.StatusRequestEntityTooLarge, code: "body_too_large", message: "Request body is too large"}
)

func (d *dispatcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, ok := route(r.URL)
	if !ok {
		d.count("none", http.StatusNotFound)
		writeDetail(w, http.StatusNotFound, "Not Found")
		return
	}
	status := d.serve(w, r, to.script, to.path)
	d.count(to.door, status)
}

func (d *dispatcher) count(door string, status int) {
	d.fleet.metrics.requests.WithLabelValues(door, strconv.Itoa(status/100)+"xx").Inc()
}

// destination is where a request goes: the script, and the path within it.
type destination struct{ script, door, path string }

// route splits /{script}/__control and /{script}/__invoke/{operation}.
func route(u *url.URL) (destination, bool) {
	if u.RawPath != "" { // escaped characters: no path of ours has any
		return destination{}, false
	}
	name, rest, found := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	operation, isInvoke := strings.CutPrefix(rest, "__invoke/")
	switch {
	case !found || name == "":
		return destination{}, false
	case rest == "__control":
		return destination{name, "control", "/" + rest}, true
	case isInvoke && operationPattern.MatchString(operation):
		return destination{name, "invoke", "/" + rest}, true
	}
	return destination{}, false
}

// serve answers the request and returns the status.
func (d *dispatcher) serve(w http.ResponseWriter, r *http.Request, name, path string) int {
	limits := d.fleet.p.Limits
	if r.ContentLength > limits.MaxBodyBytes {
		return bodyTooLarge.write(w)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limits.RequestTimeout)
	defer cancel()
	worker, err := d.fleet.lookup(name)
	if err != nil {
		return d.explain(name, err).write(w)
	}
	body := http.MaxBytesReader(w, r.Body, limits.MaxBodyBytes)
	for attempt := 0; ; attempt++ {
		inst, err := worker.acquire(ctx)
		if err != nil {
			return d.explain(name, err).write(w)
		}
		resp, err := inst.transport.RoundTrip(outgoing(ctx, r, path, body))
		if err == nil {
			defer worker.release(inst)
			return d.answer(w, resp, limits.MaxResponseBytes)
		}
		worker.release(inst)
		if attempt == 0 && neverSent(err) && inst.awaitEnd(ctx) {
			continue // it died before this request reached it
		}
		return d.failure(ctx, inst, name, err).write(w)
	}
}

func outgoing(ctx context.Context, r *http.Request, path string, body io.ReadCloser) *http.Request {
	out := &http.Request{
		Method: r.Method, URL: &url.URL{Scheme: "http", Host: "worker", Path: path}, Host: "worker",
		Header: http.Header{}, Body: keepOpen{body}, ContentLength: r.ContentLength,
	}
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	for _, name := range forwardedHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	out.Header["User-Agent"] = nil
	return out.WithContext(ctx)
}

// keepOpen leaves the body readable for the second attempt; the server closes
// it in the end.
type keepOpen struct{ io.Reader }

func (keepOpen) Close() error { return nil }

// neverSent reports whether the connection itself failed.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// awaitEnd waits a moment for the end of a process that broke a connection.
func (inst *instance) awaitEnd(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	select {
	case <-inst.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *dispatcher) failure(ctx context.Context, inst *instance, name string, err error) *trouble {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return bodyTooLarge
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return workerTimeout
	}
	// Whoever tries again after this answer must not meet the dying process.
	inst.awaitEnd(ctx)
	d.fleet.logger.Warn("worker request failed", "script", name, "version", inst.version, "error", err.Error())
	return workerCrashed
}

// explain turns a refusal to give a process into an answer.
func (d *dispatcher) explain(name string, err error) *trouble {
	backoff, waits := errors.AsType[*backoffError](err)
	switch {
	case notFound(err):
		return workerNotFound
	case errors.Is(err, errBusy):
		return workerBusy
	case errors.Is(err, errNoRoom):
		return hostBusy
	case errors.Is(err, errClosed):
		return hostStopping
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return workerTimeout
	case waits:
		t := *workerUnusable
		t.retryAfter = backoff.RetryAfter
		return &t
	}
	d.fleet.logger.Error("worker has no process", "script", name, "error", err.Error())
	return workerUnusable
}

// answer streams the response. A response that breaks off is broken off to
// the client as well, never closed as if it were complete.
func (d *dispatcher) answer(w http.ResponseWriter, resp *http.Response, limit int64) int {
	defer resp.Body.Close()
	for _, name := range []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "Proxy-Authenticate"} {
		resp.Header.Del(name)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if err := stream(w, resp, limit); err != nil {
		d.fleet.logger.Warn("worker response broke off", "error", err.Error())
		d.count("broken", http.StatusBadGateway)
		panic(http.ErrAbortHandler)
	}
	return resp.StatusCode
}

func stream(w http.ResponseWriter, resp *http.Response, limit int64) error {
	controller := http.NewResponseController(w)
	size := int64(32 << 10)
	if resp.ContentLength >= 0 { // most answers are short
		size = min(size, resp.ContentLength+1)
	}
	buf := make([]byte, size)
	for total := int64(0); ; {
		n, err := resp.Body.Read(buf)
		total += int64(n)
		if total > limit {
			return fmt.Errorf("response is larger than %d bytes", limit)
		}
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			_ = controller.Flush()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *trouble) write(w http.ResponseWriter) int {
	if t.retryAfter > 0 {
		seconds := int64((t.retryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	// The Worker's own answers never carry it: a caller can tell whose word it is.
	w.Header().Set("X-Edge-Workers-Refusal", "host")
	writeDetail(w, t.status, map[string]string{"code": t.code, "message": t.message})
	return t.status
}

func writeDetail(w http.ResponseWriter, status int, detail any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"detail": detail})
}
