package process

import (
	"context"
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

// Serve runs listeners and work until ctx ends or one of them fails. From the
// stop on the process is not ready; that it lives, and its metrics, are
// answered at metricsAddr until the last of them has ended, so that nobody
// kills it while it drains.
func (s Sight) Serve(ctx context.Context, metricsAddr string, listeners []Listener, work ...Work) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, s.Health.Stop)
	watching, blind := context.WithCancel(context.WithoutCancel(ctx))
	defer blind()
	var outer errgroup.Group
	outer.Go(func() error {
		defer stop() // a process that nobody can watch does not go on
		return s.listen(watching, Listener{"metrics", metricsAddr, observe.Admin(s.Health, s.Registry, s.Log)})
	})
	outer.Go(func() error {
		defer blind()
		group, serving := errgroup.WithContext(ctx)
		for _, l := range listeners {
			group.Go(func() error { return s.listen(serving, l) })
		}
		for _, do := range work {
			group.Go(func() error { return do(serving) })
		}
		group.Go(func() error { <-serving.Done(); return nil }) // without listeners and with work that has ended, until the stop
		return group.Wait()
	})
	return outer.Wait()
}

func (s Sight) listen(ctx context.Context, l Listener) error {
	return observe.Serve(ctx, observe.ServerParams{Name: l.Name, Addr: l.Addr, Handler: l.Handler, Log: s.Log})
}
