package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports/inprocess"
)

// S1-003: of the rows that sweeps take up only deployments are published.
func TestOnlyDeploymentsArePublished(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		for range 3 {
			abandoned(t, p)
		}
		p.Exec(stalled)
		due(p)
		b := bucketOf(p)
		round(t, republisher(p, nil))
		if result := clean(t, p, b); result["completed"] != 3 {
			t.Errorf("%v", result)
		}
		if messages := p.Published.Messages(); len(messages) != 1 || messages[0].Args[0] != row.ID {
			t.Errorf("messages %v", messages)
		}
	})
}

// S1-024, S1-039: the loop of one environment leaves the other's rows as they
// are, and the other's own loop takes them up.
func TestEnvironmentsShareNoLoop(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	ours, theirs := plane.New(t, db), plane.NewIn(t, db, outbox.CloudScope("another-environment"))
	row, in := lost(t, ours), abandoned(t, ours)
	ours.Exec(stalled)
	due(ours)
	round(t, republisher(theirs, nil))
	b := bucketOf(theirs)
	if result := clean(t, theirs, b); len(result) != 0 || len(b.Calls()) != 0 || len(theirs.Published.Messages()) != 0 {
		t.Errorf("the other environment: %v", result)
	}
	if got := ours.Row(row.TicketID); got.NextAttemptAt != nil || intent(t, ours, in).Attempts != 0 {
		t.Errorf("touched: %+v", got)
	}
	if result := round(t, republisher(ours, nil)); result["published"] != 1 || clean(t, ours, bucketOf(ours))["completed"] != 1 {
		t.Errorf("at home: %v", result)
	}
}

// S1-294: with the legacy transport the sweep returns when the deployment is
// settled.
func TestLegacyTransportDeploysWithinTheSweep(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		p.Exec(stalled)
		lane := reconcile.NewRepublisher(reconcile.RepublishParams{
			Outbox: p.Outbox, Mirror: p.Mirror, Publisher: inprocess.Inline{Handler: p.Task(nil).Handle}, Log: p.Log,
		})
		result, err := lane.RunOnce(context.Background(), time.Minute)
		if err != nil || result["published"] != 1 || p.Row(row.TicketID).Status != models.OutboxCompleted {
			t.Errorf("%v, %v, the row is %s", result, err, p.Row(row.TicketID).Status)
		}
	})
}

// S1-303: in the cloud the execution gate is always open.
func TestMaintenanceNeverStopsTheCloudsSweep(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		lost(t, p)
		p.Exec(stalled)
		p.Exec("INSERT INTO edge_worker_maintenance (scope, state, fence_id, restore_pending) VALUES ('onprem:000000000000', 'active', 'fence', 1), (?, 'active', 'fence', 1)", plane.Namespace)
		if result := round(t, republisher(p, nil)); result["published"] != 1 {
			t.Errorf("%v", result)
		}
	})
}
