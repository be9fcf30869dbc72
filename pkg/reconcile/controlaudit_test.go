package reconcile_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/plane"
)

// asked is one control command as it arrived at the gateway.
type asked struct {
	Script     string
	Operation  string          `json:"operation"`
	MutationID string          `json:"mutationId"`
	Generation string          `json:"releaseGeneration"`
	Payload    json.RawMessage `json:"payload"`
}

// controlGateway is a scripted gateway: it answers each command with a result,
// or with a status and no result, and remembers what was asked.
type controlGateway struct {
	*httptest.Server
	mu   sync.Mutex
	seen []asked
	// answer gives the result; nil is 503.
	answer func(asked) any
}

func newControlGateway(t *testing.T) *controlGateway {
	t.Helper()
	g := &controlGateway{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a asked
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &a) != nil {
			t.Errorf("an unreadable command: %s", raw)
		}
		a.Script = strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/__control")
		g.mu.Lock()
		defer g.mu.Unlock()
		g.seen = append(g.seen, a)
		result := g.answer(a)
		if result == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"operation": a.Operation, "releaseGeneration": a.Generation, "result": result})
	}))
	t.Cleanup(g.Close)
	return g
}

// requests gives what was asked since the last call.
func (g *controlGateway) requests() []asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := g.seen
	g.seen = nil
	return seen
}

// story is a plane with a live Worker, a gateway and the lane between them.
type story struct {
	*plane.Plane
	gateway *controlGateway
	lane    *reconcile.ControlAuditor
	version models.Version
	log     *bytes.Buffer
}

func controlStory(t *testing.T, p *plane.Plane) *story {
	t.Helper()
	s := &story{Plane: p, gateway: newControlGateway(t), log: &bytes.Buffer{}, version: p.Submit("one")}
	s.deployed(s.version)
	p.Exec("UPDATE edge_workers SET serving_kind = 'legacy', serving_namespace = ? WHERE id = ?", plane.Namespace, p.Worker().ID)
	s.gateway.answer = func(a asked) any {
		if a.Operation == control.ReceiptAck {
			return map[string]any{"acknowledged": true}
		}
		return s.receipt(a)
	}
	_, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	signer, err := control.NewSigner(private, nil)
	must(t, err)
	client, err := control.NewClient(s.gateway.URL, signer)
	must(t, err)
	s.lane, err = reconcile.NewControlAuditor(reconcile.ControlAuditParams{
		DB: p.DB, Outbox: p.Outbox, Receipts: control.NewReceipts(client, "system:test"), Owner: "sweep",
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	must(t, err)
	return s
}

// deployed makes v the Worker's live version.
func (s *story) deployed(v models.Version) {
	s.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE state = 'deployed'")
	s.Exec("UPDATE edge_worker_versions SET state = 'deployed' WHERE id = ?", v.ID)
	s.Exec("UPDATE edge_workers SET current_version_id = ?, status = 'active' WHERE id = ?", v.ID, v.WorkerID)
}

const secretValue = "canary-secret-value"

// commands are one of each operation with the result of a Worker that applied
// it, and what a revoke or a delete answers that found nothing.
func commands() map[settings.Operation][3]string {
	const at = `"updated_at":"2026-01-02T03:04:05Z"`
	digest := canonical.SHA256([]byte(secretValue))
	generation := strings.Repeat("ab", 32)
	policy := func(revision, key string) string {
		configured := "true"
		if key == "null" {
			configured = "false"
		}
		return `{"api_key_configured":` + configured + `,"api_key_last_four":` + key + `,"ip_allowlist":[],"mode":"private","revision":` + revision + `,` + at + `}`
	}
	table := func(revision string) string {
		return `{"state":"reconciled","revision":` + revision + `,"releaseGeneration":"` + generation + `","default_service_account_id":null,"operations":{},` + at + `}`
	}
	config := `{"valueJson":"{}","sha256":"` + canonical.SHA256([]byte("{}")) + `","revision":4,` + at + `}`
	plain := func(current string) string { return `{"conflict":false,"current":` + current + `}` }
	did := func(what, done, current string) string {
		return `{"conflict":false,"` + what + `":` + done + `,"current":` + current + `}`
	}
	return map[settings.Operation][3]string{
		settings.AccessPolicyReplace:      {`{"baseRevision":3,"mode":"private","ipAllowlist":[]}`, plain(policy("4", "null"))},
		settings.AccessPolicyKeyRotate:    {`{"baseRevision":3,"keyDigest":"` + digest + `","lastFour":"abcd"}`, plain(policy("4", `"abcd"`))},
		settings.AccessPolicyKeyRevoke:    {`{"baseRevision":3}`, did("revoked", "true", policy("4", "null")), did("revoked", "false", policy("3", "null"))},
		settings.RuntimeConfigReplace:     {`{"baseRevision":3,"valueJson":"{}"}`, plain(config)},
		settings.RuntimeConfigDelete:      {`{"baseRevision":3}`, plain(config)},
		settings.OperationSettingsReplace: {`{"baseRevision":3,"releaseGeneration":"` + generation + `","defaultServiceAccountId":null,"operations":{}}`, plain(table("4"))},
		settings.OperationKeyRotate:       {`{"baseRevision":3,"operationId":"a","keyDigest":"` + digest + `","lastFour":"abcd"}`, plain(table("4"))},
		settings.OperationKeyRevoke:       {`{"baseRevision":3,"operationId":"a"}`, did("revoked", "true", table("4")), did("revoked", "false", table("3"))},
		settings.SecretsPut:               {`{"name":"N","value":"` + secretValue + `","valueDigest":"` + digest + `"}`, plain(`{"name":"N","sha256":"` + digest + `",` + at + `}`)},
		settings.SecretsDelete:            {`{"name":"N"}`, did("deleted", "true", `{"name":"N","deleted":true,`+at+`}`), did("deleted", "false", `{"name":"N","deleted":false,`+at+`}`)},
		settings.CredentialsPut: {
			`{"serviceAccountId":"sa","username":"u","password":"canary-password","salt":"canary-salt","passwordDigest":"` + digest + `"}`,
			plain(`{"serviceAccountId":"sa","username":"u","passwordDigest":"` + digest + `",` + at + `}`),
		},
		settings.CredentialsDelete: {
			`{"serviceAccountId":"sa"}`, did("deleted", "true", `{"serviceAccountId":"sa","deleted":true,`+at+`}`),
			did("deleted", "false", `{"serviceAccountId":"sa","deleted":false,`+at+`}`),
		},
	}
}

// receipt is what a Worker answers that applied the row's mutation.
func (s *story) receipt(a asked) map[string]any {
	var query struct{ MutationID, CommandDigest string }
	s.ok(json.Unmarshal(a.Payload, &query))
	row := s.row(query.MutationID)
	payload, err := outbox.DecodeControl(row)
	s.ok(err)
	return map[string]any{"found": true, "receipt": map[string]any{
		"mutationId": row.ID, "operation": payload.Operation, "commandDigest": query.CommandDigest,
		"result": json.RawMessage(commands()[settings.Operation(payload.Operation)][1]), "createdAt": "2026-01-02T03:04:05Z",
	}}
}

func (s *story) ok(err error) {
	if err != nil {
		s.T.Error(err)
	}
}

func (s *story) row(id string) models.Outbox {
	var row models.Outbox
	s.ok(s.DB.Read(context.Background()).Where("id = ?", id).Take(&row).Error)
	return row
}

// lost enqueues a command whose answer never came, and ends its grace.
func (s *story) lost(operation settings.Operation) models.Outbox {
	s.T.Helper()
	command, err := settings.Parse(operation, []byte(commands()[operation][0]))
	must2(s.T, err)
	var row models.Outbox
	must2(s.T, s.DB.Tx(context.Background(), func(tx *database.Tx) error {
		row, err = s.Outbox.EnqueueControlAudit(tx, outbox.ControlIntent{
			ID: uuid.NewString(), Tenant: s.Tenant, Worker: s.Worker(), ReleaseGeneration: s.version.ReleaseGeneration,
			Command: command, Actor: outbox.ControlActor{Type: "user", ID: "user:x", Method: "bearer_jwt", RequestID: "req-x"},
		})
		return err
	}))
	s.due(row.ID)
	return row
}

func must2(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// due ends the row's grace or pause.
func (s *story) due(id string) {
	past := time.Date(2020, 1, 1, 0, 5, 0, 0, time.UTC)
	s.Exec("UPDATE edge_worker_outbox SET next_attempt_at = ? WHERE id = ? AND next_attempt_at IS NOT NULL", past, id)
}

// completed is a row whose receipt is still to be acknowledged.
func (s *story) completed(operation settings.Operation) models.Outbox {
	s.T.Helper()
	row := s.lost(operation)
	s.Exec("UPDATE edge_worker_outbox SET status = 'completed' WHERE id = ?", row.ID)
	return row
}

func (s *story) round() reconcile.Result {
	s.T.Helper()
	result, err := s.lane.RunOnce(context.Background(), time.Minute)
	must2(s.T, err)
	return result
}

// facts are the control facts, those of other actors left out.
func (s *story) facts() []models.AuditLog {
	var found []models.AuditLog
	for _, fact := range s.Facts() {
		if settings.Operation(strings.TrimSuffix(fact.Action, ".noop")).Known() {
			found = append(found, fact)
		}
	}
	return found
}

func count(seen []asked, operation string) int {
	n := 0
	for _, a := range seen {
		if a.Operation == operation {
			n++
		}
	}
	return n
}

func told(t *testing.T, p *plane.Plane, run func(*story)) {
	t.Helper()
	run(controlStory(t, p))
}

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
