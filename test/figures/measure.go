package figures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// Target is the running system that is measured.
type Target struct {
	API        *client.Client
	MetricsURL string
}

// Submission is how long a project took to be accepted, and the bare work
// beside it.
type Submission struct {
	Whole, Bundling, Writing time.Duration
	Version                  gen.Version
}

// Ratio says how many times as long as the bare work the submission took.
func (s Submission) Ratio() float64 { return s.Whole.Seconds() / (s.Bundling + s.Writing).Seconds() }

// Submit submits the project once and does the bare work right after it, so
// that what slows the machine down slows both.
func (t Target) Submit(ctx context.Context, bare *Bare) (Submission, error) {
	began := time.Now()
	version, err := t.API.SubmitVersion(ctx, bare.Archive, nil)
	if err != nil {
		return Submission{}, err
	}
	s := Submission{Whole: time.Since(began), Version: version}
	s.Bundling, s.Writing, err = bare.Once(ctx)
	return s, err
}

// Submissions is the median of several.
func Submissions(all []Submission) Submission {
	pick := func(of func(Submission) time.Duration) time.Duration {
		durations := make([]time.Duration, len(all))
		for i, s := range all {
			durations[i] = of(s)
		}
		return Median(durations)
	}
	return Submission{
		Whole:    pick(func(s Submission) time.Duration { return s.Whole }),
		Bundling: pick(func(s Submission) time.Duration { return s.Bundling }),
		Writing:  pick(func(s Submission) time.Duration { return s.Writing }),
	}
}

// Deployment is the time from the request for it to a ticket that reads
// completed, and where the task spent it.
type Deployment struct {
	Accepted time.Duration
	Stages   Stages
}

// Deploy deploys a version that was just submitted. Nothing else may be
// deployed meanwhile: the stages are taken from the totals of the process.
func (t Target) Deploy(ctx context.Context, v gen.Version) (Deployment, error) {
	before, err := ReadStages(ctx, t.MetricsURL)
	if err != nil {
		return Deployment{}, err
	}
	began := time.Now()
	ticket, err := t.API.Deploy(ctx, v.ID, v.Revision)
	if err != nil {
		return Deployment{}, err
	}
	ticket, err = t.end(ctx, ticket)
	accepted := time.Since(began)
	if err != nil {
		return Deployment{}, err
	}
	if ticket.Status != gen.TicketStatusCompleted {
		return Deployment{}, fmt.Errorf("the ticket is %s", ticket.Status)
	}
	after, err := ReadStages(ctx, t.MetricsURL)
	if err != nil {
		return Deployment{}, err
	}
	stages := after.Since(before)
	if stages["upload"] <= 0 {
		return Deployment{}, errors.New("the metrics do not show the deployment")
	}
	return Deployment{Accepted: accepted, Stages: stages}, nil
}

// poll is how often a measured ticket is read. The client's own pauses grow to
// many times this and would be most of what is measured.
const poll = 10 * time.Millisecond

// end reads a ticket until it cannot change any more, or waits for a repair.
func (t Target) end(ctx context.Context, ticket gen.Ticket) (gen.Ticket, error) {
	every := time.NewTicker(poll)
	defer every.Stop()
	for !client.Ended(ticket.Status) && ticket.Status != gen.TicketStatusUncertain {
		select {
		case <-ctx.Done():
			return gen.Ticket{}, ctx.Err()
		case <-every.C:
		}
		var err error
		ticket, err = t.API.Deployment(ctx, ticket.TicketID)
		if err != nil {
			return gen.Ticket{}, err
		}
	}
	return ticket, nil
}
