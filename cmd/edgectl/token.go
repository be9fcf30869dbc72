package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/auth"
)

type tokenFlags struct {
	keyFile    string
	company    string
	department string
	subject    string
	roles      []string
	ttl        time.Duration
	issuer     string
	audience   string
}

func newToken(s *cli) *cobra.Command {
	var flags tokenFlags
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token from a local key, or show the one of `edgectl dev`",
		Args:  cobra.NoArgs,
		RunE: s.command(func(context.Context, []string) error {
			if flags.keyFile == "" {
				return s.devToken(flags)
			}
			return s.mintToken(flags)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.keyFile, "key-file", "", "Ed25519 private key, PKCS #8 PEM (default: show the token of edgectl dev)")
	f.StringVar(&flags.company, "company", "", "company id")
	f.StringVar(&flags.department, "department", "", "department id")
	f.StringVar(&flags.subject, "subject", "user:local", "who the token is for")
	f.StringSliceVar(&flags.roles, "role", []string{string(auth.DepartmentManager)}, "department_manager, company_admin or platform_admin; may be given several times")
	f.DurationVar(&flags.ttl, "ttl", time.Hour, "how long the token lives")
	f.StringVar(&flags.issuer, "issuer", auth.LocalIssuer, "the token's iss")
	f.StringVar(&flags.audience, "audience", auth.LocalAudience, "the token's aud")
	return cmd
}

func (s *cli) devToken(flags tokenFlags) error {
	r, err := s.readReady()
	if err != nil {
		return err
	}
	if len(flags.roles) != 1 {
		return usageError("give one --role, or --key-file")
	}
	tokens := map[auth.Role]string{
		auth.DepartmentManager: r.ManagerToken, auth.CompanyAdmin: r.CompanyAdminToken, auth.PlatformAdmin: r.PlatformToken,
	}
	token, known := tokens[auth.Role(flags.roles[0])]
	if !known {
		return usageError("the role %q is unknown", flags.roles[0])
	}
	if token == "" {
		return &failure{
			what: "there is no token of `edgectl dev`", where: s.api.devData,
			next: "Start `edgectl dev` in this folder, name its folder with --dev-data, or give --key-file.", exit: exitUsage,
		}
	}
	return s.printToken(token)
}

func (s *cli) mintToken(flags tokenFlags) error {
	key, err := auth.LoadPrivateKey(flags.keyFile)
	if err != nil {
		return usageError("%v", err)
	}
	issuer, err := auth.NewIssuer(key, auth.Expected{Issuer: flags.issuer, Audience: flags.audience, Now: s.now})
	if err != nil {
		return usageError("%v", err)
	}
	principal := auth.Principal{Subject: flags.subject, CompanyID: flags.company, DepartmentID: flags.department}
	for _, role := range flags.roles {
		principal.Roles = append(principal.Roles, auth.Role(role))
	}
	token, err := issuer.Issue(principal, flags.ttl)
	if err != nil {
		return usageError("%v", err)
	}
	return s.printToken(token)
}

func (s *cli) printToken(token string) error {
	if s.json {
		return s.printJSON(map[string]string{"token": token})
	}
	return s.printf("%s\n", token)
}
