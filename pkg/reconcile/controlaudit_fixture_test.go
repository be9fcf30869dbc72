package reconcile_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
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
	credentials := canonical.SHA256([]byte("canary-salt\x00canary-password"))
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
			`{"serviceAccountId":"sa","username":"u","password":"canary-password","salt":"canary-salt","passwordDigest":"` + credentials + `"}`,
			plain(`{"serviceAccountId":"sa","username":"u","passwordDigest":"` + credentials + `",` + at + `}`),
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
	s.ok(err)
	var row models.Outbox
	s.ok(s.DB.Tx(context.Background(), func(tx *database.Tx) error {
		row, err = s.Outbox.EnqueueControlAudit(tx, outbox.ControlIntent{
			ID: uuid.NewString(), Tenant: s.Tenant, Worker: s.Worker(), ReleaseGeneration: s.version.ReleaseGeneration,
			Command: command, Actor: outbox.ControlActor{Type: "user", ID: "user:x", Method: "bearer_jwt", RequestID: "req-x"},
		})
		return err
	}))
	s.due(row.ID)
	return row
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
	s.ok(err)
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
