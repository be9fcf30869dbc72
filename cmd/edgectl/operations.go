package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const lookAtOperations = "operations get"

func newOperations(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "operations", Short: "Show or change the settings of the live release's operations"}
	cmd.AddCommand(newOperationsGet(s), newOperationsSet(s), newOperationsRotate(s), newOperationsRevoke(s))
	return cmd
}

func newOperationsGet(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Show the settings", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connect()
			if err != nil {
				return err
			}
			settings, err := api.OperationSettings(ctx)
			if err != nil {
				return err
			}
			return s.printSettings(settings)
		}),
	}
}

func (s *cli) printSettings(settings gen.OperationSettings) error {
	if s.json {
		return s.printJSON(settings)
	}
	rows := [][]string{{"OPERATION", "ACCESS", "OWN KEY", "ACCOUNT"}}
	for _, id := range slices.Sorted(maps.Keys(settings.Operations)) {
		row := settings.Operations[id]
		key := "none"
		if row.APIKeyLastFour != nil {
			key = "…" + *row.APIKeyLastFour
		}
		rows = append(rows, []string{id, string(row.Access), key, orNone(row.ServiceAccountID)})
	}
	err := s.printTable(rows)
	if err != nil {
		return err
	}
	return s.printf("default account %s, revision %d\n", orNone(settings.DefaultServiceAccountID), settings.Revision)
}

func newOperationsSet(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use:   "set FILE",
		Short: "Replace the settings of all operations with those in a file; - is the standard input",
		Long: `FILE is the API's object: {"operations": {"ID": {"access": "inherit|private|api_key|public|disabled"}}}, with a
row for each operation of the live release. "service_account_id" in a row, and "default_service_account_id"
beside "operations", name a service account; left out they stay, null takes them away.`,
		Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			object, err := s.readObject(args[0])
			if err != nil {
				return err
			}
			return s.change(ctx, lookAtOperations, func(ctx context.Context, api *client.Client) error {
				wanted, err := withRevision(object, revision, settingsRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.ReplaceOperationSettings(ctx, wanted)
				if err != nil {
					return err
				}
				return s.printSettings(made)
			})
		}),
	}
	addRevision(cmd, &revision)
	return cmd
}

func newOperationsRotate(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "rotate-key ID", Short: "Give an operation a new API key of its own and print it, once", Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.change(ctx, lookAtOperations, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, settingsRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.RotateOperationKey(ctx, args[0], base)
				if err != nil {
					return err
				}
				return s.printKey(made.APIKey, made)
			})
		}),
	}
	addRevision(cmd, &revision)
	return cmd
}

func newOperationsRevoke(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "revoke-key ID", Short: "Take an operation's own API key away", Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.change(ctx, lookAtOperations, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, settingsRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.RevokeOperationKey(ctx, args[0], base)
				if err != nil {
					return err
				}
				return s.printRevocation(made.Revoked, made)
			})
		}),
	}
	addRevision(cmd, &revision)
	return cmd
}

func settingsRevision(ctx context.Context, api *client.Client) func() (int64, error) {
	return func() (int64, error) {
		now, err := api.OperationSettings(ctx)
		return now.Revision, err
	}
}
