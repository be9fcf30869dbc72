// Command edgehost is the on-prem edge host: it takes releases through its
// script API and runs each Worker in a workerd process of its own. Its settings
// come from the environment; docs/configuration.md lists them (groups Host and
// Log).
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/egress"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/pkg/process"
)

// closeLimit is how long Workers may take to end once no listener takes
// requests any more; what still runs then is killed.
const closeLimit = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	host := process.Server[config.HostSettings]{Name: "edgehost", About: " workerd " + workerd.Version, Load: config.LoadHost, Run: run}
	os.Exit(host.Start(ctx, os.Args[1:], config.Environment(os.Environ()), os.Stdout, os.Stderr))
}

// run opens the host and serves until ctx ends, then stops every Worker.
func run(ctx context.Context, settings config.HostSettings, errs io.Writer) error {
	level, levelErr := settings.Log.SlogLevel()
	ranges, rangesErr := settings.Host.Allowed()
	binary, err := workerd.Find(settings.Host.Workerd)
	err = errors.Join(levelErr, rangesErr, err)
	if err != nil {
		return err
	}
	sight := process.NewSight("edgehost", level, errs)
	params := edgehost.Params{
		DataDir: settings.Host.DataDir, Workerd: binary, Token: settings.Host.APIToken.Reveal(),
		Egress: egress.Policy{Allow: ranges}, Logger: sight.Log, Registerer: sight.Registry,
	}
	if settings.Host.Isolated() {
		params.Isolation = &edgehost.Isolation{}
	}
	host, err := edgehost.New(params)
	if err != nil {
		return err
	}
	sight.Health.Add("data folder", func(context.Context) error { _, err := host.Capacity(); return err })
	return sight.Serve(ctx, process.Duties{
		MetricsAddr: settings.Host.MetricsAddr,
		Listeners: []process.Listener{
			{Name: "script API", Addr: settings.Host.APIAddr, Handler: host.ControlHandler()},
			{Name: "dispatch", Addr: settings.Host.DispatchAddr, Handler: host.DispatchHandler()},
		},
		Close: func() error {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
			defer cancel()
			return host.Close(closing)
		},
	})
}
