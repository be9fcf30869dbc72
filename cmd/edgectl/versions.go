package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func newVersions(s *cli) *cobra.Command {
	var cursor string
	var limit int
	cmd := &cobra.Command{
		Use:   "versions",
		Short: "List the Worker's versions, newest first",
		Args:  cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			if limit < 1 || limit > 100 {
				return usageError("--limit must be 1 to 100")
			}
			return s.versions(ctx, cursor, limit)
		}),
	}
	cmd.Flags().StringVar(&cursor, "cursor", "", "the page that begins here")
	cmd.Flags().IntVar(&limit, "limit", 20, "versions on a page, 1 to 100")
	return cmd
}

func (s *cli) versions(ctx context.Context, cursor string, limit int) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	page, err := api.Versions(ctx, cursor, limit)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(page)
	}
	var rows strings.Builder
	rows.WriteString("REVISION\tSTATE\tVERSION\tCREATED\tDEPLOYED\tERROR\n")
	for _, version := range page.Items {
		deployed, code := "-", "-"
		if version.DeployedAt != nil {
			deployed = stamp(*version.DeployedAt)
		}
		if version.ErrorCode != nil {
			code = *version.ErrorCode
		}
		columns := []string{strconv.FormatInt(version.Revision, 10), string(version.State), version.ID, stamp(version.CreatedAt), deployed, code}
		rows.WriteString(strings.Join(columns, "\t") + "\n")
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, err = io.WriteString(table, rows.String())
	err = errors.Join(err, table.Flush())
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if page.NextCursor != nil {
		return s.printf("more: edgectl versions --limit %d --cursor %s\n", limit, *page.NextCursor)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
