// Command deployer does deployments: it takes them from the broker one at a time,
// or, under AWS Batch, does the one that its command line names. Its settings come
// from the environment; docs/configuration.md lists them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/setup"
	"github.com/teamsync/edge-workers/transports/batch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var args []string
	deployer := process.Server[config.Settings]{
		Name: "deployer", Args: &args,
		Load: func(environment map[string]string) (config.Settings, error) { return load(environment, args) },
		Run: func(ctx context.Context, settings config.Settings, errs io.Writer) error {
			return run(ctx, settings, args, errs)
		},
	}
	os.Exit(deployer.Start(ctx, os.Args[1:], config.Environment(os.Environ()), os.Stdout, os.Stderr))
}

// runCommand is the first argument of a job of Batch; the four ids of its
// deployment follow.
const runCommand = "run"

// load also checks that a job has its deployment, and nobody else has one.
func load(environment map[string]string, args []string) (config.Settings, error) {
	settings, err := config.Load(environment, config.Deployer)
	if err != nil {
		return settings, err
	}
	ofBatch := settings.Transport.Type == config.BatchBroker
	switch {
	case len(args) > 0 && args[0] != runCommand:
		return settings, errors.New("the one command is: deployer run OUTBOX_ID COMPANY_ID DEPARTMENT_ID MESSAGE_ID")
	case ofBatch && len(args) == 0:
		return settings, errors.New("DEFAULT_BACKGROUND_WORKER_TYPE is batch: the job definition's command is deployer run OUTBOX_ID COMPANY_ID DEPARTMENT_ID MESSAGE_ID")
	case !ofBatch && len(args) > 0:
		return settings, fmt.Errorf("deployer run is for batch: with %s deployments come from the broker", settings.Transport.Type)
	}
	return settings, nil
}

// run consumes until ctx ends, then drains (S1-258 to S1-260). A job of Batch
// ends by itself.
func run(ctx context.Context, settings config.Settings, args []string, errs io.Writer) error {
	level, err := settings.Log.SlogLevel()
	if err != nil {
		return err
	}
	sight := process.NewSight("deployer", level, errs)
	deployer, err := setup.NewDeployer(ctx, setup.Params{Settings: settings, Registry: sight.Registry, Health: sight.Health, Log: sight.Log})
	if err != nil {
		return err
	}
	if deployer.Consumer == nil {
		code := batch.Run(ctx, deployer.Receiver, settings.Transport.DrainLimit(), args[1:])
		return errors.Join(deployer.Close(), process.Exit(code))
	}
	return sight.Serve(ctx, process.Duties{
		MetricsAddr: settings.HTTP.MetricsAddr,
		Work:        []process.Work{deployer.Consumer.Consume},
		Close:       deployer.Close,
	})
}
