package outbox_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// S2-062, S2-067 to S2-069, S1-307, S1-308, S3-33: the row and its payload of
// scalars, with the cloud's record and without it on-prem.
func TestDeployRow(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for _, c := range []struct {
			scope  outbox.Scope
			digest string
			keys   []string
		}{
			{outbox.CloudScope(plane.Namespace), "", []string{"serving_location"}},
			{outbox.OnPremScope("host"), "", nil},
			{outbox.OnPremScope("host"), hexA, nil},
		} {
			in := outbox.DeployIntent{
				Tenant: p.Tenant, Worker: models.Worker{ID: uuid.NewString(), ScriptName: "dw-x"}, VersionID: "v1", BaseRevision: 7,
				Sequence: 3, SettingsDigest: c.digest, Location: c.scope.Default(), CreatedBy: "user:x",
			}
			var written models.Outbox
			must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
				var err error
				written, err = outbox.New(p.DB, c.scope).InsertDeploy(tx, in)
				return err
			}))
			row := byID(t, p, written.ID)
			key := "deploy:" + in.Worker.ID + ":v1:7"
			if c.digest != "" {
				key += ":" + c.digest
			}
			if row.DedupeKey != key || row.Status != models.OutboxPending || row.AdmissionSequence != 3 || row.ScriptName != "dw-x" ||
				row.DispatchNamespace != c.scope.Default().Namespace || row.NextAttemptAt != nil || row.Attempts != 0 || row.TicketID == row.ID {
				t.Errorf("%+v", row)
			}
			var payload map[string]any
			must(t, json.Unmarshal([]byte(*row.Payload), &payload))
			want := append([]string{"base_revision", "company_id", "department_id", "message_id", "operation_settings_digest", "outbox_id"}, c.keys...)
			want = append(want, "version_id", "worker_id")
			var got []string
			for k := range payload {
				got = append(got, k)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("keys %v", got)
			}
			if d := payload["operation_settings_digest"]; (c.digest == "") != (d == nil) { // S2-068: null, not absent
				t.Errorf("digest %v", d)
			}
			decoded, err := outbox.DecodeDeploy(row)
			if err != nil || decoded.OutboxID != row.ID || decoded.BaseRevision != 7 || (decoded.Serving != nil) != c.scope.Cloud() {
				t.Errorf("%+v, %v", decoded, err)
			}
		}
	})
}

// A payload that speaks of another row, or is no payload, is not used.
func TestDecodeDeploy(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		good := *row.Payload
		digest := func(v string) string {
			return strings.Replace(good, `"operation_settings_digest":null`, `"operation_settings_digest":`+v, 1)
		}
		for name, payload := range map[string]string{
			"another row": strings.Replace(good, row.ID, "other", 1), "another company": strings.Replace(good, row.CompanyID, "other", 1),
			"another department": strings.Replace(good, row.DepartmentID, "other", 1), "another Worker": strings.Replace(good, row.WorkerID, "other", 1),
			"another version": strings.Replace(good, row.VersionID, "other", 1),
			"no message":      regexp.MustCompile(`"message_id":"[^"]*"`).ReplaceAllString(good, `"message_id":""`),
			"a short digest":  digest(`"` + hexA[:63] + `"`), "a long digest": digest(`"` + hexA + `a"`), "no hex": digest(`"` + strings.Repeat("g", 64) + `"`),
			"one key more": strings.Replace(good, "{", `{"more":1,`, 1), "more after it": good + good, "a brace more": good + "}",
			"a list": "[]", "nothing": "", "another type": strings.Replace(good, `"base_revision":1`, `"base_revision":"1"`, 1),
		} {
			altered := row
			altered.Payload = &payload
			if payload == good {
				t.Fatalf("%s: nothing was altered", name)
			}
			if _, err := outbox.DecodeDeploy(altered); err == nil {
				t.Errorf("%s was accepted", name)
			}
		}
		for _, payload := range []string{good, digest(`"` + hexA + `"`)} {
			altered := row
			altered.Payload = &payload
			if _, err := outbox.DecodeDeploy(altered); err != nil {
				t.Errorf("control: %v", err)
			}
		}
	})
}

// S2-077, S3-41: the generated column for each operation and status.
// S2-078, S3-39, S3-40: its index admits one live row of a Worker and any
// number of settled ones, also against raw SQL.
func TestActiveDeployment(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		raw := func(operation, status, worker string) (string, error) {
			id := uuid.NewString()
			return id, p.DB.Read(t.Context()).Exec(`INSERT INTO edge_worker_outbox (id, operation, dedupe_key, ticket_id, status, worker_id) VALUES (?, ?, ?, ?, ?, ?)`,
				id, operation, id, id, status, worker).Error
		}
		for _, operation := range []string{"deploy", "delete", "artifact_cleanup", "control_audit"} {
			for status, live := range map[string]bool{"pending": true, "leased": true, "uncertain": true, "completed": false, "failed": false, "cancelled": false} {
				id, err := raw(operation, status, "w-"+operation+status)
				must(t, err)
				got := byID(t, p, id).ActiveDeploymentWorkerID
				if want := live && operation == "deploy"; (got != nil) != want || (want && *got != "w-"+operation+status) {
					t.Errorf("%s %s: %v", operation, status, got)
				}
			}
		}
		id, err := raw("deploy", "pending", "w1")
		must(t, err)
		for _, status := range []string{"pending", "leased", "uncertain"} {
			if _, err := raw("deploy", status, "w1"); !database.IsDuplicate(err) {
				t.Errorf("a second live row (%s): %v", status, err)
			}
		}
		for range 3 {
			_, err := raw("deploy", "failed", "w1")
			must(t, err)
		}
		_, err = raw("deploy", "pending", "w2")
		must(t, err)
		set(t, p, id, "status = 'completed'")
		if byID(t, p, id).ActiveDeploymentWorkerID != nil {
			t.Error("a settled row is still live")
		}
		_, err = raw("deploy", "pending", "w1")
		must(t, err)
		if err := p.DB.Read(t.Context()).Exec("UPDATE edge_worker_outbox SET active_deployment_worker_id = 'x' WHERE id = ?", id).Error; err == nil {
			t.Error("the column can be written")
		}
	})
}

// S3-36: the same intent twice is one row; the caller rolls back (S3-84).
func TestDedupe(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := outbox.DeployIntent{Tenant: p.Tenant, Worker: models.Worker{ID: "w1"}, VersionID: "v1", Location: p.Outbox.Scope().Default()}
		write := func(end error) error {
			return p.DB.Tx(t.Context(), func(tx *database.Tx) error {
				_, err := p.Outbox.InsertDeploy(tx, in)
				return errors.Join(err, end)
			})
		}
		if err := write(errors.New("rolled back")); err == nil || p.Count("edge_worker_outbox") != 0 {
			t.Errorf("%v, %d rows", err, p.Count("edge_worker_outbox"))
		}
		must(t, write(nil))
		p.Exec("UPDATE edge_worker_outbox SET status = 'failed'") // so that only the dedupe key stands in the way
		if err := write(nil); !database.IsDuplicate(err) || p.Count("edge_worker_outbox") != 1 {
			t.Errorf("%v, %d rows", err, p.Count("edge_worker_outbox"))
		}
	})
}

// S2-080, S2-081, S2-035: exactly pending, leased and uncertain rows hold the
// Worker and its department, and only these.
func TestUnreleased(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		for status, want := range map[models.OutboxStatus]bool{
			"pending": true, "leased": true, "uncertain": true, "completed": false, "failed": false, "cancelled": false,
		} {
			set(t, p, row.ID, "status = ?", status)
			worker, err := outbox.HasUnreleased(p.DB.Read(t.Context()), row.WorkerID)
			must(t, err)
			tenant, err := outbox.TenantHasUnreleased(p.DB.Read(t.Context()), p.Tenant)
			must(t, err)
			if worker != want || tenant != want || status.Released() == want {
				t.Errorf("%s: worker %v, tenant %v", status, worker, tenant)
			}
			other, err := outbox.HasUnreleased(p.DB.Read(t.Context()), "another")
			must(t, err)
			for _, of := range []models.Tenant{{CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}, {CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}} {
				foreign, err := outbox.TenantHasUnreleased(p.DB.Read(t.Context()), of)
				if err != nil || foreign || other {
					t.Errorf("%s holds %+v: %v", status, of, err)
				}
			}
		}
		set(t, p, row.ID, "status = 'pending', operation = 'control_audit'")
		if held, err := outbox.HasUnreleased(p.DB.Read(t.Context()), row.WorkerID); err != nil || held {
			t.Errorf("another operation holds the Worker: %v", err)
		}
	})
}

// S3-34, S3-16, D4: a ticket is read by its public id and by its own tenant
// only; the row's id is not accepted in its place.
func TestTicket(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		got, err := outbox.Ticket(p.DB.Read(t.Context()), p.Tenant, row.TicketID)
		if err != nil || got.ID != row.ID {
			t.Errorf("control: %v", err)
		}
		none := func(name string, of models.Tenant, id string) {
			if _, err := outbox.Ticket(p.DB.Read(t.Context()), of, id); !errors.Is(err, outbox.ErrNoTicket) {
				t.Errorf("%s: %v", name, err)
			}
		}
		none("the row's id", p.Tenant, row.ID)
		none("no id", p.Tenant, "")
		none("another company", models.Tenant{CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}, row.TicketID)
		none("another department", models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}, row.TicketID)
		set(t, p, row.ID, "operation = 'artifact_cleanup'")
		none("another operation", p.Tenant, row.TicketID)
	})
}

// S1-030 to S1-032, S1-038 to S1-042, D15: what a scope may run.
func TestScope(t *testing.T) {
	t.Parallel()
	cloud, host := outbox.CloudScope("own", "shared"), outbox.OnPremScope("host-1")
	if ns := host.Default().Namespace; !regexp.MustCompile(`\Aonprem:[0-9a-f]{12}\z`).MatchString(ns) || ns == outbox.OnPremScope("host-2").Default().Namespace {
		t.Errorf("on-prem namespace %q", ns)
	}
	if got := host.Default().Namespace; got != "onprem:4a1796ac4935" {
		t.Errorf("not the first 12 digits of the identity's SHA-256: %s", got)
	}
	for _, c := range []struct {
		scope     outbox.Scope
		namespace string
		want      bool
	}{
		{cloud, "own", true}, {cloud, "shared", true}, {cloud, "other", false}, {cloud, "", false}, {cloud, host.Default().Namespace, false},
		{host, host.Default().Namespace, true}, {host, "own", false}, {host, "", false},
		{outbox.CloudScope("", "shared"), "shared", false}, {outbox.Scope{}, "", false}, {outbox.OnPremScope(""), "", false},
	} {
		if c.scope.May(c.namespace) != c.want {
			t.Errorf("%v may run %q: %v", c.scope.Namespaces(), c.namespace, !c.want)
		}
	}
	if !cloud.Cloud() || host.Cloud() || (outbox.Scope{}).Cloud() {
		t.Error("cloud-only rules")
	}
	if cloud.Default() != (outbox.Location{Kind: outbox.ServingLegacy, Namespace: "own"}) {
		t.Errorf("%+v", cloud.Default())
	}
}
