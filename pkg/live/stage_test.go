package live_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// deployment is the request to deploy v with settings; raw empty is without.
func (f *fixture) deployment(v models.Version, raw string) admission.Request {
	f.T.Helper()
	in := f.Request(v)
	if raw != "" {
		request, err := settings.ReadRequest([]byte(raw), "body", "operation_settings")
		f.Must(err)
		in.Settings = &request
	}
	return in
}

// refuses checks a refusal that leaves nothing: no row, no command that changes
// anything, no fact.
func (f *fixture) refuses(t *testing.T, in admission.Request, kind fault.Kind, code, message string) {
	t.Helper()
	f.Front.Sent()
	rows, staged := f.Count("edge_worker_outbox"), f.facts("operation_settings.staged")
	_, err := f.Desk.Deploy(t.Context(), in)
	refusal(t, err, kind, code, message)
	if f.Count("edge_worker_outbox") != rows || f.facts("operation_settings.staged") != staged || f.staged() != nil {
		t.Error("a refused deployment left something")
	}
	for _, sent := range f.Front.Sent() {
		if sent.MutationID != "" {
			t.Errorf("%s was sent", sent.Operation)
		}
	}
}

// staged is the table that waits at the Worker.
func (f *fixture) staged() *settings.Table {
	f.T.Helper()
	_, staged, err := settings.ReadTables(f.Command("operation_settings.get", nil))
	f.Must(err)
	return staged
}

func (f *fixture) operations() settings.Table {
	f.T.Helper()
	table, err := f.Live.Operations(f.T.Context(), f.By())
	f.Must(err)
	return table
}

func (f *fixture) submit(files map[string]string) models.Version {
	f.T.Helper()
	return f.SubmitArchive(projecttest.Archive(f.T, files))
}

// withTable is a live Worker whose operations a and b have settings, with a
// service account, and keys of their own.
func withTable(t *testing.T) *fixture {
	t.Helper()
	f := onMySQL(t)
	ctx, by := t.Context(), f.By()
	for _, id := range []string{"robot", "other"} {
		_, err := f.Live.PutCredentials(ctx, by, id, "user", "password")
		f.Must(err)
	}
	_, err := f.Live.ReplaceOperations(ctx, by, request(t, `{"base_revision":0,"default_service_account_id":"robot","operations":
		{"a":{"access":"api_key","service_account_id":"other"},"b":{"access":"public"}}}`))
	f.Must(err)
	for base, id := range []string{"a", "b"} {
		_, err := f.Live.RotateOperationKey(ctx, by, int64(base)+1, id)
		f.Must(err)
	}
	return f
}

// S2-089, S2-091 to S2-097, S2-103: the settings of a deployment are staged
// beside the live ones before anything is uploaded, under the target's
// generation, and take over when the target serves; what is listed wins, what is
// not keeps its whole row with its key, what the target lacks is gone. One fact
// tells of it, and the Worker keeps no receipt.
func TestSettingsOfADeployment(t *testing.T) {
	f := withTable(t)
	before := f.operations()
	v := f.submit(project("two", "b", "c", "a"))
	f.Front.Sent()
	_, err := f.Desk.Deploy(t.Context(), f.deployment(v, `{"base_revision":3,"default_service_account_id":null,"operations":{"a":{"access":"private"},"c":{"access":"disabled","service_account_id":"robot"}}}`))
	f.Must(err)
	sent := f.Front.Sent()
	if len(sent) != 4 || sent[0].Operation != "operation_settings.get" || sent[1].Operation != "service_accounts.list" ||
		sent[2].Operation != "operation_settings.stage" || sent[3].Operation != control.ReceiptAck {
		t.Fatalf("commands %v", sent)
	}
	staged := f.staged()
	want := map[string]settings.Row{"a": before.Operations["a"], "b": before.Operations["b"], "c": {Access: "disabled", ServiceAccountID: text("robot")}}
	row := want["a"]
	row.Access = "private"
	want["a"] = row
	if staged == nil || staged.State != "staged" || staged.ReleaseGeneration != v.ReleaseGeneration || staged.Revision != 4 ||
		staged.DefaultServiceAccountID != nil || !reflect.DeepEqual(staged.Operations, want) {
		t.Fatalf("staged %+v", staged)
	}
	if now := f.operations(); !reflect.DeepEqual(now, before) {
		t.Errorf("the live table changed: %+v", now)
	}
	if f.facts("operation_settings.staged") != 1 || f.receiptOf(sent[2]) != nil {
		t.Errorf("%d facts, receipt %s", f.facts("operation_settings.staged"), f.receiptOf(sent[2]))
	}
	f.Run()
	if now := f.operations(); now.State != "reconciled" || now.Revision != 4 || now.ReleaseGeneration != v.ReleaseGeneration ||
		now.DefaultServiceAccountID != nil || !reflect.DeepEqual(now.Operations, want) || f.staged() != nil {
		t.Errorf("after the deployment: %+v", now)
	}
}

func text(s string) *string { return &s }

// receiptOf is the receipt of a mutation that the Worker still has, nil if none.
func (f *fixture) receiptOf(sent liveplane.Sent) json.RawMessage {
	f.T.Helper()
	digest, err := control.CommandDigest(sent.Operation, sent.Payload)
	f.Must(err)
	raw := f.Command(control.ReceiptGet, map[string]string{"mutationId": sent.MutationID, "commandDigest": digest})
	result, err := settings.OpenReceipt(settings.Expectation{MutationID: sent.MutationID, Operation: settings.Operation(sent.Operation), CommandDigest: digest}, raw)
	f.Must(err)
	return result
}

// S2-041: where nothing was ever set nothing is staged.
func TestNothingToCarryOver(t *testing.T) {
	f := onMySQL(t)
	f.Front.Sent()
	f.Deploy(project("two", "a", "b"), "")
	for _, sent := range f.Front.Sent() {
		if sent.MutationID != "" {
			t.Errorf("%s was sent although nothing was set", sent.Operation)
		}
	}
	if table := f.operations(); table.Revision != 0 || f.facts("operation_settings.staged") != 0 {
		t.Errorf("%+v", table)
	}
}

// S2-100 to S2-102: without settings the live table is carried over with the
// default account.
func TestCarryOver(t *testing.T) {
	f := withTable(t)
	before := f.operations()
	v := f.Deploy(project("two", "b", "c"), "")
	now := f.operations()
	want := map[string]settings.Row{"b": before.Operations["b"], "c": settings.Inherit()}
	if now.Revision != before.Revision+1 || now.ReleaseGeneration != v.ReleaseGeneration || !reflect.DeepEqual(now.Operations, want) ||
		!reflect.DeepEqual(now.DefaultServiceAccountID, before.DefaultServiceAccountID) || f.facts("operation_settings.staged") != 1 {
		t.Errorf("carried over: %+v", now)
	}
}

// S2-098, S2-099, S2-104: refusals word for word; nothing is staged and no row
// is written.
func TestStagingRefusals(t *testing.T) {
	f := withTable(t)
	v := f.submit(project("two", "b", "c"))
	for _, base := range []string{"2", "4"} {
		f.refuses(t, f.deployment(v, `{"base_revision":`+base+`,"operations":{}}`), fault.Conflict, "", "Operation-settings revision is stale")
	}
	for raw, want := range map[string][]string{
		`{"base_revision":3,"operations":{"a":{"access":"public"},"x":{"access":"public"}}}`: {
			"operation_not_found [body operation_settings operations a]: operation_id is not present in the target release manifest",
			"operation_not_found [body operation_settings operations x]: operation_id is not present in the target release manifest",
		},
		`{"base_revision":3,"default_service_account_id":"nobody","operations":{"b":{"access":"public","service_account_id":"none"}}}`: {
			"service_account_not_found [body operation_settings default_service_account_id]: the service account has no credentials",
			"service_account_not_found [body operation_settings operations b service_account_id]: the service account has no credentials",
		},
	} {
		in := f.deployment(v, raw)
		f.refuses(t, in, fault.Invalid, "", "the input is not valid")
		_, err := f.Desk.Deploy(t.Context(), in)
		projecttest.Same(t, projecttest.Problems(t, err), want...)
	}
	_, err := f.Desk.Deploy(t.Context(), f.deployment(v, `{"base_revision":3,"operations":{"c":{"access":"public","service_account_id":"robot"}}}`))
	f.Must(err)
}

// D13, S2-105, S2-106: which releases take settings with a deployment.
func TestReleasesThatTakeSettings(t *testing.T) {
	t.Parallel()
	const raw = `{"base_revision":0,"operations":{}}`
	f := onSQLite(t)
	first := f.submit(project("one", "a"))
	_, err := f.Desk.Deploy(t.Context(), f.deployment(first, raw))
	refusal(t, err, fault.Conflict, "operation_settings_live_release_required", "A first deployment takes no operation settings; deploy, then set them")
	f.live = f.Deploy(project("old", "a"), builder.V2_7)
	const unsupported = "The release does not support operation settings; upload the project again and deploy the new revision"
	next := f.submit(project("two", "a"))
	_, err = f.Desk.Deploy(t.Context(), f.deployment(next, raw))
	refusal(t, err, fault.Conflict, "operation_settings_unsupported", unsupported)
	f.live = f.Deploy(project("three", "a"), "")
	again := f.submit(project("three", "a"))
	f.refuses(t, f.deployment(again, raw), fault.Conflict, "operation_settings_same_release",
		"The version is the release that is live; change its settings without a deployment")
	_, err = f.Desk.Deploy(t.Context(), f.deployment(f.submit(project("four", "a")), raw))
	f.Must(err)
	f.Run()
	if f.facts("operation_settings.staged") != 1 {
		t.Errorf("%d facts", f.facts("operation_settings.staged"))
	}
}

// An answer to the staging that is lost is settled by the receipt: applied, it
// goes on with one fact; not applied, nothing is deployed. Nothing is sent
// twice.
func TestStagingAnswersLost(t *testing.T) {
	f := withTable(t)
	for _, c := range []struct {
		fault liveplane.Fault
		fails bool
	}{{liveplane.LoseRequest, true}, {liveplane.LoseReply, false}, {liveplane.Garbage, false}, {liveplane.Twice, false}} {
		v := f.submit(project("next "+string(rune('a'+c.fault)), "a", "b"))
		facts := f.facts("operation_settings.staged")
		f.Front.Sent()
		f.Front.Once("operation_settings.stage", c.fault)
		_, err := f.Desk.Deploy(t.Context(), f.deployment(v, ""))
		sent := f.Front.Operations()
		if n := len(slices.DeleteFunc(sent, func(o string) bool { return o != "operation_settings.stage" })); n != 1 {
			t.Errorf("%v: staged %d times", c.fault, n)
		}
		if c.fails {
			refusal(t, err, fault.Unavailable, "worker_control_unavailable", unreachable)
			if f.facts("operation_settings.staged") != facts || f.staged() != nil {
				t.Error("a fact or a table of a staging that never was")
			}
			continue
		}
		f.Must(err)
		if f.facts("operation_settings.staged") != facts+1 {
			t.Errorf("%v: %d facts more", c.fault, f.facts("operation_settings.staged")-facts)
		}
		f.Run()
	}
}

// What an attempt left staged for a release does not go live with a later
// deployment that has nothing to do with it.
func TestLeftoverIsReplaced(t *testing.T) {
	f := onMySQL(t)
	v := f.submit(project("two", "a", "b"))
	in := f.deployment(v, `{"base_revision":0,"operations":{"a":{"access":"public"}}}`)
	in.BaseRevision-- // the staging goes well, and then the outbox refuses
	_, err := f.Desk.Deploy(t.Context(), in)
	refusal(t, err, fault.Conflict, "", "Worker revision changed; refresh before deploying")
	if left := f.staged(); left == nil || left.Operations["a"].Access != "public" {
		t.Fatalf("staged %+v", left)
	}
	_, err = f.Desk.Deploy(t.Context(), f.deployment(v, ""))
	f.Must(err)
	f.Run()
	if now := f.operations(); now.Operations["a"] != settings.Inherit() || now.ReleaseGeneration != v.ReleaseGeneration {
		t.Errorf("%+v", now)
	}
	if got := f.facts("operation_settings.staged"); got != 2 {
		t.Errorf("%d facts", got)
	}
}

// S2-065, S2-067, S2-068, S2-084 to S2-087, S1-305 to S1-308, S2-024 to S2-026:
// the digest is part of the ticket's identity; a retry stages nothing.
func TestRetriesWithSettings(t *testing.T) {
	f := withTable(t)
	const raw = `{"base_revision":3,"operations":{"a":{"access":"public"}}}`
	v := f.submit(project("two", "a", "b"))
	in := f.deployment(v, raw)
	made, err := f.Desk.Deploy(t.Context(), in)
	f.Must(err)
	row := f.Row(made.TicketID)
	payload, err := outbox.DecodeDeploy(row)
	if want := "deploy:" + row.WorkerID + ":" + v.ID + ":2:" + in.Settings.Digest; err != nil || row.DedupeKey != want ||
		payload.OperationSettingsDigest == nil || *payload.OperationSettingsDigest != in.Settings.Digest {
		t.Errorf("%s, want %s; %+v %v", row.DedupeKey, want, payload, err)
	}
	f.Front.Sent()
	again, err := f.Desk.Deploy(t.Context(), f.deployment(v, `{ "operations":{"a":{"access":"public"}}, "base_revision":3 }`))
	if err != nil || again.TicketID != made.TicketID || len(f.Front.Sent()) != 0 || f.facts("operation_settings.staged") != 1 {
		t.Errorf("the retry: %+v %v", again, err)
	}
	for _, other := range []string{"", `{"base_revision":3,"operations":{"a":{"access":"public","service_account_id":null}}}`} {
		_, err := f.Desk.Deploy(t.Context(), f.deployment(v, other))
		refusal(t, err, fault.Conflict, "operation_settings_dedupe_mismatch", "Deployment settings differ from the existing ticket")
	}
	f.Run()
	plain := f.submit(project("three", "a", "b"))
	_, err = f.Desk.Deploy(t.Context(), f.deployment(plain, ""))
	f.Must(err)
	_, err = f.Desk.Deploy(t.Context(), f.deployment(plain, `{"base_revision":4,"operations":{}}`))
	refusal(t, err, fault.Conflict, "operation_settings_dedupe_mismatch", "Deployment settings differ from the existing ticket")
	if len(f.Front.Sent()) == 0 {
		t.Error("the second deployment staged nothing")
	}
}

// S2-032, S2-035: a change of operation settings, secrets or accounts waits for
// no deployment and overtakes none; policy and configuration go on.
func TestNoChangeDuringADeployment(t *testing.T) {
	f := withTable(t)
	ctx, by := t.Context(), f.By()
	_, err := f.Desk.Deploy(ctx, f.deployment(f.submit(project("two", "a", "b")), ""))
	f.Must(err)
	rows := len(f.rows())
	_, operations := f.Live.ReplaceOperations(ctx, by, request(t, `{"base_revision":3,"operations":{"a":{"access":"public"},"b":{"access":"public"}}}`))
	_, rotate := f.Live.RotateOperationKey(ctx, by, 3, "a")
	_, put := f.Live.PutSecret(ctx, by, "TOKEN", "x")
	_, account := f.Live.DeleteCredentials(ctx, by, "robot")
	for _, err := range []error{operations, rotate, put, account} {
		refusal(t, err, fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")
	}
	if len(f.rows()) != rows {
		t.Error("a refused change left a row")
	}
	_, err = f.Live.ReplaceAccessPolicy(ctx, by, 0, "public", nil)
	f.Must(err)
	_, err = f.Live.ReplaceRuntimeConfig(ctx, by, 0, json.RawMessage(`{"a":1}`))
	f.Must(err)
	f.Run()
	_, err = f.Live.PutSecret(ctx, by, "TOKEN", "x")
	f.Must(err)
}
