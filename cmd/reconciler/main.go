// Command reconciler runs the recovery sweeps: it publishes deployments that nobody
// works on, finds out what became of commands whose answer was lost, and deletes
// objects that nothing refers to (S1-004 to S1-006). Any number of them may run.
// With the in-process transport the api does this itself. Its settings come from
// the environment; docs/configuration.md lists them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/setup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reconciler := process.Server[config.Settings]{Name: "reconciler", Load: load, Run: run}
	os.Exit(reconciler.Start(ctx, os.Args[1:], config.Environment(os.Environ()), os.Stdout, os.Stderr))
}

func load(environment map[string]string) (config.Settings, error) {
	return config.Load(environment, config.Reconciler)
}

// run sweeps until ctx ends; the batch in work is ended.
func run(ctx context.Context, settings config.Settings, errs io.Writer) error {
	level, err := settings.Log.SlogLevel()
	if err != nil {
		return err
	}
	sight := process.NewSight("reconciler", level, errs)
	reconciler, err := setup.NewReconciler(ctx, setup.Params{Settings: settings, Registry: sight.Registry, Health: sight.Health, Log: sight.Log})
	if err != nil {
		return err
	}
	return sight.Serve(ctx, process.Duties{
		MetricsAddr: settings.HTTP.MetricsAddr,
		Work:        []process.Work{func(ctx context.Context) error { reconciler.Sweep(ctx); return nil }},
		Close:       reconciler.Close,
	})
}
