// Command api is the control plane: it serves the REST API and the gateway, and
// with the in-process transport it also does the deployments and runs the
// recovery sweeps, so that one process is a whole control plane (D1). Its
// settings come from the environment; docs/configuration.md lists them.
package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/setup"
)

// drainLimit is how long deployments may take to end once no listener takes
// requests any more. What still runs then is cancelled and writes nothing; the
// sweep of this or another process goes on with it.
const drainLimit = 60 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	api := process.Server[config.Settings]{Name: "api", Load: load, Run: run}
	os.Exit(api.Start(ctx, os.Args[1:], config.Environment(os.Environ()), os.Stdout, os.Stderr))
}

func load(environment map[string]string) (config.Settings, error) {
	return config.Load(environment, config.API)
}

// run serves until ctx ends, then drains.
func run(ctx context.Context, settings config.Settings, errs io.Writer) error {
	level, err := settings.Log.SlogLevel()
	if err != nil {
		return err
	}
	log, registry := observe.NewLogger(errs, level), observe.NewRegistry("api")
	health := observe.NewHealth(observe.DefaultCheckTimeout, log)
	system, err := setup.New(ctx, setup.Params{Settings: settings, Registry: registry, Health: health, Log: log})
	if err != nil {
		return err
	}
	group, serving := errgroup.WithContext(ctx)
	for _, l := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"api", settings.HTTP.ListenAddr, system.Handler},
		{"metrics", settings.HTTP.MetricsAddr, observe.Admin(health, registry, log)},
	} {
		group.Go(func() error {
			return observe.Serve(serving, observe.ServerParams{Name: l.name, Addr: l.address, Handler: l.handler, Log: log})
		})
	}
	if settings.HTTP.Serves(config.Management) { // a gateway alone has no jobs
		group.Go(func() error { system.Sweep(serving); return nil })
	}
	err = group.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	return errors.Join(err, system.Close(closing))
}
