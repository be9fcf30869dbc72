package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The default limits of a server. A client that sends or reads slowly, or not
// at all, holds a connection no longer than these.
const (
	DefaultReadHeaderTimeout = 10 * time.Second
	// DefaultReadTimeout leaves a slow line time for an upload of 2 MiB.
	DefaultReadTimeout = 60 * time.Second
	// DefaultWriteTimeout starts with the request's header: it covers the
	// upload, a Worker's 60 s and the answer.
	DefaultWriteTimeout = 180 * time.Second
	DefaultIdleTimeout  = 120 * time.Second
	// DefaultGrace is how long requests in flight may take once the server
	// is stopped; after it their contexts end and connections are closed.
	DefaultGrace = 30 * time.Second

	maxHeaderBytes = 64 << 10
)

// ServerParams says what Serve serves. A zero limit takes its default.
type ServerParams struct {
	// Name stands in log lines and errors: "api", "metrics".
	Name string
	// Addr is host:port. It is not used when Listener is given.
	Addr     string
	Listener net.Listener
	Handler  http.Handler
	// Log receives the server's own lines; nil discards.
	Log *slog.Logger
	// Ready, when not nil, is called once with the address that is listened on.
	Ready func(net.Addr)

	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration
	WriteTimeout      time.Duration
	IdleTimeout       time.Duration
	Grace             time.Duration
}

func (p ServerParams) complete() (ServerParams, error) {
	if p.Handler == nil {
		return p, fmt.Errorf("server %s has no handler", p.Name)
	}
	if p.Listener == nil && p.Addr == "" {
		return p, fmt.Errorf("server %s has no address", p.Name)
	}
	if p.Log == nil {
		p.Log = Discard()
	}
	orDefault(&p.ReadHeaderTimeout, DefaultReadHeaderTimeout)
	orDefault(&p.ReadTimeout, DefaultReadTimeout)
	orDefault(&p.WriteTimeout, DefaultWriteTimeout)
	orDefault(&p.IdleTimeout, DefaultIdleTimeout)
	orDefault(&p.Grace, DefaultGrace)
	return p, nil
}

func orDefault(limit *time.Duration, value time.Duration) {
	if *limit == 0 {
		*limit = value
	}
}

// Serve listens and serves until ctx ends, then takes no new connections and
// lets requests in flight finish within the grace. Their contexts outlive ctx
// and end with the grace. It returns nil after a clean stop; otherwise what
// went wrong: the address could not be had, serving failed, or requests had to
// be cut off.
func Serve(ctx context.Context, params ServerParams) error {
	p, err := params.complete()
	if err != nil {
		return err
	}
	listener := p.Listener
	if listener == nil {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", p.Addr)
		if err != nil {
			return fmt.Errorf("server %s: listen on %s: %w", p.Name, p.Addr, err)
		}
	}
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := &http.Server{
		Handler:           p.Handler,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(p.Log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: p.ReadHeaderTimeout,
		ReadTimeout:       p.ReadTimeout,
		WriteTimeout:      p.WriteTimeout,
		IdleTimeout:       p.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	p.Log.InfoContext(ctx, "server listens", slog.String("server", p.Name), slog.String("address", listener.Addr().String()))
	if p.Ready != nil {
		p.Ready(listener.Addr())
	}

	select {
	case err = <-served:
		return fmt.Errorf("server %s: %w", p.Name, err)
	case <-ctx.Done():
	}
	err = stop(requests, server, endRequests, p.Grace)
	ended := <-served
	if !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	if err != nil {
		return fmt.Errorf("server %s: stop: %w", p.Name, err)
	}
	p.Log.InfoContext(requests, "server stopped", slog.String("server", p.Name))
	return nil
}

func stop(requests context.Context, server *http.Server, endRequests func(), grace time.Duration) error {
	ctx, cancel := context.WithTimeout(requests, grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	endRequests()
	return errors.Join(fmt.Errorf("requests were cut off after %s: %w", grace, err), server.Close())
}
