package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/runtime"
)

// newDispatcher makes `edgectl dispatcher`.
func newDispatcher(s *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "dispatcher",
		Short: "Print the dispatcher Worker, the way to the Workers in the cloud",
		Long: `Print the dispatcher Worker: one ES module, to be uploaded to the cloud account
with the dispatch namespace of the Workers bound as DISPATCHER. Its address is
what EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL names.`,
		Args: cobra.NoArgs,
		RunE: s.command(func(context.Context, []string) error { return s.printf("%s", runtime.Dispatcher()) }),
	}
}
