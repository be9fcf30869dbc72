package deploy_test

import (
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// S2-218 to S2-220, S2-271, S2-272, S2-069: in the cloud a deployment whose
// target is no longer the one that was recorded fails before the fence with
// nothing uploaded, and is uncertain once the version is deploying; admission
// is free again after a failure.
func TestTargetChanged(t *testing.T) {
	t.Parallel()
	moved := func(p *plane.Plane) {
		p.Exec("UPDATE edge_workers SET serving_kind = 'shared' WHERE id = ?", p.Worker().ID)
	}
	replaced := func(p *plane.Plane) {
		p.Exec("UPDATE edge_workers SET current_version_id = 'another' WHERE id = ?", p.Worker().ID)
	}
	unrecorded := func(p *plane.Plane) { // a row from before locations were recorded, and a Worker served elsewhere
		p.Exec(`UPDATE edge_worker_outbox SET payload = JSON_REMOVE(payload, '$.serving_location') WHERE worker_id = ?`, p.Worker().ID)
		p.Exec("UPDATE edge_workers SET serving_namespace = 'elsewhere' WHERE id = ?", p.Worker().ID)
	}
	db := databasetest.MySQL(t)
	for name, c := range map[string]struct {
		change  func(*plane.Plane)
		code    string
		restore func(*plane.Plane)
	}{
		"moved": {moved, "deployment_target_unavailable", func(p *plane.Plane) {
			p.Exec("UPDATE edge_workers SET serving_kind = 'legacy' WHERE id = ?", p.Worker().ID)
		}},
		"replaced": {replaced, "deployment_target_release_changed", func(p *plane.Plane) {
			p.Exec("UPDATE edge_workers SET current_version_id = '' WHERE id = ?", p.Worker().ID)
		}},
		"unrecorded": {unrecorded, "legacy_serving_target_unavailable", func(p *plane.Plane) {
			p.Exec("UPDATE edge_workers SET serving_namespace = ? WHERE id = ?", plane.Namespace, p.Worker().ID)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plane.New(t, db)
			v, ticketID, m := admitted(t, p, "one")
			c.change(p)
			handle(t, p.Task(nil), m)
			if got := observe(p, ticketID, v.ID); got.row != models.OutboxFailed || got.code != c.code || got.version != models.VersionFailed || got.puts != 0 {
				t.Errorf("before the fence: %+v", got)
			}
			c.restore(p)
			v, ticketID, m = admitted(t, p, "two")
			p.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
			c.change(p)
			handle(t, p.Task(nil), m)
			got := observe(p, ticketID, v.ID)
			if name == "unrecorded" { // not looked at: the read-back decides
				c.code = "provider_bundle_mismatch"
			}
			if got.row != models.OutboxUncertain || got.code != c.code || got.worker != models.WorkerPaused || got.puts != 0 {
				t.Errorf("after the fence: %+v", got)
			}
		})
	}
}

// S2-218: none of these checks exists on-prem.
func TestTargetIsNotCheckedOnPrem(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
		v, ticketID, m := admitted(t, p, "one")
		p.Exec("UPDATE edge_workers SET serving_kind = 'shared' WHERE id = ?", p.Worker().ID)
		handle(t, p.Task(nil), m)
		checkLive(t, p, v.ID, ticketID)
	})
}
