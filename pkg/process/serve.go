package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/pkg/observe"
)

// Sight is how a process is seen from outside: its log, its metrics and whether
// it lives and is ready.
type Sight struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Health   *observe.Health
}

// NewSight makes what every process needs before anything else. The log goes to
// errs.
func NewSight(name string, level slog.Level, errs io.Writer) Sight {
	log := observe.NewLogger(errs, level)
	return Sight{Log: log, Registry: observe.NewRegistry(name), Health: observe.NewHealth(observe.DefaultCheckTimeout, log)}
}

// Listener is one server of a process.
type Listener struct {
	Name, Addr string
	Handler    http.Handler
}

// Work is what a process does besides serving. It ends its work in flight once
// ctx has ended, and then returns.
type Work func(ctx context.Context) error

// Duties are what a process does.
type Duties struct {
	// MetricsAddr is where it tells how it is.
	MetricsAddr string
	Listeners   []Listener
	Work        []Work
	// Close is called once all of them have ended, and gives back what they
	// needed.
	Close func() error
}

// Serve does the duties until ctx ends or one of them fails. From the stop on
// the process is not ready; that it lives, and its metrics, are answered until
// it has closed, so that nobody kills it while it drains.
func (s Sight) Serve(ctx context.Context, d Duties) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, s.Health.Stop)
	watching, blind := context.WithCancel(context.WithoutCancel(ctx))
	defer blind()
	var outer errgroup.Group
	outer.Go(func() error {
		defer stop() // a process that nobody can watch does not go on
		return s.listen(watching, Listener{"metrics", d.MetricsAddr, observe.Admin(s.Health, s.Registry, s.Log)})
	})
	outer.Go(func() error {
		defer blind()
		return errors.Join(s.do(ctx, d), d.Close())
	})
	return outer.Wait()
}

func (s Sight) do(ctx context.Context, d Duties) error {
	group, serving := errgroup.WithContext(ctx)
	for _, l := range d.Listeners {
		group.Go(func() error { return s.listen(serving, l) })
	}
	for _, do := range d.Work {
		group.Go(func() error { return do(serving) })
	}
	group.Go(func() error { <-serving.Done(); return nil }) // also when all work has ended
	return group.Wait()
}

func (s Sight) listen(ctx context.Context, l Listener) error {
	return observe.Serve(ctx, observe.ServerParams{Name: l.Name, Addr: l.Addr, Handler: l.Handler, Log: s.Log})
}
