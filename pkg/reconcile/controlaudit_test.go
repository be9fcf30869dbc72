package reconcile_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-162 to S1-164, S1-167 to S1-173, S1-192, S1-209, S1-217, S1-218, S1-229: of
// each kind a lost answer is found by the receipt: the row is completed, its one
// fact written with the row's id, and the receipt acknowledged in the same
// round; no mutation is sent and no secret stored anywhere.
func TestControlRecoversEachOperation(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			rows := map[settings.Operation]models.Outbox{}
			for _, operation := range settings.Operations() {
				rows[operation] = s.lost(operation)
			}
			result := s.round()
			if result["claimed"] != 12 || result["completed"] != 12 || result["acked"] != 12 || result["retry"]+result["failed"] != 0 {
				t.Fatalf("%v\n%s", result, s.log)
			}
			seen := s.gateway.requests()
			if len(seen) != 24 || count(seen, "control.receipt.get") != 12 || count(seen, "control.receipt.ack") != 12 {
				t.Errorf("%+v", seen)
			}
			byID := map[string]models.AuditLog{}
			for _, fact := range s.facts() {
				byID[fact.ID] = fact
			}
			for operation, before := range rows {
				row, fact := s.row(before.ID), byID[before.ID]
				if row.Status != models.OutboxCompleted || row.NextAttemptAt != nil || row.LastErrorCode != "" || row.LeaseOwner != "" {
					t.Errorf("%s: %+v", operation, row)
				}
				if fact.Action != string(operation) || fact.ResourceID != s.Worker().ID || fact.ResourceType != "edge_worker" || fact.Result != "succeeded" ||
					fact.ActorID != "user:x" || fact.ActorType != "user" || fact.AuthMethod != "bearer_jwt" || fact.RequestID != "req-x" || !canonical.IsSHA256(fact.Digest) {
					t.Errorf("%s: %+v", operation, fact)
				}
				payload, err := outbox.DecodeControl(row)
				must(t, err)
				digest, err := canonical.JSONDigest("edge-worker-control-audit", map[string]any{"operation": operation, "command": payload.Command})
				must(t, err)
				if fact.Digest != digest || fact.Digest == payload.CommandDigest || strings.Contains(string(payload.Command), "canary") {
					t.Errorf("%s: the digest is not that of what may be stored", operation)
				}
				for _, a := range seen {
					var query map[string]string
					must(t, json.Unmarshal(a.Payload, &query))
					if query["mutationId"] == row.ID && (len(query) != 2 || query["commandDigest"] != payload.CommandDigest || a.MutationID != "" ||
						a.Script != row.ScriptName || a.Generation != s.version.ReleaseGeneration) {
						t.Errorf("%s asked %+v", operation, a)
					}
				}
			}
			if len(byID) != 12 || s.round()["claimed"] != 0 || len(s.facts()) != 12 || len(s.gateway.requests()) != 0 {
				t.Error("another round found something to do")
			}
			everything, err := json.Marshal([]any{s.Facts(), rows, s.log.String()})
			must(t, err)
			if strings.Contains(string(everything), "canary") {
				t.Error("a secret is in a row, a fact or the log")
			}
		})
	})
}

// D12, S1-165: a request that has its answer settles its own row with the very
// fact that the lane would have written; the lane only acknowledges. Once the
// lane has tried the row the request is too late.
func TestControlRequestSettlesFirst(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			complete := func(row models.Outbox) error {
				return s.DB.Tx(t.Context(), func(tx *database.Tx) error { return settings.Complete(tx, row, false) })
			}
			row := s.row(s.lost(settings.SecretsPut).ID)
			must(t, complete(row))
			want, err := settings.Fact(row, false)
			must(t, err)
			facts, result, seen := s.facts(), s.round(), s.gateway.requests()
			if len(facts) != 1 || facts[0].ID != row.ID || facts[0].Digest != want.Digest || result["claimed"] != 0 || result["acked"] != 1 || count(seen, "control.receipt.get") != 0 {
				t.Errorf("%+v, %v, %+v", facts, result, seen)
			}
			s.Exec("UPDATE edge_worker_outbox SET status = 'pending', next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
			if again := s.round(); again["completed"] != 1 || len(s.facts()) != 1 {
				t.Errorf("the lane writes another fact: %v", again)
			}
			late := s.row(s.lost(settings.SecretsDelete).ID)
			s.round()
			if err := complete(late); !errors.Is(err, models.ErrStaleTransition) || len(s.facts()) != 2 {
				t.Errorf("too late: %v, %d facts", err, len(s.facts()))
			}
		})
	})
}

// S1-190: a delete or a revoke that found nothing is a no-op in the audit.
func TestControlNoOps(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			plain := s.gateway.answer
			s.gateway.answer = func(a asked) any {
				answer, _ := plain(a).(map[string]any)
				receipt, ok := answer["receipt"].(map[string]any)
				if ok {
					receipt["result"] = json.RawMessage(commands()[settings.Operation(receipt["operation"].(string))][2])
				}
				return answer
			}
			for _, operation := range []settings.Operation{settings.SecretsDelete, settings.CredentialsDelete, settings.AccessPolicyKeyRevoke, settings.OperationKeyRevoke} {
				row := s.lost(operation)
				result := s.round()
				facts := s.facts()
				if fact := facts[len(facts)-1]; result["completed"] != 1 || fact.ID != row.ID || fact.Action != string(operation)+".noop" {
					t.Errorf("%s: %v, %+v", operation, result, fact)
				}
			}
		})
	})
}

// S1-165, S1-166, S1-218: settling again finds the first fact; other facts under
// the row's id are refused, and neither the row nor the fact changes.
func TestControlFactsDoNotDrift(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			row := s.lost(settings.SecretsPut)
			s.round()
			s.Exec("UPDATE edge_worker_outbox SET status = 'pending', next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
			if result := s.round(); result["completed"] != 1 || len(s.facts()) != 1 {
				t.Errorf("again: %v, %d facts", result, len(s.facts()))
			}
			other := s.lost(settings.SecretsDelete)
			fact, err := settings.Fact(other, false)
			must(t, err)
			fact.Actor.ID = "user:somebody-else"
			must(t, s.DB.Tx(t.Context(), func(tx *database.Tx) error { return audit.Write(tx, fact) }))
			result := s.round()
			got := s.row(other.ID)
			if result["retry"] != 1 || got.Status != models.OutboxPending || len(s.facts()) != 2 || !strings.Contains(s.log.String(), "its audit fact differs") {
				t.Errorf("drift: %v, %+v", result, got)
			}
		})
	})
}

// S1-219, S1-220: no receipt is the end; whatever cannot be used is tried again,
// with no fact, until it can.
func TestControlReceiptsThatDoNotSettle(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			plain := s.gateway.answer
			s.gateway.answer = func(asked) any { return map[string]any{"found": false, "receipt": nil} }
			gone := s.lost(settings.SecretsPut)
			if result := s.round(); result["failed"] != 1 || len(s.facts()) != 0 {
				t.Errorf("not found: %v", result)
			}
			if row := s.row(gone.ID); row.Status != models.OutboxFailed || row.LastErrorCode != "control_receipt_not_found" || row.NextAttemptAt != nil || s.round()["claimed"] != 0 {
				t.Errorf("%+v", row)
			}
			row := s.lost(settings.SecretsPut)
			attempt := 0
			for name, answer := range map[string]func(asked) any{
				"503":      func(asked) any { return nil },
				"nonsense": func(asked) any { return map[string]any{"found": true} },
				"conflict": func(a asked) any {
					answer := s.receipt(a)
					answer["receipt"].(map[string]any)["result"] = map[string]any{"conflict": true, "current": nil}
					return answer
				},
				"another": func(a asked) any {
					answer := s.receipt(a)
					answer["receipt"].(map[string]any)["mutationId"] = gone.ID
					return answer
				},
			} {
				attempt++
				s.gateway.answer = answer
				result := s.round()
				got := s.row(row.ID)
				if result["retry"] != 1 || got.Status != models.OutboxPending || got.LastErrorCode != "control_receipt_unavailable" || got.Attempts != attempt ||
					!got.NextAttemptAt.After(got.UpdatedAt) || len(s.facts()) != 0 || s.round()["claimed"] != 0 {
					t.Errorf("%s: %v, %+v", name, result, got)
				}
				s.due(row.ID)
			}
			s.gateway.answer = plain
			if result := s.round(); result["completed"] != 1 || len(s.facts()) != 1 {
				t.Errorf("the control: %v", result)
			}
		})
	})
}

// S1-192, S1-193, S1-195 to S1-205, S1-233, S1-278, S1-279: rows of a retired
// Worker end in both passes without a request; what is not quite a retirement
// is none.
func TestControlRetiredDepartment(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			retire := func(result string) {
				must(t, s.DB.Tx(t.Context(), func(tx *database.Tx) error {
					return audit.Write(tx, audit.Fact{
						ID: uuid.NewString(), Tenant: s.Tenant, Actor: audit.System("host"), Action: "department.worker_retired",
						ResourceType: "edge_worker", ResourceID: s.Worker().ID, Result: result,
					})
				}))
			}
			live := func(what string) {
				t.Helper()
				s.lost(settings.SecretsPut)
				s.completed(settings.SecretsPut)
				result, seen := s.round(), s.gateway.requests()
				if result["retired"]+result["ack_retired"] != 0 || result["completed"] != 1 || count(seen, "control.receipt.get") != 1 || count(seen, "control.receipt.ack") != 2 {
					t.Errorf("%s: %v, %+v", what, result, seen)
				}
			}
			live("nothing")
			s.Exec("UPDATE departments SET deleted_at = '2026-01-01 00:00:00' WHERE id = ?", s.Tenant.DepartmentID)
			live("only soft-deleted")
			retire("failed")
			live("an unsuccessful retirement")
			retire(audit.Succeeded)
			s.Exec("UPDATE departments SET deleted_at = NULL WHERE id = ?", s.Tenant.DepartmentID)
			live("only the fact")
			if log := s.log.String(); !strings.Contains(log, " retired=0 ") || !strings.Contains(log, " ack_retired=0\"") || strings.Contains(log, "Worker is retired") {
				t.Errorf("log: %s", log)
			}
			s.Exec("UPDATE departments SET deleted_at = '2026-01-01 00:00:00' WHERE id = ?", s.Tenant.DepartmentID)
			facts := len(s.Facts())
			one, two := s.lost(settings.SecretsPut), s.completed(settings.SecretsPut)
			s.log.Reset()
			result, seen := s.round(), s.gateway.requests()
			if result["retired"] != 1 || result["ack_retired"] != 1 || len(seen) != 0 || len(s.Facts()) != facts {
				t.Errorf("%v, %+v", result, seen)
			}
			for id, want := range map[string][3]string{
				one.ID: {"cancelled", "worker_retired", "Worker retired before its control receipt was read"},
				two.ID: {"completed", "worker_retired", "provider receipt retired with its Worker"},
			} {
				row := s.row(id)
				if string(row.Status) != want[0] || row.LastErrorCode != want[1] || *row.LastError != want[2] || row.NextAttemptAt != nil {
					t.Errorf("%+v", row)
				}
			}
			log := s.log.String()
			if strings.Count(log, "level=INFO msg=\"Edge Worker control receipt settled: its Worker is retired\"") != 2 || strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") ||
				!strings.Contains(log, " retired=1 ") || !strings.Contains(log, " ack_retired=1\"") {
				t.Errorf("log: %s", log)
			}
			if again := s.round(); again["claimed"]+again["ack_claimed"] != 0 {
				t.Errorf("a later round: %v", again)
			}
		})
	})
}

// S1-194: a hard-deleted company leaves neither a department row of that id in
// any company nor a Worker row; either one is enough to be not retired.
func TestControlRetiredCompany(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		told(t, p, func(s *story) {
			row := s.lost(settings.SecretsPut)
			other := models.Tenant{CompanyID: "company-" + uuid.NewString()[:8], DepartmentID: "dept-" + uuid.NewString()[:8]}
			s.Provision(other)
			s.Exec("DELETE FROM companies WHERE id = ?", s.Tenant.CompanyID)
			s.Exec("INSERT INTO departments (id, company_id) VALUES (?, ?)", s.Tenant.DepartmentID, other.CompanyID)
			if result := s.round(); result["retired"] != 0 || result["failed"] != 1 || len(s.gateway.requests()) != 0 {
				t.Errorf("a department row of another company: %v", result)
			}
			s.Exec("UPDATE edge_worker_outbox SET status = 'pending', next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
			s.Exec("UPDATE departments SET deleted_at = '2026-01-01 00:00:00' WHERE id = ?", s.Tenant.DepartmentID)
			must(t, s.DB.Tx(t.Context(), func(tx *database.Tx) error {
				return audit.Write(tx, audit.Fact{ID: uuid.NewString(), Tenant: s.Tenant, Actor: audit.System("host"), Action: "department.worker_retired", Result: audit.Succeeded})
			}))
			if result := s.round(); result["retired"] != 0 || result["failed"] != 1 || len(s.gateway.requests()) != 0 {
				t.Errorf("another company's deleted department: %v", result)
			}
			s.Exec("UPDATE edge_worker_outbox SET status = 'pending', next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
			s.Exec("DELETE FROM departments WHERE id = ?", s.Tenant.DepartmentID)
			s.Exec("INSERT INTO edge_workers (id, company_id, department_id, script_name) VALUES (?, ?, ?, 'dw-x')", row.WorkerID, other.CompanyID, other.DepartmentID)
			if result := s.round(); result["retired"] != 0 || result["failed"] != 1 || len(s.gateway.requests()) != 0 {
				t.Errorf("a Worker row: %v", result)
			}
			s.Exec("UPDATE edge_worker_outbox SET status = 'pending', next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
			s.Exec("DELETE FROM edge_workers WHERE id = ?", row.WorkerID)
			if result := s.round(); result["retired"] != 1 || s.row(row.ID).Status != models.OutboxCancelled || len(s.gateway.requests()) != 0 {
				t.Errorf("neither: %v, %+v", result, s.row(row.ID))
			}
		})
	})
}
