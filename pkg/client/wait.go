package client

import (
	"context"
	"time"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const (
	firstPoll = 50 * time.Millisecond
	// slowestPoll is reached after a few polls: a release may be checked for
	// ten minutes (S2-266), and nobody notices two seconds then.
	slowestPoll = 2 * time.Second
	// maxSilence is how many polls in a row may get no answer. With the
	// repetitions of each poll that is more than five minutes of an API that
	// is away, longer than a rolling restart.
	maxSilence = 30
)

// Ended reports whether a ticket can never change again (S2-264). `uncertain`
// is not an end (S2-265).
func Ended(status gen.TicketStatus) bool {
	return status == gen.TicketStatusCompleted || status == gen.TicketStatusFailed || status == gen.TicketStatusCancelled
}

// WaitParams says how to wait for a ticket.
type WaitParams struct {
	// Seen is called with each ticket that was read; nil: nothing is.
	Seen func(gen.Ticket)
	// ThroughUncertain goes on while the ticket is `uncertain`. Without it
	// Wait returns such a ticket, which is then not at its end.
	ThroughUncertain bool
}

// Wait reads a ticket until its end. There is no limit of time but ctx's. It
// fails with the last error when the API stays away, or refuses.
func (c *Client) Wait(ctx context.Context, ticketID string, params WaitParams) (gen.Ticket, error) {
	interval := firstPoll
	silent := 0
	for {
		ticket, err := c.Deployment(ctx, ticketID)
		if err != nil {
			silent++
			if ctx.Err() != nil || !transient(err) || silent == maxSilence {
				return gen.Ticket{}, err
			}
		} else {
			silent = 0
			if params.Seen != nil {
				params.Seen(ticket)
			}
			paused := ticket.Status == gen.TicketStatusUncertain && !params.ThroughUncertain
			if Ended(ticket.Status) || paused {
				return ticket, nil
			}
		}
		err = c.pause(ctx, interval)
		if err != nil {
			return gen.Ticket{}, err
		}
		interval = min(interval*3/2, slowestPoll)
	}
}
