package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
)

const lookAtAccounts = "accounts list"

func newAccounts(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "accounts", Short: "List, set or delete the service accounts that operations act as"}
	cmd.AddCommand(newAccountsList(s), newAccountsSet(s), newAccountsDelete(s))
	return cmd
}

func newAccountsList(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the accounts, without their passwords", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connect()
			if err != nil {
				return err
			}
			list, err := api.ServiceAccounts(ctx)
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(list)
			}
			rows := [][]string{{"ACCOUNT", "UPDATED", "USER NAME"}}
			for _, account := range list.ServiceAccounts {
				rows = append(rows, []string{account.ServiceAccountID, stamp(account.UpdatedAt), printable(account.Username)})
			}
			return s.printTable(rows)
		}),
	}
}

func newAccountsSet(s *cli) *cobra.Command {
	var username, file string
	cmd := &cobra.Command{
		Use:   "set ID --username NAME",
		Short: "Set an account's user name and the password that the standard input holds",
		Args:  cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			if username == "" {
				return usageError("give --username")
			}
			password, err := s.readSecret(file, "password")
			if err != nil {
				return err
			}
			return s.change(ctx, lookAtAccounts, func(ctx context.Context, api *client.Client) error {
				made, err := api.PutCredentials(ctx, args[0], username, password)
				switch {
				case err != nil:
					return err
				case s.json:
					return s.printJSON(made)
				}
				return s.printf("%s is set\n", made.ServiceAccountID)
			})
		}),
	}
	cmd.Flags().StringVar(&username, "username", "", "the account's user name")
	cmd.Flags().StringVar(&file, "from-file", "", "the file with the password (default: the standard input)")
	return cmd
}

func newAccountsDelete(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Delete an account and its credentials", Args: cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.change(ctx, lookAtAccounts, func(ctx context.Context, api *client.Client) error {
				done, err := api.DeleteCredentials(ctx, args[0])
				if err != nil {
					return err
				}
				return s.printDeletion(done.ServiceAccountID, done.Deleted, done)
			})
		}),
	}
}
