package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
)

func newAudit(s *cli) *cobra.Command {
	query := client.AuditQuery{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what happened, newest first",
		Args:  cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			if query.Limit < 1 || query.Limit > 100 {
				return usageError("--limit must be 1 to 100")
			}
			return s.audit(ctx, query)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&query.Company, "company", false, "all of the company's departments; needs a company admin's token")
	f.StringVar(&query.Action, "action", "", "only this action, such as secrets.put")
	f.StringVar(&query.Resource, "resource", "", "only what happened to the thing of this id")
	f.StringVar(&query.Since, "since", "", "only from this time on (RFC 3339)")
	f.StringVar(&query.Until, "until", "", "only before this time (RFC 3339)")
	f.StringVar(&query.Cursor, "cursor", "", "the page that begins here")
	f.IntVar(&query.Limit, "limit", 20, "facts on a page, 1 to 100")
	return cmd
}

func (s *cli) audit(ctx context.Context, query client.AuditQuery) error {
	choose := managerOf
	if query.Company {
		choose = companyAdminOf
	}
	api, err := s.connectAs(choose)
	if err != nil {
		return err
	}
	page, err := api.Audit(ctx, query)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(page)
	}
	rows := [][]string{{"TIME", "ACTION", "RESULT", "ACTOR", "DEPARTMENT", "RESOURCE"}}
	for _, fact := range page.Items {
		rows = append(rows, []string{
			stamp(fact.CreatedAt), fact.Action, fact.Result, printable(fact.ActorID), orNone(fact.DepartmentID), fact.ResourceType + " " + fact.ResourceID,
		})
	}
	err = s.printTable(rows)
	if err != nil || page.NextCursor == nil {
		return err
	}
	return s.printf("more: the same command with --cursor %s\n", *page.NextCursor)
}
