package reconcile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-230, S1-231, S1-232: anything but an acknowledgement leaves the row in the
// queue; it stays completed and its fact is there.
func TestControlAckFailures(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			plain := s.gateway.answer
			done := s.completed(settings.SecretsPut)
			attempt := 0
			for name, answer := range map[string]any{
				"false": map[string]any{"acknowledged": false}, "more": map[string]any{"acknowledged": true, "more": 1}, "empty": map[string]any{}, "503": nil,
			} {
				attempt++
				s.gateway.answer = func(asked) any { return answer }
				result := s.round()
				got := s.row(done.ID)
				if result["ack_retry"] != 1 || got.Status != models.OutboxCompleted || got.LastErrorCode != "control_receipt_ack_failed" || got.Attempts != attempt ||
					!got.NextAttemptAt.After(got.UpdatedAt) || got.NextAttemptAt.Nanosecond() != 0 || s.round()["ack_claimed"] != 0 {
					t.Errorf("%s: %v, %+v", name, result, got)
				}
				s.due(done.ID)
			}
			s.gateway.answer = plain
			s.gateway.requests()
			if result := s.round(); result["acked"] != 1 || s.row(done.ID).NextAttemptAt != nil || count(s.gateway.requests(), "control.receipt.ack") != 1 {
				t.Errorf("the control: %v", result)
			}
		})
	})
}

// A row whose payload cannot be used ends as failed, and in the other pass
// leaves the queue; nothing is asked.
func TestControlInvalidPayloads(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			row, done := s.lost(settings.SecretsPut), s.completed(settings.SecretsPut)
			for name, payload := range map[string]any{
				"none": nil, "no JSON": "{", "a value": strings.Replace(*row.Payload, `"valueDigest"`, `"value":"x","valueDigest"`, 1),
				"another operation": strings.Replace(*row.Payload, `"secrets.put"`, `"secrets.purge"`, 1),
			} {
				s.Exec("UPDATE edge_worker_outbox SET status = 'pending', payload = ?, next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", payload, row.ID)
				result := s.round()
				if got := s.row(row.ID); result["invalid"] != 1 || got.Status != models.OutboxFailed || got.LastErrorCode != "control_payload_invalid" || len(s.facts()) != 0 ||
					count(s.gateway.requests(), "control.receipt.get") != 0 {
					t.Errorf("%s: %v, %+v", name, result, got)
				}
			}
			s.Exec("UPDATE edge_worker_outbox SET payload = '{' , next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", done.ID)
			if result := s.round(); result["ack_failed"] != 1 || s.row(done.ID).NextAttemptAt != nil || len(s.gateway.requests()) != 0 {
				t.Errorf("acknowledgement: %v", result)
			}
		})
	})
}

// S1-325: rounds at once settle each of many rows once, batch after batch.
func TestControlRoundsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			for range outbox.ControlBatch + 3 {
				s.lost(settings.SecretsDelete)
			}
			results := make([]reconcile.Result, 2)
			var group sync.WaitGroup
			for i := range results {
				group.Go(func() {
					var err error
					results[i], err = s.lane.RunOnce(context.Background(), time.Minute)
					s.ok(err)
				})
			}
			group.Wait()
			again := s.round()
			sum := results[0]["completed"] + results[1]["completed"] + again["completed"]
			if sum != outbox.ControlBatch+3 || len(s.facts()) != sum || count(s.gateway.requests(), "control.receipt.get") != sum {
				t.Errorf("%v, %v, %v: %d facts", results[0], results[1], again, len(s.facts()))
			}
		})
	})
}

// A round that is stopped gives back what it has not begun, uncounted and due at
// once, and what it has begun with one attempt; the next round ends them all.
func TestControlStoppedRound(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			const n = 30
			var rows []models.Outbox
			for range n {
				rows = append(rows, s.lost(settings.SecretsDelete))
			}
			ctx, stop := context.WithCancel(context.Background())
			plain := s.gateway.answer
			s.gateway.answer = func(asked) any { stop(); return nil }
			result, err := s.lane.RunOnce(ctx, time.Minute)
			if err != nil || result["claimed"] != n || result["released"] == 0 || result["released"]+result["retry"] != n || len(s.facts()) != 0 {
				t.Fatalf("%v, %v", result, err)
			}
			uncounted := 0
			for _, before := range rows {
				row := s.row(before.ID)
				if row.Status != models.OutboxPending || row.LeaseOwner != "" || row.LeaseExpiresAt != nil {
					t.Errorf("%+v", row)
				}
				if row.Attempts == 0 && row.LastErrorCode == "" && !row.NextAttemptAt.After(row.UpdatedAt) {
					uncounted++
				}
				s.due(row.ID)
			}
			s.gateway.answer = plain
			s.gateway.requests()
			if again := s.round(); uncounted != result["released"] || again["completed"] != n || len(s.facts()) != n {
				t.Errorf("%d uncounted of %v; then %v", uncounted, result, again)
			}
		})
	})
}

// The same in the acknowledgement pass: the rows stay in the queue.
func TestControlStoppedAcknowledgements(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			const n = 30
			var rows []models.Outbox
			for range n {
				rows = append(rows, s.completed(settings.SecretsDelete))
			}
			ctx, stop := context.WithCancel(context.Background())
			plain := s.gateway.answer
			s.gateway.answer = func(asked) any { stop(); return nil }
			result, err := s.lane.RunOnce(ctx, time.Minute)
			if err != nil || result["ack_claimed"] != n || result["ack_released"] == 0 || result["ack_released"]+result["ack_retry"] != n {
				t.Fatalf("%v, %v", result, err)
			}
			for _, before := range rows {
				if row := s.row(before.ID); row.Status != models.OutboxCompleted || row.NextAttemptAt == nil || (row.Attempts == 0) != (row.LastErrorCode == "") {
					t.Errorf("%+v", row)
				}
				s.due(before.ID)
			}
			s.gateway.answer = plain
			if again := s.round(); again["acked"] != n {
				t.Errorf("%v", again)
			}
		})
	})
}

func TestControlAuditorNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := reconcile.NewControlAuditor(reconcile.ControlAuditParams{}); err == nil {
		t.Error("a lane of nothing")
	}
}
