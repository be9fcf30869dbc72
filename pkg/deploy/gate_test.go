package deploy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-067, S1-068, S2-126, S2-127: a closed gate, whatever has closed it, defers
// the task before its lease with the specification's words; row, version and
// provider are untouched. Through the open gate the same message deploys.
func TestClosedGateDefersTheTask(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
		v, ticketID, m := admitted(t, p, "one")
		before := p.Row(ticketID)
		for _, columns := range []string{"fence_id = 'f'", "fence_id = 'ending:f'", "restore_pending = 1", "state = 'active'", "scope = 'onprem:another'"} {
			p.Exec("UPDATE edge_worker_maintenance SET " + columns)
			err := p.Task(nil).Handle(context.Background(), m)
			if !errors.Is(err, deploy.ErrRetry) || !errors.Is(err, deploy.ErrFenced) || err.Error() != "Edge Workers execution is fenced" {
				t.Errorf("%s: %v", columns, err)
			}
			after := p.Row(ticketID)
			if after.LeaseOwner != "" || after.Status != models.OutboxPending || after.Attempts != 0 || !after.UpdatedAt.Equal(before.UpdatedAt) ||
				p.Version(v.ID).State != models.VersionDeployPending || len(p.Provider.Calls()) != 0 {
				t.Errorf("%s: %+v, %v", columns, after, p.Provider.Calls())
			}
			p.Exec("UPDATE edge_worker_maintenance SET scope = ?, state = 'idle', restore_pending = 0, fence_id = ''", p.Outbox.Scope().Default().Namespace)
		}
		handle(t, p.Task(nil), m)
		checkLive(t, p, v.ID, ticketID)
	})
}

// S1-067: a cloud task never meets the gate, whatever the table holds.
func TestCloudTaskHasNoGate(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Exec("INSERT INTO edge_worker_maintenance (scope, state, restore_pending, fence_id) VALUES (?, 'active', 1, 'f')", plane.Namespace)
		v, ticketID, m := admitted(t, p, "one")
		handle(t, p.Task(nil), m)
		checkLive(t, p, v.ID, ticketID)
	})
}
