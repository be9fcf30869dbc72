package reconcile_test

import (
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-206, S1-207, S1-208: the Worker must be the row's and have a deployed
// version; the generation is that of the version which is deployed now.
func TestControlTarget(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			worker := s.Worker()
			for name, c := range map[string][2]string{
				"another script":  {"UPDATE edge_workers SET script_name = 'dw-other'", "UPDATE edge_workers SET script_name = '" + worker.ScriptName + "'"},
				"no version":      {"UPDATE edge_workers SET current_version_id = ''", "UPDATE edge_workers SET current_version_id = '" + worker.CurrentVersionID + "'"},
				"unknown version": {"UPDATE edge_workers SET current_version_id = 'x'", "UPDATE edge_workers SET current_version_id = '" + worker.CurrentVersionID + "'"},
				"uncertain":       {"UPDATE edge_worker_versions SET state = 'uncertain'", "UPDATE edge_worker_versions SET state = 'deployed'"},
				"superseded":      {"UPDATE edge_worker_versions SET state = 'superseded'", "UPDATE edge_worker_versions SET state = 'deployed'"},
				"another build":   {"UPDATE edge_worker_versions SET runtime_digest = '" + strings.Repeat("0", 64) + "'", "UPDATE edge_worker_versions SET runtime_digest = '" + s.version.RuntimeDigest + "'"},
			} {
				row, done := s.lost(settings.SecretsPut), s.completed(settings.SecretsPut)
				s.Exec(c[0])
				result := s.round()
				got := s.row(row.ID)
				if seen := s.gateway.requests(); len(seen) != 0 || result["retry"] != 1 || result["ack_retry"] != 1 || got.LastErrorCode != "control_receipt_unavailable" ||
					s.row(done.ID).LastErrorCode != "control_receipt_ack_failed" {
					t.Errorf("%s: %v, %+v, %+v", name, result, seen, got)
				}
				s.Exec(c[1])
				s.due(row.ID)
				s.due(done.ID)
				if result := s.round(); result["completed"] != 1 || count(s.gateway.requests(), "control.receipt.get") != 1 {
					t.Errorf("%s, the control: %v", name, result)
				}
			}
			s.lost(settings.SecretsPut)
			next := s.Submit("two")
			s.deployed(next)
			result, seen := s.round(), s.gateway.requests()
			if result["completed"] != 1 || len(seen) != 2 || seen[0].Generation != next.ReleaseGeneration || next.ReleaseGeneration == s.version.ReleaseGeneration {
				t.Errorf("redeployed: %v, %+v", result, seen)
			}
		})
	})
}

// S1-206: another Worker of the tenant's department is not the row's.
func TestControlAnotherWorker(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			row := s.lost(settings.SecretsPut)
			payload := strings.ReplaceAll(*row.Payload, row.WorkerID, "another-worker")
			s.Exec("UPDATE edge_worker_outbox SET worker_id = 'another-worker', payload = ? WHERE id = ?", payload, row.ID)
			if result := s.round(); result["retry"] != 1 || len(s.gateway.requests()) != 0 {
				t.Errorf("%v", result)
			}
		})
	})
}

// S1-221 to S1-225, S1-234 to S1-236: rows without a recorded location follow the
// namespace where the Worker is served, and end when it is another one or not
// known; rows with one wait until the Worker is back there.
func TestControlServingLocation(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			s.Outbox = outbox.New(s.DB, outbox.CloudScope(plane.Namespace, "shared-1"))
			serve := func(kind, namespace string) {
				s.Exec("UPDATE edge_workers SET serving_kind = ?, serving_namespace = ?", kind, namespace)
			}
			for name, c := range map[string][2]string{
				"another namespace": {"legacy", "another"}, "a shared one": {"shared", "shared-1"}, "not known": {"", ""}, "an unknown kind": {"odd", plane.Namespace},
			} {
				serve("legacy", plane.Namespace)
				row, done := s.lost(settings.SecretsPut), s.completed(settings.SecretsPut)
				serve(c[0], c[1])
				result, seen := s.round(), s.gateway.requests()
				got, acked := s.row(row.ID), s.row(done.ID)
				if result["failed"] != 1 || result["ack_failed"] != 1 || len(seen) != 0 || len(s.facts()) != 0 ||
					got.Status != models.OutboxFailed || got.LastErrorCode != "legacy_serving_target_unavailable" || got.NextAttemptAt != nil ||
					acked.Status != models.OutboxCompleted || acked.LastErrorCode != "legacy_serving_target_unavailable" || acked.NextAttemptAt != nil {
					t.Errorf("%s: %v, %+v\n%+v\n%+v", name, result, seen, got, acked)
				}
				if again := s.round(); again["claimed"]+again["ack_claimed"] != 0 {
					t.Errorf("%s: a later round: %v", name, again)
				}
			}
			serve("legacy", plane.Namespace)
			s.lost(settings.SecretsPut)
			if result := s.round(); result["completed"] != 1 || result["acked"] != 1 {
				t.Errorf("equal namespaces: %v", result)
			}
		})
	})
}

// S1-225: a recorded location that has changed is tried again, not failed.
func TestControlRecordedLocation(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Outbox = outbox.New(p.DB, outbox.CloudScope(plane.Namespace, "shared-1", "shared-2"))
		told(t, p, func(s *story) {
			serve := func(kind, namespace string) {
				s.Exec("UPDATE edge_workers SET serving_kind = ?, serving_namespace = ?", kind, namespace)
			}
			serve("shared", "shared-1")
			row, done := s.lost(settings.SecretsPut), s.completed(settings.SecretsPut)
			for _, c := range [][2]string{{"shared", "shared-2"}, {"legacy", "shared-1"}, {"", ""}} {
				serve(c[0], c[1])
				s.due(row.ID)
				s.due(done.ID)
				result, seen := s.round(), s.gateway.requests()
				got := s.row(row.ID)
				if result["retry"] != 1 || result["ack_retry"] != 1 || len(seen) != 0 || got.Status != models.OutboxPending || got.LastErrorCode != "control_receipt_unavailable" {
					t.Errorf("%v: %v, %+v", c, result, got)
				}
			}
			serve("shared", "shared-1")
			s.due(row.ID)
			s.due(done.ID)
			if result := s.round(); result["completed"] != 1 || result["acked"] != 2 {
				t.Errorf("back again: %v", result)
			}
		})
	})
}
