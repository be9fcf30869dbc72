package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const lookAtConfig = "config get"

func newConfig(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show or change what handlers see as ctx.config"}
	cmd.AddCommand(newConfigGet(s), newConfigSet(s), newConfigClear(s))
	return cmd
}

func newConfigGet(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Print the configuration", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connect()
			if err != nil {
				return err
			}
			config, err := api.RuntimeConfig(ctx)
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(config)
			}
			return s.printf("%s\n", config.Value)
		}),
	}
}

func newConfigSet(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "set FILE", Short: "Replace the configuration with the JSON object in a file; - is the standard input", Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			value, err := s.readObject(args[0])
			if err != nil {
				return err
			}
			return s.change(ctx, lookAtConfig, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, configRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.ReplaceRuntimeConfig(ctx, base, value)
				return s.printConfig(made, err)
			})
		}),
	}
	addRevision(cmd, &revision)
	return cmd
}

func newConfigClear(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "clear", Short: "Empty the configuration", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			return s.change(ctx, lookAtConfig, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, configRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.DeleteRuntimeConfig(ctx, base)
				return s.printConfig(made, err)
			})
		}),
	}
	addRevision(cmd, &revision)
	return cmd
}

func configRevision(ctx context.Context, api *client.Client) func() (int64, error) {
	return func() (int64, error) {
		now, err := api.RuntimeConfig(ctx)
		return now.Revision, err
	}
}

// printConfig tells of a change; the value is the user's own.
func (s *cli) printConfig(made gen.RuntimeConfig, err error) error {
	switch {
	case err != nil:
		return err
	case s.json:
		return s.printJSON(made)
	}
	return s.printf("the configuration is at revision %d, sha256 %s\n", made.Revision, made.Sha256)
}
