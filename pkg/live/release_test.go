package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/test/plane"
)

// D13, S2-106: what a release does not support is refused before anything is
// recorded or sent; what every release supports goes on.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	ctx, by := t.Context(), f.By()
	_, err := f.Live.AccessPolicy(ctx, by)
	refusal(t, err, fault.NotFound, "", "Department Worker not found")
	f.submit(project("none", "a"))
	_, err = f.Live.AccessPolicy(ctx, by)
	refusal(t, err, fault.Conflict, "live_release_required", "The Worker has no live release yet; deploy a version first")

	const remedy = "; upload the project again and deploy the new revision"
	for _, policy := range []builder.Policy{builder.V2_5, builder.V2_6, builder.V2_7} {
		f.Deploy(project(string(policy), "a"), policy)
		f.Front.Sent()
		rows := len(f.rows())
		_, put := f.Live.PutSecret(ctx, by, "TOKEN", "x")
		_, list := f.Live.Secrets(ctx, by)
		if policy == builder.V2_5 {
			for _, err := range []error{put, list} {
				refusal(t, err, fault.Conflict, "worker_secrets_unsupported", "The release does not support Worker secrets"+remedy)
			}
		} else if put != nil || list != nil || len(f.rows()) != rows+1 {
			t.Errorf("%s: %v %v", policy, put, list)
		}
		rows = len(f.rows())
		f.Front.Sent()
		_, get := f.Live.Operations(ctx, by)
		_, replace := f.Live.ReplaceOperations(ctx, by, request(t, `{"base_revision":0,"operations":{"a":{"access":"public"}}}`))
		_, rotate := f.Live.RotateOperationKey(ctx, by, 0, "a")
		for _, err := range []error{get, replace, rotate} {
			refusal(t, err, fault.Conflict, "operation_settings_unsupported", "The release does not support operation settings"+remedy)
		}
		_, accounts := f.Live.Accounts(ctx, by)
		_, credentials := f.Live.PutCredentials(ctx, by, "a", "u", "p")
		for _, err := range []error{accounts, credentials} {
			refusal(t, err, fault.Conflict, "service_accounts_unsupported", "The release does not support service accounts"+remedy)
		}
		if sent := f.Front.Sent(); len(sent) != 0 || len(f.rows()) != rows {
			t.Errorf("%s: %v was sent, %d rows more", policy, sent, len(f.rows())-rows)
		}
		before, err := f.Live.RuntimeConfig(ctx, by)
		f.Must(err)
		_, err = f.Live.ReplaceRuntimeConfig(ctx, by, before.Revision, json.RawMessage(`{"a":1}`))
		f.Must(err)
	}
}

// S2-022, S2-108, S1-206 to S1-208, D4: without usable provider settings, a
// known release or a Worker of the tenant's own, nothing is recorded or sent.
func TestNoTarget(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	change := func(by live.By) error {
		_, err := f.Live.ReplaceAccessPolicy(ctx, by, 0, "public", nil)
		return err
	}
	f.Invalid = errors.New("wrong")
	refusal(t, change(by), fault.Unavailable, "", "Edge Worker provider is not configured")
	f.Invalid = nil
	stranger := by
	stranger.Tenant = models.Tenant{CompanyID: "other", DepartmentID: f.Tenant.DepartmentID}
	refusal(t, change(stranger), fault.NotFound, "", "Department Worker not found")
	f.Exec("UPDATE edge_workers SET migration_namespace = 'elsewhere'")
	refusal(t, change(by), fault.Conflict, "worker_migration_in_progress", "Worker migration is in progress")
	f.Exec("UPDATE edge_workers SET migration_namespace = ''")
	for column, value := range map[string]string{"state": "superseded", "builder_policy": "unknown", "lock_digest": "00", "bundle_digest": ""} {
		var old string
		f.Must(f.DB.Read(ctx).Raw("SELECT "+column+" FROM edge_worker_versions WHERE id = ?", f.live.ID).Scan(&old).Error)
		f.Exec("UPDATE edge_worker_versions SET "+column+" = ? WHERE id = ?", value, f.live.ID)
		refusal(t, change(by), fault.Unavailable, "", "Deployed department Worker release is unavailable")
		f.Exec("UPDATE edge_worker_versions SET "+column+" = ? WHERE id = ?", old, f.live.ID)
	}
	if sent := f.Front.Sent(); len(sent) != 0 || len(f.rows()) != 0 {
		t.Errorf("%v was sent, %d rows", sent, len(f.rows()))
	}
	f.Must(change(by))
	if len(f.rows()) != 1 {
		t.Errorf("%d rows", len(f.rows()))
	}
}

// S2-030 to S2-034, S2-036: turns of a department: one at a time, none during a
// deployment, none without Redis; another department is not kept waiting.
func TestTurns(t *testing.T) {
	f := onMySQL(t)
	ctx := t.Context()
	turns := live.Turns{DB: f.DB, Redis: f.Redis, Log: f.Log}
	end, err := turns.Take(ctx, f.Tenant)
	f.Must(err)
	_, err = turns.Take(ctx, f.Tenant)
	refusal(t, err, fault.Conflict, "deployment_in_progress", "Another Worker settings mutation or deployment is in progress")
	other, err := turns.Take(ctx, models.Tenant{CompanyID: f.Tenant.CompanyID, DepartmentID: "other"})
	f.Must(err)
	other()
	_, err = f.Live.PutSecret(ctx, f.By(), "TOKEN", "x")
	refusal(t, err, fault.Conflict, "deployment_in_progress", "Another Worker settings mutation or deployment is in progress")
	_, err = f.Live.ReplaceAccessPolicy(ctx, f.By(), 0, "public", nil) // needs no turn
	f.Must(err)
	end()
	for status, blocks := range map[models.OutboxStatus]bool{
		models.OutboxPending: true, models.OutboxLeased: true, models.OutboxUncertain: true,
		models.OutboxCompleted: false, models.OutboxFailed: false, models.OutboxCancelled: false,
	} {
		f.Exec("UPDATE edge_worker_outbox SET status = ? WHERE operation = 'deploy'", status)
		end, err := turns.Take(ctx, f.Tenant)
		if blocks {
			refusal(t, err, fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")
			lock, err := claim.Settings(ctx, f.Redis, f.Tenant.CompanyID, f.Tenant.DepartmentID)
			f.Must(err) // the refused one did not keep it
			f.Must(lock.Release(ctx))
			continue
		}
		f.Must(err)
		end()
	}
	_, err = live.Turns{DB: f.DB, Redis: plane.DeadRedis(t), Log: f.Log}.Take(ctx, f.Tenant)
	refusal(t, err, fault.Unavailable, "", "Operation-settings mutation lock is unavailable")
}

// A command is recorded for the release that is live when it is recorded, or
// not at all; a commit whose acknowledgement is lost is read back.
func TestRecording(t *testing.T) {
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	set := func(base int64) error {
		_, err := f.Live.ReplaceAccessPolicy(ctx, by, base, "public", nil)
		return err
	}
	acknowledged := 0
	f.DB.AfterCommit(func(err error) error {
		acknowledged++
		if acknowledged == 1 && err == nil {
			return context.DeadlineExceeded
		}
		return err
	})
	f.Must(set(0))
	f.DB.AfterCommit(nil)
	if rows := f.rows(); len(rows) != 1 || rows[0].Status != models.OutboxCompleted || f.facts("access_policy.replace") != 1 {
		t.Errorf("%d rows", len(rows))
	}
	f.Front.Once("access_policy.replace", 0)
	f.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE operation = 'deploy'")
	next := f.Deploy(project("two", "a", "b"), "")
	f.Front.Sent()
	f.Exec("UPDATE edge_workers SET current_version_id = ?", f.live.ID) // what a slow reader still sees
	f.Exec("UPDATE edge_worker_versions SET state = 'deployed' WHERE id = ?", f.live.ID)
	refusal(t, set(1), fault.Unavailable, "worker_changing", "The Worker is being changed; try again")
	if row := f.last(); row.Status != models.OutboxFailed || row.LastErrorCode != "release_generation_mismatch" {
		t.Errorf("row %s %s", row.Status, row.LastErrorCode)
	}
	f.Exec("UPDATE edge_workers SET current_version_id = ?", next.ID)
	f.Must(set(1))
}
