package live_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/liveplane"
)

const (
	unknownOutcome = "The change may or may not have been applied; read the current state before changing it again"
	unreachable    = "The Worker did not answer; nothing was changed"
)

// S1-164, S1-168 to S1-173, S1-243 to S1-247, S3-59, S3-60, D12: each of the
// twelve commands changes the live Worker, leaves a completed row that is due to
// be acknowledged, and one fact under the row's id with the actor, the request
// and digests; no key, value, password or salt is anywhere.
func TestTwelveChanges(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	var canaries []string
	secret := func(text string) string {
		canaries = append(canaries, text)
		return text
	}
	changes := []struct {
		action string
		change func() error
	}{
		{"access_policy.replace", func() error {
			p, err := f.Live.ReplaceAccessPolicy(ctx, by, 0, "api_key", []string{"192.0.2.0/24"})
			if err == nil && (p.Revision != 1 || p.Mode != "api_key" || !slices.Equal(p.IPAllowlist, []string{"192.0.2.0/24"})) {
				t.Errorf("%+v", p)
			}
			return err
		}},
		{"access_policy.api_key.rotate", func() error {
			p, err := f.Live.RotateKey(ctx, by, 1)
			secret(p.Key)
			if err == nil && (p.Policy.Revision != 2 || !strings.HasPrefix(p.Key, "ewk_") || len(p.Key) != 47 || p.Policy.APIKeyLastFour == nil || !strings.HasSuffix(p.Key, *p.Policy.APIKeyLastFour)) {
				t.Errorf("%+v", p)
			}
			return err
		}},
		{"access_policy.api_key.revoke", func() error {
			p, revoked, err := f.Live.RevokeKey(ctx, by, 2)
			if err == nil && (!revoked || p.APIKeyConfigured || p.Revision != 3) {
				t.Errorf("%+v %v", p, revoked)
			}
			return err
		}},
		{"access_policy.api_key.revoke.noop", func() error {
			p, revoked, err := f.Live.RevokeKey(ctx, by, 3)
			if err == nil && (revoked || p.Revision != 3) {
				t.Errorf("%+v %v", p, revoked)
			}
			return err
		}},
		{"runtime_config.replace", func() error {
			c, err := f.Live.ReplaceRuntimeConfig(ctx, by, 0, json.RawMessage(`{"b": 1, "a": "x"}`))
			if err == nil && (string(c.Value) != `{"a":"x","b":1}` || c.Revision != 1 || c.SHA256 != canonical.SHA256(c.Value)) {
				t.Errorf("%+v", c)
			}
			return err
		}},
		{"runtime_config.delete", func() error {
			c, err := f.Live.DeleteRuntimeConfig(ctx, by, 1)
			if err == nil && (string(c.Value) != "{}" || c.Revision != 2) {
				t.Errorf("%+v", c)
			}
			return err
		}},
		{"secrets.put", func() error {
			value := secret("canary-secret-value")
			s, err := f.Live.PutSecret(ctx, by, "TOKEN", value)
			if err == nil && (s.Name != "TOKEN" || s.SHA256 != canonical.SHA256([]byte(value)) || s.UpdatedAt.IsZero()) {
				t.Errorf("%+v", s)
			}
			return err
		}},
		{"service_accounts.credentials.put", func() error {
			a, err := f.Live.PutCredentials(ctx, by, "robot", "user", secret("canary-password"))
			if err == nil && (a.ID != "robot" || a.Username != "user" || !canonical.IsSHA256(a.PasswordDigest)) {
				t.Errorf("%+v", a)
			}
			return err
		}},
		{"operation_settings.replace", func() error {
			table, err := f.Live.ReplaceOperations(ctx, by, request(t, `{"base_revision":0,"default_service_account_id":"robot","operations":{"a":{"access":"public"},"b":{"access":"inherit"}}}`))
			if err == nil && (table.Revision != 1 || table.Operations["a"].Access != "public" || table.DefaultServiceAccountID == nil) {
				t.Errorf("%+v", table)
			}
			return err
		}},
		{"operation_settings.api_key.rotate", func() error {
			k, err := f.Live.RotateOperationKey(ctx, by, 1, "b")
			secret(k.Key)
			if err == nil && (k.Table.Revision != 2 || !k.Table.Operations["b"].APIKeyConfigured || k.Table.Operations["a"].APIKeyConfigured) {
				t.Errorf("%+v", k.Table)
			}
			return err
		}},
		{"operation_settings.api_key.revoke", func() error {
			table, revoked, err := f.Live.RevokeOperationKey(ctx, by, 2, "b")
			if err == nil && (!revoked || table.Revision != 3 || table.Operations["b"].APIKeyConfigured) {
				t.Errorf("%+v %v", table, revoked)
			}
			return err
		}},
		{"secrets.delete", func() error { return deleted(f.Live.DeleteSecret(ctx, by, "TOKEN")) }},
		{"secrets.delete.noop", func() error { return kept(f.Live.DeleteSecret(ctx, by, "TOKEN")) }},
		{"service_accounts.credentials.delete", func() error { return deleted(f.Live.DeleteCredentials(ctx, by, "robot")) }},
	}
	for i, c := range changes {
		f.Front.Sent()
		err := c.change()
		if err != nil {
			t.Errorf("%s: %v", c.action, err)
			continue
		}
		row := f.last()
		if len(f.rows()) != i+1 || row.Status != models.OutboxCompleted || row.NextAttemptAt == nil || row.Attempts != 0 {
			t.Errorf("%s: row %+v", c.action, row)
		}
		fact := factOf(t, f, row.ID)
		if fact.Action != c.action || fact.ActorID != f.Actor.ID || fact.AuthMethod != f.Actor.Method || fact.RequestID != f.Actor.RequestID ||
			fact.ResourceID != f.Worker().ID || fact.Result != "succeeded" || !canonical.IsSHA256(fact.Digest) {
			t.Errorf("%s: fact %+v", c.action, fact)
		}
		mutations := 0
		for _, sent := range f.Front.Sent() {
			if sent.MutationID != "" {
				mutations++
				if sent.MutationID != row.ID {
					t.Errorf("%s was sent as %s, its row is %s", c.action, sent.MutationID, row.ID)
				}
			}
		}
		if mutations != 1 {
			t.Errorf("%s was sent %d times", c.action, mutations)
		}
	}
	if len(canaries) != 4 {
		t.Fatalf("%d canaries", len(canaries))
	}
	for _, canary := range append(canaries, "salt") {
		if canary == "" {
			t.Error("an empty canary")
		}
		for _, table := range []string{"edge_worker_outbox", "edge_worker_audit_logs"} {
			if strings.Contains(dump(t, f, table), canary) {
				t.Errorf("%q is in %s", canary, table)
			}
		}
	}
	if !strings.Contains(dump(t, f, "edge_worker_outbox"), canonical.SHA256([]byte(canaries[1]))) {
		t.Error("the digest of the secret is in no row")
	}
}

func deleted(done bool, err error) error {
	if err == nil && !done {
		return fault.New(fault.Internal, "nothing was deleted")
	}
	return err
}

func kept(done bool, err error) error {
	if err == nil && done {
		return fault.New(fault.Internal, "something was deleted")
	}
	return err
}

func factOf(t *testing.T, f *fixture, id string) models.AuditLog {
	t.Helper()
	var facts []models.AuditLog
	f.Must(f.DB.Read(t.Context()).Where("id = ?", id).Find(&facts).Error)
	if len(facts) != 1 {
		t.Fatalf("%d facts of %s", len(facts), id)
	}
	return facts[0]
}

// dump is all that a table holds, as text.
func dump(t *testing.T, f *fixture, table string) string {
	t.Helper()
	var rows []map[string]any
	f.Must(f.DB.Read(t.Context()).Table(table).Find(&rows).Error)
	out := ""
	for _, row := range rows {
		for _, value := range row {
			switch v := value.(type) {
			case []byte:
				out += string(v) + "\n"
			case string:
				out += v + "\n"
			}
		}
	}
	return out
}

// A base revision that is not the current one changes nothing: the row ends
// without a fact, and the same change with the current revision goes through.
func TestStaleRevisions(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	_, err := f.Live.ReplaceAccessPolicy(ctx, by, 1, "public", nil)
	refusal(t, err, fault.Conflict, "revision_stale", "Access-policy revision is stale")
	_, err = f.Live.ReplaceRuntimeConfig(ctx, by, 1, json.RawMessage(`{}`))
	refusal(t, err, fault.Conflict, "revision_stale", "Runtime-configuration revision is stale")
	_, err = f.Live.RotateOperationKey(ctx, by, 1, "a")
	refusal(t, err, fault.Conflict, "", "Operation-settings revision is stale")
	for _, row := range f.rows() {
		if row.Status != models.OutboxFailed || row.LastErrorCode != "revision_stale" || row.NextAttemptAt != nil {
			t.Errorf("row %+v", row)
		}
	}
	_, err = f.Live.ReplaceOperations(ctx, by, request(t, `{"base_revision":1,"operations":{"a":{"access":"public"},"b":{"access":"public"}}}`))
	refusal(t, err, fault.Conflict, "", "Operation-settings revision is stale") // S2-099; seen before anything is recorded
	if len(f.rows()) != 3 || f.facts("access_policy.replace") != 0 {
		t.Errorf("%d rows", len(f.rows()))
	}
	_, err = f.Live.ReplaceAccessPolicy(ctx, by, 0, "public", nil)
	if err != nil || f.facts("access_policy.replace") != 1 {
		t.Errorf("the current revision: %v", err)
	}
}

// S1-163, S1-217 to S1-219: an answer that is lost or spoilt leaves the row to
// the lane, which finds out by the receipt; the command is not sent again. A
// request that nobody saw ends as not applied.
func TestLostAnswers(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	lane := f.Auditor()
	base := int64(0)
	for _, c := range []struct {
		fault   liveplane.Fault
		applied bool
	}{{liveplane.LoseReply, true}, {liveplane.LoseRequest, false}, {liveplane.Garbage, true}, {liveplane.Twice, true}} {
		f.Front.Sent()
		f.Front.Once("access_policy.replace", c.fault)
		before := f.facts("access_policy.replace")
		_, err := f.Live.ReplaceAccessPolicy(ctx, by, base, "public", nil)
		refusal(t, err, fault.Unavailable, "control_outcome_unknown", unknownOutcome)
		row := f.last()
		if row.Status != models.OutboxPending || f.facts("access_policy.replace") != before {
			t.Errorf("%v: row %s", c.fault, row.Status)
		}
		f.Exec("UPDATE edge_worker_outbox SET next_attempt_at = created_at WHERE id = ?", row.ID)
		_, err = lane.RunOnce(ctx, time.Minute)
		f.Must(err)
		wanted, code := models.OutboxFailed, "control_receipt_not_found"
		if c.applied {
			wanted, code = models.OutboxCompleted, ""
			before++
			base++
		}
		row = f.last()
		if row.Status != wanted || row.LastErrorCode != code || f.facts("access_policy.replace") != before {
			t.Errorf("%v: row %s %s, %d facts", c.fault, row.Status, row.LastErrorCode, f.facts("access_policy.replace"))
		}
		mutations := 0
		for _, sent := range f.Front.Sent() {
			if sent.MutationID != "" {
				mutations++
			}
		}
		policy, err := f.Live.AccessPolicy(ctx, by)
		if err != nil || policy.Revision != base || mutations != 1 {
			t.Errorf("%v: revision %d of %d, %d mutations, %v", c.fault, policy.Revision, base, mutations, err)
		}
	}
}

// A Worker that cannot be reached at all was told nothing: the row ends at
// once, and the answer says so.
func TestNoConnection(t *testing.T) {
	f := onMySQL(t)
	desk := f.WithoutConnection()
	_, err := desk.ReplaceAccessPolicy(t.Context(), f.By(), 0, "public", nil)
	refusal(t, err, fault.Unavailable, "worker_control_unavailable", unreachable)
	if row := f.last(); row.Status != models.OutboxFailed || row.LastErrorCode != "worker_control_unavailable" {
		t.Errorf("row %s %s", row.Status, row.LastErrorCode)
	}
	_, err = desk.AccessPolicy(t.Context(), f.By())
	refusal(t, err, fault.Unavailable, "worker_control_unavailable", unreachable)
}

// A command whose row took so long to be written that the lane might ask for its
// receipt before it arrives is not sent; one within the bound is.
func TestLateCommand(t *testing.T) {
	f := onMySQL(t)
	now := time.Now()
	took := time.Minute + time.Millisecond
	f.Live.SetClock(func() time.Time {
		now = now.Add(took)
		return now
	})
	f.Front.Sent()
	_, err := f.Live.ReplaceAccessPolicy(t.Context(), f.By(), 0, "public", nil)
	refusal(t, err, fault.Unavailable, "control_not_recorded", "The change could not be recorded and was not sent; try again")
	if row := f.last(); row.Status != models.OutboxFailed || row.LastErrorCode != "control_not_recorded" || row.NextAttemptAt != nil || len(f.Front.Operations()) != 0 {
		t.Errorf("row %s %s", row.Status, row.LastErrorCode)
	}
	took = time.Minute
	_, err = f.Live.ReplaceAccessPolicy(t.Context(), f.By(), 0, "public", nil)
	if err != nil || f.facts("access_policy.replace") != 1 || len(f.Front.Operations()) != 1 {
		t.Errorf("within the bound: %v", err)
	}
}

// The Worker's own bounds are answers of their own, and end the row.
func TestLimits(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	for i := range 64 {
		_, err := f.Live.PutSecret(ctx, by, "S"+string(rune('A'+i/26))+string(rune('A'+i%26)), "x")
		f.Must(err)
	}
	_, err := f.Live.PutSecret(ctx, by, "ONE_MORE", "x")
	refusal(t, err, fault.Conflict, "secret_limit_reached", "A Worker has at most 64 secrets")
	if row := f.last(); row.Status != models.OutboxFailed || row.LastErrorCode != "secret_limit_reached" {
		t.Errorf("row %s %s", row.Status, row.LastErrorCode)
	}
	_, err = f.Live.PutSecret(ctx, by, "SAA", "y") // one of the 64
	if err != nil || f.facts("secrets.put") != 65 {
		t.Errorf("%v, %d facts", err, f.facts("secrets.put"))
	}
	list, err := f.Live.Secrets(ctx, by)
	if err != nil || len(list) != 64 || !slices.ContainsFunc(list, func(s settings.Secret) bool { return s.Name == "SAA" && s.SHA256 == canonical.SHA256([]byte("y")) }) {
		t.Errorf("%d secrets, %v", len(list), err)
	}
}
