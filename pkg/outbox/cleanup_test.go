package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

var (
	hexA = strings.Repeat("a", 64)
	hexB = strings.Repeat("b", 64)
)

func intentOf(p *plane.Plane) outbox.CleanupIntent {
	id := uuid.NewString()
	return outbox.CleanupIntent{
		Tenant: p.Tenant, ArtifactID: id, CreatedBy: "user:x",
		Project: outbox.CleanupItem{Kind: "project", ObjectKey: "edge-workers/p/project/" + id, Digest: hexA},
		Bundle:  outbox.CleanupItem{Kind: "bundle", ObjectKey: "edge-workers/p/bundle/" + id, Digest: hexB},
	}
}

func find(t *testing.T, p *plane.Plane, in outbox.CleanupIntent) models.Outbox {
	t.Helper()
	row, err := outbox.FindCleanup(p.DB.Read(context.WithoutCancel(t.Context())), in.Tenant, in.ArtifactID)
	must(t, err)
	return row
}

func adopt(t *testing.T, p *plane.Plane, in outbox.CleanupIntent) error {
	t.Helper()
	return p.DB.Tx(t.Context(), func(tx *database.Tx) error { return outbox.AdoptCleanup(tx, in, "version-1") })
}

// S0-64 to S0-67, S1-027, S1-139 to S1-141, S1-031, S1-326, S3-33: what the intent
// says, and that it falls due after 15 minutes and never before.
func TestCleanupIntent(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		row := find(t, p, in)
		if row.DedupeKey != "artifact-cleanup:"+in.ArtifactID || row.Operation != "artifact_cleanup" || row.Status != models.OutboxPending ||
			row.DispatchNamespace != plane.Namespace || row.CreatedBy != "user:x" || row.LastErrorCode != "" || row.ActiveDeploymentWorkerID != nil {
			t.Errorf("%+v", row)
		}
		want := `{"items":[{"digest":"` + hexA + `","kind":"project","object_key":"` + in.Project.ObjectKey + `"},` +
			`{"digest":"` + hexB + `","kind":"bundle","object_key":"` + in.Bundle.ObjectKey + `"}]}`
		if *row.Payload != want {
			t.Errorf("payload %s", *row.Payload)
		}
		if wait := row.NextAttemptAt.Sub(row.CreatedAt); outbox.CleanupGrace != 900*time.Second || wait < 900*time.Second || wait > 901*time.Second || row.NextAttemptAt.Nanosecond() != 0 {
			t.Errorf("due after %v", wait)
		}
		if err := p.Outbox.CreateCleanupIntent(t.Context(), in); !database.IsDuplicate(err) { // S1-139
			t.Errorf("a second intent of one artifact: %v", err)
		}
	})
}

// A lost acknowledgement of the intent's commit is resolved by reading it
// back: there, go on; not there, stop.
func TestCleanupIntentAcknowledgementLost(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		lost := errors.New("connection reset")
		in, gone := intentOf(p), intentOf(p)
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, lost) })
		err := p.Outbox.CreateCleanupIntent(t.Context(), in)
		p.DB.AfterCommit(func(err error) error {
			p.Exec("DELETE FROM edge_worker_outbox WHERE dedupe_key = ?", outbox.CleanupDedupeKey(gone.ArtifactID))
			return errors.Join(err, lost)
		})
		goneErr := p.Outbox.CreateCleanupIntent(t.Context(), gone)
		p.DB.AfterCommit(nil)
		if err != nil || find(t, p, in).Status != models.OutboxPending {
			t.Errorf("committed: %v", err)
		}
		if !errors.Is(goneErr, lost) || !errors.Is(goneErr, outbox.ErrNoIntent) {
			t.Errorf("not committed: %v", goneErr)
		}
	})
}

// D4: another tenant's intent does not exist.
func TestCleanupIntentIsTheTenants(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		for _, other := range []models.Tenant{{CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}, {CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}} {
			if _, err := outbox.FindCleanup(p.DB.Read(t.Context()), other, in.ArtifactID); !errors.Is(err, outbox.ErrNoIntent) {
				t.Errorf("%+v reads it: %v", other, err)
			}
			must(t, p.Outbox.MakeCleanupDue(t.Context(), other, in.ArtifactID, ""))
			foreign := in
			foreign.Tenant = other
			if err := adopt(t, p, foreign); !errors.Is(err, outbox.ErrNotAdoptable) { // S1-158
				t.Errorf("%+v adopts it: %v", other, err)
			}
		}
		if row := find(t, p, in); row.Status != models.OutboxPending || row.LastErrorCode != "" {
			t.Errorf("%+v", row)
		}
		must(t, adopt(t, p, in))
	})
}

// S0-69, S1-157: the adoption cancels the intent and points it to the version,
// in the caller's transaction alone.
func TestAdoption(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		before, stop := find(t, p, in), errors.New("the caller rolls back")
		err := p.DB.Tx(t.Context(), func(tx *database.Tx) error { must(t, outbox.AdoptCleanup(tx, in, "version-1")); return stop })
		if !errors.Is(err, stop) || !equal(before, find(t, p, in)) {
			t.Errorf("rolled back: %v, %+v", err, find(t, p, in))
		}
		must(t, adopt(t, p, in))
		row := find(t, p, in)
		if row.Status != models.OutboxCancelled || row.VersionID != "version-1" || row.NextAttemptAt != nil || row.LastErrorCode != "" {
			t.Errorf("%+v", row)
		}
		for status := range map[string]bool{"cancelled": true, "leased": true, "completed": true, "failed": true, "uncertain": true} {
			set(t, p, row.ID, "status = ?", status)
			if err := adopt(t, p, in); !errors.Is(err, outbox.ErrNotAdoptable) {
				t.Errorf("a %s intent was adopted: %v", status, err)
			}
		}
	})
}

// S1-159: each of the two keys and two digests altered alone is refused.
func TestAdoptionComparesKeysAndDigests(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		for name, change := range map[string]func(*outbox.CleanupIntent){
			"project key":    func(i *outbox.CleanupIntent) { i.Project.ObjectKey += "x" },
			"project digest": func(i *outbox.CleanupIntent) { i.Project.Digest = hexB },
			"bundle key":     func(i *outbox.CleanupIntent) { i.Bundle.ObjectKey += "x" },
			"bundle digest":  func(i *outbox.CleanupIntent) { i.Bundle.Digest = hexA },
			"swapped":        func(i *outbox.CleanupIntent) { i.Project, i.Bundle = i.Bundle, i.Project },
			"artifact":       func(i *outbox.CleanupIntent) { i.ArtifactID = "other" },
		} {
			altered := in
			change(&altered)
			if err := adopt(t, p, altered); !errors.Is(err, outbox.ErrNotAdoptable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		row := find(t, p, in)
		for _, payload := range []string{"{", "null", `{"items":[]}`, *row.Payload + "}", *row.Payload + " {}", strings.Replace(*row.Payload, `"items"`, `"more":1,"items"`, 1)} {
			set(t, p, row.ID, "payload = ?", payload)
			if err := adopt(t, p, in); !errors.Is(err, outbox.ErrNotAdoptable) {
				t.Errorf("payload %.20s: %v", payload, err)
			}
		}
		set(t, p, row.ID, "payload = ?", *row.Payload)
		must(t, adopt(t, p, in))
	})
}

// S0-72, S1-160, S1-161: a submission that did not commit makes its intent due
// now, with the code; one that was adopted is left alone.
func TestMakeCleanupDue(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for code, want := range map[string]string{"": "submission_not_committed", "another": "another"} {
			in := intentOf(p)
			must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
			must(t, p.Outbox.MakeCleanupDue(t.Context(), p.Tenant, in.ArtifactID, code))
			row := find(t, p, in)
			if row.Status != models.OutboxPending || row.LastErrorCode != want || row.NextAttemptAt.After(now(t, p)) || row.NextAttemptAt.Nanosecond() != 0 {
				t.Errorf("%+v", row)
			}
			for _, status := range []string{"cancelled", "failed", "uncertain"} {
				set(t, p, row.ID, "status = ?, last_error_code = ''", status)
				before := find(t, p, in)
				must(t, p.Outbox.MakeCleanupDue(t.Context(), p.Tenant, in.ArtifactID, code))
				if !equal(before, find(t, p, in)) {
					t.Errorf("a %s intent was touched", status)
				}
			}
		}
	})
}

// S1-140 to S1-143: exactly one project and one bundle item, with a key and a
// digest of 64 hex digits.
func TestCleanupPayload(t *testing.T) {
	t.Parallel()
	item := func(kind, digest string) outbox.CleanupItem {
		return outbox.CleanupItem{Kind: kind, ObjectKey: "k", Digest: digest}
	}
	good := []outbox.CleanupItem{item("project", hexA), item("bundle", hexB)}
	if err := (outbox.CleanupPayload{Items: good}).Validate(); err != nil {
		t.Errorf("control: %v", err)
	}
	for name, items := range map[string][]outbox.CleanupItem{
		"none": nil, "one": good[:1], "three": append(good[:2:2], good[0]), "two projects": {good[0], good[0]},
		"another kind": {good[0], item("log", hexA)}, "63 digits": {good[0], item("bundle", hexB[:63])}, "65 digits": {good[0], item("bundle", hexB+"b")},
		"no hex": {good[0], item("bundle", strings.Repeat("g", 64))}, "upper case": {good[0], item("bundle", strings.Repeat("B", 64))},
		"no key": {good[0], {Kind: "bundle", Digest: hexB}}, "no digest": {good[0], item("bundle", "")},
	} {
		if err := (outbox.CleanupPayload{Items: items}).Validate(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	raw, err := json.Marshal(good[0])
	if err != nil || string(raw) != `{"kind":"project","object_key":"k","digest":"`+hexA+`"}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// An intent that is not valid is not written: 0 rows.
func TestInvalidIntentIsNotWritten(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		bad := in
		bad.Bundle.Digest = "x"
		if err := p.Outbox.CreateCleanupIntent(t.Context(), bad); err == nil || p.Count("edge_worker_outbox") != 0 {
			t.Errorf("%v, %d rows", err, p.Count("edge_worker_outbox"))
		}
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		if p.Count("edge_worker_outbox") != 1 {
			t.Error("control")
		}
	})
}
