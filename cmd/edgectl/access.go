package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const lookAtAccess = "access get"

func newAccess(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "access", Short: "Show or change who may call the live Worker"}
	cmd.AddCommand(newAccessGet(s), newAccessSet(s), newAccessRotate(s), newAccessRevoke(s))
	return cmd
}

func newAccessGet(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Show the access policy", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connect()
			if err != nil {
				return err
			}
			policy, err := api.AccessPolicy(ctx)
			if err != nil {
				return err
			}
			return s.printPolicy(policy)
		}),
	}
}

func (s *cli) printPolicy(p gen.AccessPolicy) error {
	if s.json {
		return s.printJSON(p)
	}
	key, networks := "none", "any address"
	if p.APIKeyLastFour != nil {
		key = "…" + *p.APIKeyLastFour
	}
	if len(p.IPAllowlist) > 0 {
		networks = strings.Join(p.IPAllowlist, " ")
	}
	return s.printf("mode      %s\nallowed   %s\nAPI key   %s\nrevision  %d\n", p.Mode, networks, key, p.Revision)
}

func newAccessSet(s *cli) *cobra.Command {
	var mode string
	var allow []string
	var revision int64
	cmd := &cobra.Command{
		Use: "set", Short: "Set mode or allow list; what is not given stays", Args: cobra.NoArgs,
	}
	cmd.RunE = s.command(func(ctx context.Context, _ []string) error {
		hasMode, hasAllow := cmd.Flags().Changed("mode"), cmd.Flags().Changed("allow")
		if !hasMode && !hasAllow {
			return usageError("give --mode or --allow")
		}
		return s.change(ctx, lookAtAccess, func(ctx context.Context, api *client.Client) error {
			now, err := api.AccessPolicy(ctx)
			if err != nil {
				return err
			}
			wanted := gen.AccessPolicyRequest{BaseRevision: now.Revision, Mode: now.Mode, IPAllowlist: now.IPAllowlist}
			if revision != unseen {
				wanted.BaseRevision = revision
			}
			if hasMode {
				wanted.Mode = gen.AccessMode(mode)
			}
			if hasAllow {
				wanted.IPAllowlist = append([]string{}, allow...)
			}
			made, err := api.ReplaceAccessPolicy(ctx, wanted)
			if err != nil {
				return err
			}
			return s.printPolicy(made)
		})
	})
	cmd.Flags().StringVar(&mode, "mode", "", "private, api_key or public")
	cmd.Flags().StringSliceVar(&allow, "allow", nil, `networks such as 192.0.2.0/24, that every call must come from; "" for any address`)
	addRevision(cmd, &revision)
	return cmd
}

func newAccessRotate(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "rotate-key", Short: "Give the Worker a new API key and print it, once", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			return s.change(ctx, lookAtAccess, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, policyRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.RotateAccessKey(ctx, base)
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

func newAccessRevoke(s *cli) *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use: "revoke-key", Short: "Take the Worker's API key away", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			return s.change(ctx, lookAtAccess, func(ctx context.Context, api *client.Client) error {
				base, err := revisionOr(revision, policyRevision(ctx, api))
				if err != nil {
					return err
				}
				made, err := api.RevokeAccessKey(ctx, base)
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

func policyRevision(ctx context.Context, api *client.Client) func() (int64, error) {
	return func() (int64, error) {
		now, err := api.AccessPolicy(ctx)
		return now.Revision, err
	}
}

func (s *cli) printRevocation(revoked bool, whole any) error {
	switch {
	case s.json:
		return s.printJSON(whole)
	case revoked:
		return s.printf("the key was revoked\n")
	}
	return s.printf("there was no key\n")
}
