// Command api is the control plane: it serves the REST API and the gateway. With
// the in-process transport it also does the deployments and runs the recovery
// sweeps, so that one process is a whole control plane; with a broker it
// publishes them to the deployers (D1). Its settings come from the environment;
// docs/configuration.md lists them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
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
	sight := process.NewSight("api", level, errs)
	system, err := setup.New(ctx, setup.Params{Settings: settings, Registry: sight.Registry, Health: sight.Health, Log: sight.Log})
	if err != nil {
		return err
	}
	var work []process.Work
	if settings.HTTP.Serves(config.Management) { // a gateway alone has no jobs
		work = append(work, func(ctx context.Context) error { system.Sweep(ctx); return nil })
	}
	return sight.Serve(ctx, process.Duties{
		MetricsAddr: settings.HTTP.MetricsAddr,
		Listeners:   []process.Listener{{Name: "api", Addr: settings.HTTP.ListenAddr, Handler: system.Handler}},
		Work:        work,
		Close: func() error {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
			defer cancel()
			return system.Close(closing)
		},
	})
}
