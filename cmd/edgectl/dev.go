package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/observe"
)

type devFlags struct {
	data      string
	addr      string
	metrics   string
	workerd   string
	registry  string
	readyFile string
	logLevel  string
}

func newDev(s *cli) *cobra.Command {
	var flags devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole system on this machine, in one process and one folder",
		Long: "Runs API, gateway, deployer, recovery and an edge host on real workerd in this process.\n" +
			"State lives in the data folder and survives whatever ends the process. Stop it with Ctrl-C.",
		Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error { return s.dev(ctx, flags) }),
	}
	f := cmd.Flags()
	f.StringVar(&flags.data, "data", defaultData, "folder of all state")
	f.StringVar(&flags.addr, "addr", "127.0.0.1:8787", "address of the API; port 0 picks a free one")
	f.StringVar(&flags.metrics, "metrics-addr", "127.0.0.1:0", "address of /metrics, /healthz and /readyz")
	f.StringVar(&flags.workerd, "workerd", "", "path of the workerd binary (default: searched for)")
	f.StringVar(&flags.registry, "npm-registry", "", "URL of the npm registry that packages of projects come from (default: npm's own)")
	f.StringVar(&flags.readyFile, "ready-file", "", "also write the addresses and tokens as one JSON object to this file when all is up")
	f.StringVar(&flags.logLevel, "log-level", "warn", "least level of the log lines on standard error: debug, info, warn or error")
	return cmd
}

func (s *cli) dev(ctx context.Context, flags devFlags) error {
	var level slog.Level
	err := level.UnmarshalText([]byte(flags.logLevel))
	if err != nil {
		return usageError("--log-level: %v", err)
	}
	err = devkit.Run(ctx, devkit.Params{
		Data: flags.data, Addr: flags.addr, MetricsAddr: flags.metrics, Workerd: flags.workerd, NPMRegistry: flags.registry,
		Log: observe.NewLogger(s.err, level),
		Ready: func(r devkit.Ready) error {
			if flags.readyFile != "" {
				err := devkit.WriteReady(flags.readyFile, r)
				if err != nil {
					return err
				}
			}
			return s.announce(r)
		},
	})
	if err != nil && ctx.Err() == nil {
		return &failure{what: err.Error(), next: "Mend that and run `edgectl dev` again; the data folder keeps its state.", exit: exitFailed}
	}
	return nil
}

// announce tells people where everything is, with a line that works at once.
func (s *cli) announce(r devkit.Ready) error {
	if s.json {
		return s.printJSON(r)
	}
	return s.printf(`Edge Workers is up.

  API and gateway   %[1]s
  API reference     %[1]s/docs
  Metrics           %[2]s
  Company           %[3]s
  Department        %[4]s

  Manager token
    %[5]s
  Company admin token
    %[6]s
  Platform admin token
    %[7]s

Try it in another terminal:

  edgectl deploy examples/orders --wait
  curl -s -H "Authorization: Bearer %[5]s" %[1]s/worker/versions

Stop with Ctrl-C. State stays in the data folder.
`, r.APIURL, r.MetricsURL, r.CompanyID, r.DepartmentID, r.ManagerToken, r.CompanyAdminToken, r.PlatformAdminToken)
}
