package setup

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/version"
)

// S1-008, S1-162: a process's round runs the control lane after the others, with
// the control client of its settings: a lost command is found by its receipt.
func TestTheRoundRecoversControlRows(t *testing.T) {
	t.Parallel()
	var seen []string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if json.NewDecoder(r.Body).Decode(&asked) != nil || !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			t.Error("an unreadable or unsigned command")
		}
		operation, _ := asked["operation"].(string)
		seen = append(seen, operation)
		result := map[string]any{"acknowledged": true}
		if operation == control.ReceiptGet {
			query, _ := asked["payload"].(map[string]any)
			result = map[string]any{"found": true, "receipt": map[string]any{
				"mutationId": query["mutationId"], "operation": "secrets.delete", "commandDigest": query["commandDigest"], "createdAt": "2026-01-02T03:04:05Z",
				"result": json.RawMessage(`{"conflict":false,"deleted":true,"current":{"name":"N","deleted":true,"updated_at":"2026-01-02T03:04:05Z"}}`),
			}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"operation": operation, "releaseGeneration": asked["releaseGeneration"], "result": result})
	}))
	t.Cleanup(gateway.Close)
	variables := inKit()
	variables["EDGE_WORKERS_EDGE_HOST_DISPATCH_URL"] = gateway.URL
	p := startWith(t, variables, Params{})
	row := lostCommand(t, p)
	p.loops.minute.Round(t.Context())
	var got models.Outbox
	must(t, p.db.Read(t.Context()).Where("id = ?", row.ID).Take(&got).Error)
	var facts int64
	must(t, p.db.Read(t.Context()).Model(&models.AuditLog{}).Where("id = ? AND action = 'secrets.delete'", row.ID).Count(&facts).Error)
	if got.Status != models.OutboxCompleted || got.NextAttemptAt != nil || facts != 1 || strings.Join(seen, " ") != "control.receipt.get control.receipt.ack" {
		t.Errorf("%+v, %d facts, asked %v\n%s", got, facts, seen, p.log)
	}
	if !strings.Contains(p.log.String(), "completed=1") || !strings.Contains(p.log.String(), " retired=0 ") || !strings.Contains(p.log.String(), "ack_retired=0") {
		t.Errorf("log: %s", p.log)
	}
}

// lostCommand is a due control row of a Worker with a deployed version.
func lostCommand(t *testing.T, p *process) models.Outbox {
	t.Helper()
	id := aVersion(t, p)
	digest := strings.Repeat("a", 64)
	generation, err := builder.Generation(builder.GenerationInput{
		BuilderPolicy: builder.V2_8, CompatibilityDate: "2026-01-01", ProjectDigest: digest, ManifestDigest: digest,
		LockDigest: digest, DependencyDigest: digest, StaticDataDigest: digest, RuntimeDigest: digest,
	})
	must(t, err)
	sql := p.db.Read(t.Context())
	must(t, sql.Exec(`UPDATE edge_worker_versions SET state = 'deployed', builder_policy = ?, compatibility_date = '2026-01-01', manifest_digest = ?, lock_digest = ?,
		dependency_digest = ?, static_data_digest = ?, runtime_digest = ?, release_generation = ? WHERE id = ?`, builder.V2_8, digest, digest, digest, digest, digest, generation, id).Error)
	must(t, sql.Exec("UPDATE edge_workers SET status = 'active', current_version_id = ?, serving_kind = 'legacy', serving_namespace = ?", id, p.Outbox.Scope().Default().Namespace).Error)
	worker, err := version.WorkerOf(sql, tenant)
	must(t, err)
	command, err := settings.Parse(settings.SecretsDelete, []byte(`{"name":"N"}`))
	must(t, err)
	var row models.Outbox
	must(t, p.db.Tx(t.Context(), func(tx *database.Tx) error {
		row, err = p.Outbox.EnqueueControlAudit(tx, outbox.ControlIntent{
			ID: uuid.NewString(), Tenant: tenant, Worker: worker, ReleaseGeneration: generation, Command: command,
			Actor: outbox.ControlActor{Type: "user", ID: "user:1", Method: "bearer_jwt", RequestID: "r"},
		})
		return err
	}))
	must(t, sql.Exec("UPDATE edge_worker_outbox SET next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID).Error)
	return row
}

// Without usable provider settings the lane reaches nobody.
func TestReceiptsWithoutAProvider(t *testing.T) {
	t.Parallel()
	r := (&serving{}).receipts()
	_, get := r.Get(t.Context(), control.ReceiptQuery{})
	_, ack := r.Ack(t.Context(), control.ReceiptQuery{})
	if !errors.Is(get, version.ErrProviderInvalid) || !errors.Is(ack, version.ErrProviderInvalid) {
		t.Errorf("%v, %v", get, ack)
	}
}
