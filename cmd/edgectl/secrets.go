package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
)

const lookAtSecrets = "secrets list"

func newSecrets(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "secrets", Short: "List, set or delete the live Worker's secrets"}
	cmd.AddCommand(newSecretsList(s), newSecretsSet(s), newSecretsDelete(s))
	return cmd
}

func newSecretsList(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the secrets, without their values", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connect()
			if err != nil {
				return err
			}
			list, err := api.Secrets(ctx)
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(list)
			}
			rows := [][]string{{"NAME", "UPDATED", "SHA256"}}
			for _, secret := range list.Secrets {
				rows = append(rows, []string{secret.Name, stamp(secret.UpdatedAt), secret.Sha256})
			}
			return s.printTable(rows)
		}),
	}
}

func newSecretsSet(s *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a secret to what the standard input or a file holds",
		Long:  "The value is never an argument: other users of a machine can read a command line.\nThe line break at the end of the standard input is left out; a file is taken as it is.",
		Args:  cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			value, err := s.readSecret(file, "value")
			if err != nil {
				return err
			}
			return s.change(ctx, lookAtSecrets, func(ctx context.Context, api *client.Client) error {
				made, err := api.PutSecret(ctx, args[0], value)
				switch {
				case err != nil:
					return err
				case s.json:
					return s.printJSON(made)
				}
				return s.printf("%s is set, sha256 %s\n", made.Name, made.Sha256)
			})
		}),
	}
	cmd.Flags().StringVar(&file, "from-file", "", "the file with the value (default: the standard input)")
	return cmd
}

func newSecretsDelete(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a secret", Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.change(ctx, lookAtSecrets, func(ctx context.Context, api *client.Client) error {
				done, err := api.DeleteSecret(ctx, args[0])
				if err != nil {
					return err
				}
				return s.printDeletion(done.Name, done.Deleted, done)
			})
		}),
	}
}

func (s *cli) printDeletion(name string, deleted bool, whole any) error {
	switch {
	case s.json:
		return s.printJSON(whole)
	case deleted:
		return s.printf("%s is deleted\n", name)
	}
	return s.printf("there was no %s\n", name)
}
