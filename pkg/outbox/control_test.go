package outbox_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/plane"
)

// controlIntent is a good intent of a Worker that exists nowhere else.
func controlIntent(t *testing.T, p *plane.Plane) outbox.ControlIntent {
	t.Helper()
	value := "canary-secret-value"
	payload, err := json.Marshal(map[string]string{"name": "TOKEN", "value": value, "valueDigest": canonical.SHA256([]byte(value))})
	must(t, err)
	command, err := settings.Parse(settings.SecretsPut, payload)
	must(t, err)
	return outbox.ControlIntent{
		ID: uuid.NewString(), Tenant: p.Tenant, ReleaseGeneration: strings.Repeat("ab", 32), Command: command,
		Worker: models.Worker{
			ID: uuid.NewString(), ScriptName: models.ScriptName(p.Tenant.CompanyID, p.Tenant.DepartmentID), CurrentVersionID: "v1",
			ServingKind: outbox.ServingLegacy, ServingNamespace: plane.Namespace,
		},
		Actor: outbox.ControlActor{Type: "user", ID: "user:x", Method: "bearer_jwt", RequestID: "req-1"},
	}
}

func enqueueIn(t *testing.T, p *plane.Plane, o *outbox.Outbox, in outbox.ControlIntent) (models.Outbox, error) {
	t.Helper()
	var row models.Outbox
	err := p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var err error
		row, err = o.EnqueueControlAudit(tx, in)
		return err
	})
	return row, err
}

func enqueue(t *testing.T, p *plane.Plane) models.Outbox {
	t.Helper()
	row, err := enqueueIn(t, p, p.Outbox, controlIntent(t, p))
	must(t, err)
	return row
}

// dueControls enqueues n rows whose grace has passed.
func dueControls(t *testing.T, p *plane.Plane, n int) []models.Outbox {
	t.Helper()
	rows := make([]models.Outbox, n)
	for i := range rows {
		rows[i] = enqueue(t, p)
	}
	p.Exec("UPDATE edge_worker_outbox SET next_attempt_at = '2020-01-01 00:05:00'")
	return rows
}

func claimControls(t *testing.T, p *plane.Plane, limit int) []outbox.Lease {
	t.Helper()
	leases, err := p.Outbox.ClaimControlAudits(t.Context(), "sweep", limit)
	must(t, err)
	return leases
}

// settleControl ends a lease in a transaction of its own.
func settleControl(t *testing.T, p *plane.Plane, lease outbox.Lease, to models.OutboxStatus, code string) error {
	t.Helper()
	return p.DB.Tx(t.Context(), func(tx *database.Tx) error { return outbox.SettleControl(tx, lease, to, code, "") })
}

// S1-164, S1-026, S1-323, S3-33: the row has the mutation's id, belongs to the
// request for 300 s, carries scalars, and is the caller's transaction's.
func TestEnqueueControlAudit(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := controlIntent(t, p)
		row, err := enqueueIn(t, p, p.Outbox, in)
		must(t, err)
		got := byID(t, p, in.ID)
		if !equal(row, got) || got.Operation != models.OperationControlAudit || got.Status != models.OutboxPending || got.Attempts != 0 || got.LeaseOwner != "" ||
			got.CompanyID != p.Tenant.CompanyID || got.DepartmentID != p.Tenant.DepartmentID || got.WorkerID != in.Worker.ID ||
			got.ScriptName != in.Worker.ScriptName || got.DispatchNamespace != plane.Namespace || got.CreatedBy != "user:x" {
			t.Errorf("%+v", got)
		}
		grace := got.NextAttemptAt.Sub(got.CreatedAt)
		if outbox.ControlRequestGrace != 300*time.Second || grace < 300*time.Second || grace >= 301*time.Second || got.NextAttemptAt.Nanosecond() != 0 {
			t.Errorf("due after %v", grace)
		}
		payload, err := outbox.DecodeControl(got)
		must(t, err)
		if payload.Operation != "secrets.put" || payload.CommandDigest != in.Command.Digest() || payload.ReleaseGeneration != in.ReleaseGeneration ||
			payload.ActorID != "user:x" || payload.ActorType != "user" || payload.AuthMethod != "bearer_jwt" || payload.RequestID != "req-1" || payload.Serving != nil {
			t.Errorf("%+v", payload)
		}
		var any map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(*got.Payload), &any))
		for key, value := range any {
			if nested := value[0] == '{'; nested != (key == "command") || value[0] == '[' {
				t.Errorf("%s: %s", key, value)
			}
		}
		stop := errors.New("rolled back")
		other := controlIntent(t, p)
		err = p.DB.Tx(t.Context(), func(tx *database.Tx) error {
			_, err := p.Outbox.EnqueueControlAudit(tx, other)
			return errors.Join(err, stop)
		})
		if !errors.Is(err, stop) || p.Count("edge_worker_outbox") != 1 {
			t.Errorf("the enqueue committed by itself: %v", err)
		}
		if _, err := enqueueIn(t, p, p.Outbox, in); !database.IsDuplicate(err) {
			t.Errorf("the same mutation twice: %v", err)
		}
	})
}

// S1-243 to S1-247: in no column of the row is a value, a password or a salt;
// the digest of each is in the payload.
func TestNoSecretInTheOutbox(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		digest := canonical.SHA256([]byte("canary-secret-value"))
		for operation, payload := range map[settings.Operation]string{
			settings.SecretsPut:            `{"name":"N","value":"canary-secret-value","valueDigest":"` + digest + `"}`,
			settings.CredentialsPut:        `{"serviceAccountId":"sa","username":"u","password":"canary-password","salt":"canary-salt","passwordDigest":"` + canonical.SHA256([]byte("canary-salt\x00canary-password")) + `"}`,
			settings.AccessPolicyKeyRotate: `{"baseRevision":1,"keyDigest":"` + digest + `","lastFour":"abcd"}`,
			settings.OperationKeyRotate:    `{"baseRevision":1,"operationId":"a","keyDigest":"` + digest + `","lastFour":"abcd"}`,
		} {
			in := controlIntent(t, p)
			command, err := settings.Parse(operation, []byte(payload))
			must(t, err)
			in.Command = command
			row, err := enqueueIn(t, p, p.Outbox, in)
			must(t, err)
			all, err := json.Marshal(byID(t, p, row.ID))
			must(t, err)
			if strings.Contains(string(all), "canary") || !regexp.MustCompile("[a-z]Digest\\\\\":\\\\\"[0-9a-f]{64}").Match(all) {
				t.Errorf("%s: %s", operation, all)
			}
		}
	})
}

// S1-029, S1-224, D15: the namespace is the one that the Worker records; the
// location itself is recorded for shared ones only; without any the
// environment's own is taken, and without that nothing is written.
func TestControlRowsNamespace(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		here := outbox.New(p.DB, outbox.CloudScope("configured", "shared-1"))
		for _, c := range []struct {
			kind, namespace, want string
			recorded              bool
		}{
			{outbox.ServingLegacy, "recorded", "recorded", false},
			{outbox.ServingShared, "shared-1", "shared-1", true},
			{"", "", "configured", false},
		} {
			in := controlIntent(t, p)
			in.Worker.ServingKind, in.Worker.ServingNamespace = c.kind, c.namespace
			row, err := enqueueIn(t, p, here, in)
			must(t, err)
			payload, err := outbox.DecodeControl(byID(t, p, row.ID))
			must(t, err)
			if row.DispatchNamespace != c.want || (payload.Serving != nil) != c.recorded || (c.recorded && *payload.Serving != outbox.Location{Kind: c.kind, Namespace: c.namespace}) {
				t.Errorf("%+v: %s, %+v", c, row.DispatchNamespace, payload.Serving)
			}
		}
		in := controlIntent(t, p)
		in.Worker.ServingKind, in.Worker.ServingNamespace = "", ""
		if _, err := enqueueIn(t, p, outbox.New(p.DB, outbox.Scope{}), in); err == nil || p.Count("edge_worker_outbox") != 3 {
			t.Errorf("served nowhere: %v", err)
		}
	})
}

// S1-248: script names, and all else that a row stands on, have their form.
func TestEnqueueRefusesMalformedIntents(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		good := controlIntent(t, p).Worker.ScriptName
		for name, change := range map[string]func(*outbox.ControlIntent){
			"47 digits":     func(in *outbox.ControlIntent) { in.Worker.ScriptName = good[:50] },
			"49 digits":     func(in *outbox.ControlIntent) { in.Worker.ScriptName = good + "a" },
			"upper case":    func(in *outbox.ControlIntent) { in.Worker.ScriptName = "dw-" + strings.Repeat("A", 48) },
			"prefix":        func(in *outbox.ControlIntent) { in.Worker.ScriptName = "dx-" + good[3:] },
			"final newline": func(in *outbox.ControlIntent) { in.Worker.ScriptName = good + "\n" },
			"id":            func(in *outbox.ControlIntent) { in.ID = "1" },
			"no id":         func(in *outbox.ControlIntent) { in.ID = "" },
			"upper id":      func(in *outbox.ControlIntent) { in.ID = strings.ToUpper("5b0e6f3c-6b1c-4c39-9c27-7f6f1d2a9f1a") },
			"generation":    func(in *outbox.ControlIntent) { in.ReleaseGeneration = "x" },
			"no Worker":     func(in *outbox.ControlIntent) { in.Worker.ID = "" },
			"no actor":      func(in *outbox.ControlIntent) { in.Actor.ID = "" },
			"no tenant":     func(in *outbox.ControlIntent) { in.Tenant.DepartmentID = "" },
			"no command":    func(in *outbox.ControlIntent) { in.Command = settings.Command{} },
		} {
			in := controlIntent(t, p)
			change(&in)
			if _, err := enqueueIn(t, p, p.Outbox, in); err == nil || p.Count("edge_worker_outbox") != 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		enqueue(t, p) // the control
		if p.Count("edge_worker_outbox") != 1 {
			t.Error("a good intent was not written")
		}
	})
}

// A row whose payload speaks of another row, or cannot be read, is not used.
func TestDecodeControl(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := enqueue(t, p)
		if _, err := outbox.DecodeControl(row); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*models.Outbox){
			"none": func(r *models.Outbox) { r.Payload = nil }, "row": func(r *models.Outbox) { r.ID = uuid.NewString() },
			"company": func(r *models.Outbox) { r.CompanyID = "x" }, "department": func(r *models.Outbox) { r.DepartmentID = "x" },
			"worker": func(r *models.Outbox) { r.WorkerID = "x" }, "script": func(r *models.Outbox) { r.ScriptName = "x" },
			"more": func(r *models.Outbox) { text := strings.Replace(*r.Payload, "{", `{"more":1,`, 1); r.Payload = &text },
			"location": func(r *models.Outbox) {
				text := strings.Replace(*r.Payload, `"serving_location":null`, `"serving_location":{"kind":"legacy","namespace":"n"}`, 1)
				r.Payload = &text
			},
		} {
			broken := row
			change(&broken)
			if _, err := outbox.DecodeControl(broken); err == nil {
				t.Errorf("%s: it was used", name)
			}
		}
	})
}

// S1-001, S1-002: the three lanes share one table and are told apart by the
// operation; no claim of one takes a row of another.
func TestLanesShareOneTable(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		deployment, in := insert(t, p), intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		control := enqueue(t, p)
		cleanup := find(t, p, in)
		for row, want := range map[*models.Outbox]models.Operation{
			&deployment: models.OperationDeploy, &cleanup: models.OperationArtifactCleanup, &control: models.OperationControlAudit,
		} {
			if got := byID(t, p, row.ID); got.Operation != want {
				t.Errorf("%s row is a %s", want, got.Operation)
			}
		}
		if n := p.Count("edge_worker_outbox"); n != 3 {
			t.Errorf("%d rows", n)
		}
		p.Exec("UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00', next_attempt_at = '2020-01-01 00:00:00'")
		recovered, err := p.Outbox.ClaimRecoverable(t.Context(), standard)
		must(t, err)
		cleanups, controls := claimCleanups(t, p, 50), claimControls(t, p, 50)
		if len(recovered) != 1 || recovered[0].ID != deployment.ID || len(cleanups) != 1 || cleanups[0].OutboxID != cleanup.ID ||
			len(controls) != 1 || controls[0].OutboxID != control.ID {
			t.Errorf("claimed %d, %d and %d rows", len(recovered), len(cleanups), len(controls))
		}
	})
}
