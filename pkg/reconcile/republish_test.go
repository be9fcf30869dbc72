package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func republisher(p *plane.Plane, claim *outbox.RecoveryClaim) *reconcile.Republisher {
	return reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: p.Outbox, Mirror: p.Mirror, Publisher: p.Published, Log: p.Log, Claim: claim})
}

func round(t *testing.T, r *reconcile.Republisher) reconcile.Result {
	t.Helper()
	result, err := r.RunOnce(t.Context(), time.Minute)
	must(t, err)
	return result
}

const stalled = "UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00', next_attempt_at = NULL WHERE operation = 'deploy'"

// lost admits a deployment whose message never arrived.
func lost(t *testing.T, p *plane.Plane) models.Outbox {
	t.Helper()
	p.Published.Err = transports.ErrRefused
	row := p.Row(p.Admit(p.Submit("one")).TicketID)
	p.Published.Err = nil
	if len(p.Published.Messages()) != 0 {
		t.Fatal("it was published")
	}
	return row
}

// orphans inserts stalled rows whose Worker is gone.
func orphans(t *testing.T, p *plane.Plane, n int) {
	t.Helper()
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		for range n {
			_, err := p.Outbox.InsertDeploy(tx, outbox.DeployIntent{
				Tenant: p.Tenant, Worker: models.Worker{ID: uuid.NewString()}, VersionID: "v", Location: p.Outbox.Scope().Default(),
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	p.Exec(stalled)
}

// S1-280, S1-287, S2-238: a stalled row is published as it was admitted, after
// submitting was written again; within the grace and the cool-down it is not.
func TestRepublish(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		r := republisher(p, nil)
		if got := round(t, r); len(got) != 0 || len(p.Published.Messages()) != 0 {
			t.Errorf("within the grace: %v", got)
		}
		p.Exec(stalled)
		must(t, p.Redis.Del(t.Context(), "edge-workers:ticket:"+row.TicketID).Err())
		mirrored := int64(0)
		p.Published.Seen = func(transports.Message) {
			mirrored = p.Redis.Exists(context.Background(), "edge-workers:ticket:"+row.TicketID).Val()
		}
		if got := round(t, r); got["claimed"] != 1 || got["published"] != 1 || mirrored != 1 {
			t.Errorf("%v, mirrored %d", got, mirrored)
		}
		payload, err := outbox.DecodeDeploy(row)
		must(t, err)
		want := transports.Deploy(row.ID, row.CompanyID, row.DepartmentID, payload.MessageID)
		if m := p.Published.Messages(); len(m) != 1 || m[0].JobID != want.JobID || m[0].Args[0] != row.ID || m[0].Validate() != nil {
			t.Errorf("%+v", m)
		}
		if got := round(t, r); len(got) != 0 {
			t.Errorf("within the cool-down: %v", got)
		}
		must(t, p.Task(nil).Handle(t.Context(), want)) // and the message does its work
		if p.Row(row.TicketID).Status != models.OutboxCompleted {
			t.Errorf("row %s", p.Row(row.TicketID).Status)
		}
		p.Exec(stalled)
		if got := round(t, r); len(got) != 0 {
			t.Errorf("a settled row: %v", got)
		}
	})
}

// S1-281, S2-237: an ended lease is published again, a living one is not.
func TestRepublishEndedLease(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		p.Exec("UPDATE edge_worker_outbox SET status = 'leased', lease_owner = 'dead:1', lease_expires_at = '2100-01-01 00:00:00' WHERE id = ?", row.ID)
		r := republisher(p, nil)
		if got := round(t, r); len(got) != 0 {
			t.Errorf("alive: %v", got)
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
		if got := round(t, r); got["published"] != 1 || p.Row(row.TicketID).Status != models.OutboxLeased {
			t.Errorf("ended: %v", got)
		}
	})
}

// S1-288, S1-299: a publication that fails leaves the row pending under its mark
// for a later round; without the mirror nothing is published.
func TestRepublishFails(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		r := republisher(p, nil)
		p.Exec(stalled)
		p.Published.Err = errors.New("broker is gone")
		if got := round(t, r); got["unpublished"] != 1 || p.Row(row.TicketID).Status != models.OutboxPending {
			t.Errorf("%v", got)
		}
		p.Published.Err = nil
		live := p.Mirror
		p.Mirror = ticket.NewMirror(plane.DeadRedis(t), p.Log)
		p.Exec(stalled)
		if got := round(t, republisher(p, nil)); got["unpublished"] != 1 || len(p.Published.Messages()) != 0 {
			t.Errorf("without the mirror: %v", got)
		}
		p.Mirror = live
		p.Exec(stalled)
		if got := round(t, r); got["published"] != 1 || len(p.Published.Messages()) != 1 {
			t.Errorf("control: %v", got)
		}
	})
}

// S3-80, S1-295, S1-299, S1-300: orphans end in the round, unpublished and
// unaudited, beside rows that are published; one bad row keeps no other waiting.
func TestRoundOfManyRows(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		lost(t, p)
		orphans(t, p, 52) // more than one batch: a full batch is followed by the next at once
		facts := len(p.Facts())
		got := round(t, republisher(p, nil))
		if got["claimed"] != 53 || got["worker_deleted"] != 52 || got["published"] != 1 || len(p.Published.Messages()) != 1 || len(p.Facts()) != facts {
			t.Errorf("%v, %d messages", got, len(p.Published.Messages()))
		}
		p.Exec(stalled)
		if again := round(t, republisher(p, nil)); again["claimed"] != 1 {
			t.Errorf("a settled orphan was claimed again: %v", again)
		}
	})
}

// A claim without a limit or over it is carried out as clamped and the round
// ends (S1-304).
func TestRoundEndsWithAnyLimit(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		limits := map[int]int{0: 3, 1: 3}
		if p.DB.Read(t.Context()).Name() == "sqlite" {
			limits[1000] = 102 // more than the clamped batch
		}
		for limit, rows := range limits {
			orphans(t, p, rows)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			got, err := republisher(p, &outbox.RecoveryClaim{Cooldown: 300 * time.Second, Limit: limit}).RunOnce(ctx, time.Minute)
			if err != nil || ctx.Err() != nil || got["worker_deleted"] != rows {
				t.Errorf("limit %d: %v, %v, %v", limit, got, err, ctx.Err())
			}
			cancel()
		}
	})
}

// A round that finds its time over stops between batches; the database's
// trouble is the lane's error.
func TestRoundStops(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		orphans(t, p, 3)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := republisher(p, nil).RunOnce(gone, time.Minute); err != nil || len(got) != 0 {
			t.Errorf("no time: %v, %v", got, err)
		}
		if got, err := republisher(p, nil).RunOnce(t.Context(), 0); err != nil || len(got) != 0 {
			t.Errorf("no budget: %v, %v", got, err)
		}
		if got := round(t, republisher(p, nil)); got["worker_deleted"] != 3 {
			t.Errorf("control: %v", got)
		}
		p.Exec("DROP TABLE edge_worker_outbox")
		if _, err := republisher(p, nil).RunOnce(t.Context(), time.Minute); err == nil {
			t.Error("no error without the table")
		}
		if name := republisher(p, nil).Name(); name != "deployments" {
			t.Error(name)
		}
	})
}
