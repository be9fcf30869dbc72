package npm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/fault"
)

const (
	attempts     = 3 // for one package
	maxRedirects = 3 // within the registry's origin
	dialTimeout  = 5 * time.Second
)

// registry fetches tarballs.
type registry struct {
	base    *url.URL
	client  *http.Client
	slots   chan struct{} // the requests that run
	request time.Duration
	idle    time.Duration
	retry   time.Duration
	log     *slog.Logger
}

func newRegistry(base *url.URL, p Params) *registry {
	transport := &http.Transport{
		// The one place below main that follows the environment: companies
		// reach the public registry through a proxy.
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: p.Idle,
		MaxIdleConnsPerHost:   parallel,
		IdleConnTimeout:       30 * time.Second,
		ForceAttemptHTTP2:     true,
		// The digest is that of the bytes as published.
		DisableCompression: true,
	}
	r := &registry{base: base, slots: make(chan struct{}, parallel), request: p.Request, idle: p.Idle, retry: p.Retry, log: p.Log}
	r.client = &http.Client{Transport: transport, CheckRedirect: r.redirect}
	return r
}

// redirect follows a registry within itself only: what it says must not make
// this process ask other hosts.
func (r *registry) redirect(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errRedirect
	}
	if request.URL.Scheme != r.base.Scheme || request.URL.Host != r.base.Host || request.URL.User != nil {
		return errRedirect
	}
	return nil
}

// errRedirect is final: the registry would answer the same again.
var errRedirect = errors.New("the registry redirects to another origin, or too often")

// sources are the registries that lock files may name.
func (r *registry) sources() []source {
	public, err := url.Parse(DefaultRegistry)
	if err != nil || *public == *r.base {
		return []source{{r.base}}
	}
	return []source{{public}, {r.base}}
}

// fetch returns the tarball of a package, verified. A package that the registry
// does not have, or has with other bytes, is a fault of kind Invalid; a registry
// that does not deliver is one of kind Unavailable.
func (r *registry) fetch(ctx context.Context, entry Entry) ([]byte, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pause := r.retry
	for attempt := 1; ; attempt++ {
		content, err := r.attempt(ctx, entry)
		if err == nil {
			return content, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var refused *fault.Error
		if errors.As(err, &refused) {
			return nil, err
		}
		r.log.WarnContext(ctx, "npm registry request failed", "package", entry.String(), "attempt", attempt, "error", err)
		if attempt == attempts || errors.Is(err, errRedirect) {
			return nil, unavailable(entry).Because(err)
		}
		err = wait(ctx, pause)
		if err != nil {
			return nil, err
		}
		pause /= 2
	}
}

// unavailable is the answer for a registry that is slow, away or broken.
func unavailable(entry Entry) *fault.Error {
	return fault.Coded(fault.Unavailable, "npm_registry_unavailable",
		fmt.Sprintf("The npm registry did not deliver %s; try again", entry))
}

// wait pauses, or ends with the context.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// missing are the answers that say that the package is not to be had: asking
// again would change nothing.
var missing = []int{
	http.StatusNotFound, http.StatusGone, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnavailableForLegalReasons,
}

// attempt is one request.
func (r *registry) attempt(ctx context.Context, entry Entry) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.request)
	defer cancel()
	address := *r.base
	address.Path += tarballPath(entry)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Accept", "application/octet-stream")
	request.Header.Set("User-Agent", "edge-workers")
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if slices.Contains(missing, response.StatusCode) {
		return nil, refuse(notFound, entry, "the npm registry does not have %s (it answered %d)", entry, response.StatusCode)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the registry answered %d", response.StatusCode)
	}
	content, err := r.body(response.Body, cancel)
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	if len(content) > MaxTarball {
		return nil, refuse(tooLarge, entry, "%s has more than 16 MiB", entry)
	}
	if !entry.Integrity.Matches(content) {
		return nil, refuse(mismatch, entry, "%s has other bytes in the npm registry than the lock file says: its sha512 does not match", entry)
	}
	return content, nil
}

// body reads at most MaxTarball+1 bytes, and gives up when none come for the
// idle time.
func (r *registry) body(body io.Reader, cancel context.CancelFunc) ([]byte, error) {
	timer := time.AfterFunc(r.idle, cancel)
	defer timer.Stop()
	return io.ReadAll(io.LimitReader(&alive{body, func() { timer.Reset(r.idle) }}, MaxTarball+1))
}

// alive tells of each byte that comes.
type alive struct {
	source io.Reader
	tell   func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.source.Read(p)
	if n > 0 {
		a.tell()
	}
	return n, err
}

// refuse is a 422 about one package.
func refuse(kind string, entry Entry, format string, args ...any) *fault.Error {
	return fault.Refuse(fault.Problem{Type: kind, Loc: []any{LockName, "packages", entry.Path}, Msg: fmt.Sprintf(format, args...)})
}
