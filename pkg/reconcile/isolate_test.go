package reconcile_test

import (
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

// S1-283 to S1-286: an invalid payload ends its row in one round without a
// message: uncertain and paused where the provider may have been reached, else
// failed without a pause; a deployed version is never touched.
func TestIsolation(t *testing.T) {
	cases := []struct {
		name    string
		row     string // what is set on the row
		version models.VersionState
		status  models.OutboxStatus
		after   models.VersionState
	}{
		{"never leased", "attempts = 0", models.VersionDeployPending, models.OutboxFailed, models.VersionFailed},
		{"once leased", "attempts = 1", models.VersionDeploying, models.OutboxUncertain, models.VersionUncertain},
		{"once leased and returned", "attempts = 1", models.VersionDeployPending, models.OutboxUncertain, models.VersionUncertain},
		{"an ended lease", "status = 'leased', lease_owner = 'dead:1', lease_expires_at = '2020-01-01 00:00:00'", models.VersionDeploying, models.OutboxUncertain, models.VersionUncertain},
		{"deploying, never counted", "attempts = 0", models.VersionDeploying, models.OutboxUncertain, models.VersionUncertain},
		{"deployed, never leased", "attempts = 0", models.VersionDeployed, models.OutboxFailed, models.VersionDeployed},
		{"deployed, once leased", "attempts = 1", models.VersionDeployed, models.OutboxUncertain, models.VersionDeployed},
	}
	each(t, func(t *testing.T, p *plane.Plane) {
		for _, c := range cases {
			row := lost(t, p)
			p.Exec(stalled)
			p.Exec("UPDATE edge_worker_outbox SET payload = '{', "+c.row+" WHERE id = ?", row.ID)
			p.Exec("UPDATE edge_worker_versions SET state = ? WHERE id = ?", c.version, row.VersionID)
			facts := len(p.Facts())
			if got := round(t, republisher(p, nil)); got["claimed"] != 1 || got["isolated"] != 1 {
				t.Errorf("%s: %v", c.name, got)
			}
			after := p.Row(row.TicketID)
			if after.Status != c.status || after.LastErrorCode != outbox.CodePayloadInvalid || after.LeaseOwner != "" || after.LeaseExpiresAt != nil || after.NextAttemptAt != nil {
				t.Errorf("%s: row %+v", c.name, after)
			}
			if v := p.Version(row.VersionID); v.State != c.after {
				t.Errorf("%s: version %s, want %s", c.name, v.State, c.after)
			}
			if paused := p.Worker().Status == models.WorkerPaused; paused != (c.status == models.OutboxUncertain) {
				t.Errorf("%s: Worker %s", c.name, p.Worker().Status)
			}
			if len(p.Published.Messages()) != 0 || len(p.Facts()) != facts+1 {
				t.Errorf("%s: %d messages, %d facts", c.name, len(p.Published.Messages()), len(p.Facts())-facts)
			}
			p.Exec(stalled)
			if got := round(t, republisher(p, nil)); len(got) != 0 {
				t.Errorf("%s again: %v", c.name, got)
			}
			p.Exec("UPDATE edge_worker_outbox SET status = 'cancelled'") // makes room for the next case
			p.Exec("UPDATE edge_worker_versions SET state = 'superseded'")
			p.Exec("UPDATE edge_workers SET status = 'draft'")
		}
	})
}

// S1-289, S1-293: a definite refusal takes the mark back, so that the next round
// publishes at once; a publisher that was overtaken changes nothing.
func TestRefusal(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := lost(t, p)
		p.Exec(stalled)
		p.Published.Err = transports.ErrRefused
		r := republisher(p, nil)
		if got := round(t, r); got["unpublished"] != 1 {
			t.Errorf("%v", got)
		}
		if after := p.Row(row.TicketID); after.Status != models.OutboxPending || after.NextAttemptAt != nil || after.LastErrorCode != outbox.CodeDispatchRefused {
			t.Errorf("%+v", after)
		}
		for name, columns := range map[string]string{
			"leased": "status = 'leased'", "another owner": "lease_owner = 'other:1'", "another mark": "next_attempt_at = '2100-01-01 00:00:00'",
		} {
			p.Exec(stalled)
			p.Published.Seen = func(transports.Message) {
				p.Exec("UPDATE edge_worker_outbox SET last_error_code = '', " + columns + " WHERE operation = 'deploy'")
			}
			round(t, r)
			if after := p.Row(row.TicketID); after.LastErrorCode != "" || after.NextAttemptAt == nil {
				t.Errorf("%s: %+v", name, after)
			}
			p.Exec("UPDATE edge_worker_outbox SET status = 'pending', lease_owner = '' WHERE operation = 'deploy'")
		}
		p.Published.Err, p.Published.Seen = nil, nil
		p.Exec(stalled)
		if got := round(t, r); got["published"] != 1 {
			t.Errorf("control: %v", got)
		}
	})
}
