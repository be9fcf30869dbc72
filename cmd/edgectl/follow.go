package main

import (
	"context"
	"errors"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// follow reads a ticket until its end and succeeds only for `completed`.
func (s *cli) follow(ctx context.Context, api *client.Client, p *progress, ticket gen.Ticket, version gen.Version, flags waitFlags) error {
	current := gen.TicketStatus("")
	ended, err := api.Wait(ctx, ticket.TicketID, client.WaitParams{
		ThroughUncertain: flags.throughUncertain,
		Seen: func(seen gen.Ticket) {
			if seen.Status == current {
				return
			}
			current = seen.Status
			p.done("")
			if !client.Ended(current) {
				p.start(string(current))
			}
		},
	})
	if err != nil {
		return s.unfollowed(err, ticket)
	}
	p.done("")
	if s.json {
		err = s.printJSON(deployment{version, ended})
	} else if ended.Status == gen.TicketStatusCompleted {
		err = s.printf("completed: version %s, revision %d, is live (%s)\n", version.ID, version.Revision, p.total())
	}
	if err != nil {
		return err
	}
	return s.outcome(ctx, api, ended)
}

// unfollowed says that the deployment goes on without us.
func (s *cli) unfollowed(err error, ticket gen.Ticket) error {
	f := s.explain(err)
	if errors.Is(err, context.Canceled) {
		f.what = "interrupted; the deployment goes on"
	} else {
		f.what = "the deployment can no longer be followed: " + f.what
	}
	if f.where == "" {
		f.where = "ticket " + ticket.TicketID
	}
	f.next = "Follow it again with `edgectl status --ticket " + ticket.TicketID + " --wait`."
	return f
}

// outcome gives nil for a completed ticket and explains every other one.
func (s *cli) outcome(ctx context.Context, api *client.Client, ticket gen.Ticket) error {
	code := ""
	if ticket.ErrorCode != nil {
		code = *ticket.ErrorCode
	}
	where := "ticket " + ticket.TicketID + ", version " + ticket.VersionID
	switch ticket.Status { //nolint:exhaustive // Wait returns no other status than these and failed
	case gen.TicketStatusCompleted:
		return nil
	case gen.TicketStatusUncertain:
		return &failure{
			what: "the deployment is paused and waits for the company's repair: it is not known whether the release went live" +
				withCode(code) + ". Until then the Worker answers nothing", where: where, code: code, exit: exitUncertain,
			next: "Ask a company admin to repair the department's Worker. Wait for that with `edgectl status --ticket " +
				ticket.TicketID + " --wait --wait-uncertain`.",
		}
	case gen.TicketStatusCancelled:
		return &failure{what: "the deployment was cancelled" + withCode(code), where: where, code: code, exit: exitFailed}
	}
	next, ok := codeSteps[code]
	if !ok {
		next = "Correct the cause, submit the project again and deploy the new version."
	}
	return &failure{what: "the deployment failed" + withCode(code) + s.versionError(ctx, api, ticket), where: where, next: next, code: code, exit: exitFailed}
}

func withCode(code string) string {
	if code == "" {
		return ""
	}
	return " (" + code + ")"
}

// versionError gives what the version's row says of a failure, where it can
// be read.
func (s *cli) versionError(ctx context.Context, api *client.Client, ticket gen.Ticket) string {
	version, err := api.Version(ctx, ticket.VersionID)
	if err != nil || version.ErrorMessage == nil || *version.ErrorMessage == "" {
		return ""
	}
	return ": " + *version.ErrorMessage
}
