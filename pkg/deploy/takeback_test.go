package deploy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

// dies runs the message in a process that ends in its upload: before the
// provider applied it, or after.
func dies(t *testing.T, p *plane.Plane, m transports.Message, applied bool) {
	t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	stop := func(provider.Release) error { kill(); return context.Canceled }
	if applied {
		p.Provider.After = stop
	} else {
		p.Provider.OnUpload = stop
	}
	err := p.Task(func(d *deploy.Params) { d.Owner = "dead" }).Handle(ctx, m)
	if err == nil {
		t.Fatal("the dead process acknowledged")
	}
	p.Provider.After, p.Provider.OnUpload = nil, nil
}

// S2-013, S2-202: what a dead owner provably did not upload is withdrawn and
// uploaded by the next run; what it did upload, cannot be read, or belongs to
// a living owner is left to the GET-only run.
func TestTakeBack(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		take := func() int {
			t.Helper()
			n, err := p.Task(nil).TakeBack(context.Background(), "dead")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		first, ticketID, m := admitted(t, p, "one")
		dies(t, p, m, false)
		p.Exec("UPDATE edge_worker_outbox SET lease_owner = 'alive:1' WHERE ticket_id = ?", ticketID)
		if n := take(); n != 0 {
			t.Errorf("took %d of a living owner", n)
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_owner = 'dead:1' WHERE ticket_id = ?", ticketID)
		p.Provider.OnReadBack = func(provider.Release) error { return &provider.UnreadableError{Cause: errors.New("away")} }
		if n := take(); n != 0 || p.Version(first.ID).State != models.VersionDeploying {
			t.Errorf("took %d that could not be read", n)
		}
		p.Provider.OnReadBack = nil
		if n := take(); n != 1 {
			t.Fatalf("took %d", n)
		}
		if row := p.Row(ticketID); row.Status != models.OutboxPending || p.Version(first.ID).State != models.VersionDeployPending || p.Worker().Status != models.WorkerDraft {
			t.Errorf("row %s, version %s, Worker %s", row.Status, p.Version(first.ID).State, p.Worker().Status)
		}
		handle(t, p.Task(nil), m)
		checkLive(t, p, first.ID, ticketID)

		second, ticketID, m := admitted(t, p, "two")
		dies(t, p, m, true)
		if n := take(); n != 0 || p.Version(second.ID).State != models.VersionDeploying {
			t.Errorf("took %d that was applied", n)
		}
		if _, err := p.Outbox.EndLeases(context.Background(), "dead"); err != nil {
			t.Fatal(err)
		}
		puts := p.Provider.Puts()
		handle(t, p.Task(nil), m)
		if p.Provider.Puts() != puts {
			t.Error("an applied release was uploaded again")
		}
		checkLive(t, p, second.ID, ticketID)
	})
}

// A dead owner's rows of another environment are not looked at.
func TestTakeBackStaysInScope(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, _, m := admitted(t, p, "one")
		dies(t, p, m, false)
		n, err := p.Task(func(d *deploy.Params) { d.Outbox = outbox.New(p.DB, outbox.CloudScope("elsewhere")) }).TakeBack(context.Background(), "dead")
		if err != nil || n != 0 {
			t.Errorf("took %d, %v", n, err)
		}
		n, err = p.Task(nil).TakeBack(context.Background(), "dead") // the control
		if err != nil || n != 1 {
			t.Errorf("took %d, %v", n, err)
		}
	})
}
