package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func newStatus(s *cli) *cobra.Command {
	var ticketID string
	var flags waitFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the department's Worker, or a deployment's ticket",
		Args:  cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if ticketID == "" && flags.wait {
				return usageError("--wait needs --ticket")
			}
			if ticketID == "" {
				return s.workerStatus(ctx)
			}
			return s.ticketStatus(ctx, ticketID, flags)
		}),
	}
	cmd.Flags().StringVar(&ticketID, "ticket", "", "show this ticket instead of the Worker")
	flags.add(cmd)
	return cmd
}

func (s *cli) workerStatus(ctx context.Context) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	worker, err := api.Worker(ctx)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(worker)
	}
	current := "none"
	if worker.CurrentVersionID != nil {
		current = *worker.CurrentVersionID
	}
	return s.printf("worker           %s\nscript name      %s\nstatus           %s\nlatest revision  %d\ncurrent version  %s\nupdated          %s\n",
		worker.ID, worker.ScriptName, worker.Status, worker.LatestRevision, current, stamp(worker.UpdatedAt))
}

func (s *cli) ticketStatus(ctx context.Context, ticketID string, flags waitFlags) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	ticket, err := api.Deployment(ctx, ticketID)
	if err != nil {
		return err
	}
	if flags.wait {
		version, err := api.Version(ctx, ticket.VersionID)
		if err != nil {
			return err
		}
		p := newProgress(s.console)
		defer p.done("stopped")
		return s.follow(ctx, api, p, ticket, version, flags)
	}
	if s.json {
		return s.printJSON(ticket)
	}
	code := "none"
	if ticket.ErrorCode != nil {
		code = *ticket.ErrorCode
	}
	return s.printf("ticket   %s\nversion  %s\nstatus   %s\nerror    %s\n", ticket.TicketID, ticket.VersionID, describe(ticket.Status), code)
}

// describe adds what a status means where its word alone misleads (S2-265).
func describe(status gen.TicketStatus) string {
	if status == gen.TicketStatusUncertain {
		return "uncertain: paused, waiting for the company's repair"
	}
	return string(status)
}
