// Command deployer does deployments: it takes them from the broker one at a time,
// or, under AWS Batch, does the one that its command line names. Its settings come
// from the environment; docs/configuration.md lists them.
package main

import (
	"context"
	"errors"
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
	deployer := process.Server[config.Settings]{Name: "deployer", Load: load, Run: run}
	os.Exit(deployer.Start(ctx, os.Args[1:], config.Environment(os.Environ()), os.Stdout, os.Stderr))
}

func load(environment map[string]string) (config.Settings, error) {
	return config.Load(environment, config.Deployer)
}

// run consumes until ctx ends, then drains (S1-258 to S1-260).
func run(ctx context.Context, settings config.Settings, errs io.Writer) error {
	level, err := settings.Log.SlogLevel()
	if err != nil {
		return err
	}
	sight := process.NewSight("deployer", level, errs)
	deployer, err := setup.NewDeployer(ctx, setup.Params{Settings: settings, Registry: sight.Registry, Health: sight.Health, Log: sight.Log})
	if err != nil {
		return err
	}
	err = sight.Serve(ctx, settings.HTTP.MetricsAddr, nil, deployer.Consumer.Consume)
	return errors.Join(err, deployer.Close())
}
