package version_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// S2-002 to S2-004, S2-017, S2-018, S3-10, S3-11, S3-31, S3-68, S0-52, S0-53,
// S0-65: each submission is one ready revision with both documents and the
// exact objects; a refused one leaves no row, no object and no gap.
func TestSubmission(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		archive := projecttest.Archive(t, plane.Project("one"))
		v, err := p.Submitter.Submit(t.Context(), version.Submission{Tenant: p.Tenant, Actor: p.Actor, Archive: bytes.NewReader(archive)})
		must(t, err)
		row := p.Version(v.ID)
		if row.State != models.VersionReady || row.Revision != 1 || row.SBOM == nil || row.BuildReceipt == nil || row.Manifest == nil ||
			*row.SBOM == "" || *row.BuildReceipt == "" || row.ErrorCode != "" || row.DeployedAt != nil || row.CreatedBy != p.Actor.ID {
			t.Errorf("%+v", row)
		}
		if got := stored(t, p, row.ProjectObjectKey); !bytes.Equal(got, archive) || canonical.SHA256(got) == "" || row.ProjectSize != int64(len(archive)) {
			t.Error("the stored archive is not the one submitted")
		}
		if got := stored(t, p, row.BundleObjectKey); canonical.SHA256(got) != row.BundleDigest || row.BundleSize != int64(len(got)) {
			t.Error("the stored bundle is not the one recorded")
		}
		for _, broken := range []map[string]string{{"worker.json": "{"}, {}, {"worker.json": plane.Project("x")["worker.json"]}} {
			_, err := p.Submitter.Submit(t.Context(), version.Submission{Tenant: p.Tenant, Actor: p.Actor, Archive: bytes.NewReader(projecttest.Archive(t, broken))})
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("refused: %v", err)
			}
		}
		if len(versions(t, p)) != 1 || len(intents(t, p)) != 1 {
			t.Error("a refused submission left a row")
		}
		second := p.Submit("two")
		w := p.Worker()
		if second.Revision != 2 || w.LatestRevision != 2 || w.ID != v.WorkerID || second.WorkerID != w.ID || p.Count("edge_workers") != 1 ||
			w.Status != models.WorkerDraft || w.CurrentVersionID != "" || w.ScriptName != models.ScriptName(p.Tenant.CompanyID, p.Tenant.DepartmentID) {
			t.Errorf("second %d, Worker %+v", second.Revision, w)
		}
		facts := p.Facts()
		if last := facts[len(facts)-1]; last.Action != "version.submitted" || last.ResourceID != second.ID || last.Digest != second.ProjectDigest {
			t.Errorf("fact %+v", last)
		}
	})
}

// S2-005, S3-24: a revision is unique within its Worker, in the database.
func TestRevisionIsUnique(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		again := p.Version(v.ID)
		again.ID = "another"
		if err := p.DB.Read(t.Context()).Create(&again).Error; !database.IsDuplicate(err) {
			t.Errorf("the same revision again: %v", err)
		}
		again.Revision = 2
		must(t, p.DB.Read(t.Context()).Create(&again).Error)
	})
}

// S0-20, S0-22, S0-23, D4: the refusals before anything is read, in their
// order, word for word.
func TestSubmissionRefusals(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		refused := func(s *version.Submitter, of models.Tenant, kind fault.Kind, text string) {
			t.Helper()
			in := submission(t, p, "one")
			in.Tenant = of
			_, err := s.Submit(t.Context(), in)
			if f := fault.As(err); f == nil || f.Kind != kind || f.Message != text || f.Code != "" {
				t.Errorf("%v, want %s %q", err, kind, text)
			}
		}
		unconfigured := p.SubmitterOn(nil)
		p.Invalid = errors.New("no such provider")
		refused(unconfigured, p.Tenant, fault.Unavailable, "Edge Worker provider is not configured")
		refused(p.Submitter, p.Tenant, fault.Unavailable, "Edge Worker provider is not configured")
		p.Invalid = nil
		refused(unconfigured, p.Tenant, fault.Unavailable, "Edge Worker artifact storage is unavailable")
		refused(p.Submitter, models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "nobody"}, fault.NotFound, "Department not found")
		refused(p.Submitter, models.Tenant{CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}, fault.NotFound, "Department not found")
		deleted := models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: p.Tenant.DepartmentID + "x"}
		p.Provision(deleted)
		must(t, p.Directory.DeleteDepartment(t.Context(), p.Actor, deleted.DepartmentID))
		refused(p.Submitter, deleted, fault.NotFound, "Department not found")
		if p.Count("edge_worker_versions")+p.Count("edge_worker_outbox")+p.Count("edge_workers") != 0 {
			t.Error("a refusal left rows")
		}
		p.Submit("control")
		if _, err := version.NewSubmitter(version.Params{DB: p.DB}); err == nil {
			t.Error("a submitter without its parts")
		}
	})
}

// S0-64, S0-68, S0-66, S0-65, S1-138: at the first PUT the intent is there for
// another connection, naming exactly the objects that are then written; the
// version is not.
func TestIntentPrecedesObjects(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		var payload, key string
		h := &hooked{Backend: p.Backend, before: func(n int, _ string) error {
			rows := intents(t, p)
			if len(rows) != 1 || rows[0].Status != models.OutboxPending || len(versions(t, p)) != 0 {
				return fmt.Errorf("at PUT %d: %d intents, %d versions", n, len(rows), len(versions(t, p)))
			}
			payload, key = *rows[0].Payload, rows[0].DedupeKey
			return nil
		}}
		v, err := over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
		must(t, err)
		if len(h.puts) != 2 || key != "artifact-cleanup:"+v.ArtifactID {
			t.Errorf("%d PUTs, intent %s", len(h.puts), key)
		}
		want := fmt.Sprintf(`{"items":[{"digest":"%s","kind":"project","object_key":"%s"},{"digest":"%s","kind":"bundle","object_key":"%s"}]}`,
			v.ProjectDigest, v.ProjectObjectKey, v.BundleDigest, v.BundleObjectKey)
		if payload != want || !strings.HasSuffix(v.ProjectObjectKey, v.ArtifactID+".tar.gz") || !strings.HasSuffix(v.BundleObjectKey, v.ArtifactID+".mjs") {
			t.Errorf("payload %s", payload)
		}
		if rows := intents(t, p); len(rows) != 1 || rows[0].Status != models.OutboxCancelled || rows[0].VersionID != v.ID {
			t.Errorf("adopted: %+v", rows)
		}
	})
}

// S0-64: an intent that does not commit lets no PUT happen.
func TestNoIntentNoObjects(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		h := &hooked{Backend: p.Backend}
		p.DB.AfterCommit(func(err error) error { p.Exec("DELETE FROM edge_worker_outbox"); return errors.Join(err, errLost) })
		_, err := over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
		p.DB.AfterCommit(nil)
		if !errors.Is(err, errLost) || len(h.puts) != 0 || len(versions(t, p)) != 0 {
			t.Errorf("%v, %d PUTs", err, len(h.puts))
		}
		_, err = over(t, p, h).Submit(t.Context(), submission(t, p, "one"))
		if err != nil || len(h.puts) != 2 {
			t.Errorf("control: %v, %d PUTs", err, len(h.puts))
		}
	})
}

// S3-13: eight first submissions at once make one Worker and eight revisions.
func TestConcurrentFirstSubmissions(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	var wg sync.WaitGroup
	for i := range 8 {
		in := submission(t, p, fmt.Sprint(i))
		wg.Go(func() {
			_, err := p.Submitter.Submit(context.Background(), in)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rows := versions(t, p)
	if p.Count("edge_workers") != 1 || len(rows) != 8 || p.Worker().LatestRevision != 8 {
		t.Errorf("%d Workers, %d versions", p.Count("edge_workers"), len(rows))
	}
	for i, v := range rows {
		if v.Revision != int64(i+1) {
			t.Errorf("revision %d at place %d", v.Revision, i+1)
		}
	}
	for _, in := range intents(t, p) {
		if in.Status != models.OutboxCancelled {
			t.Errorf("intent %s", in.Status)
		}
	}
}

// S2-006, S3-22, S0-52, S0-59: later submissions and every state change leave
// the project, bundle and evidence columns and the objects as they were.
func TestVersionsAreImmutable(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		before, project := p.Version(v.ID), stored(t, p, v.ProjectObjectKey)
		p.Submit("two")
		ladder := []models.VersionState{models.VersionReady, models.VersionDeployPending, models.VersionDeploying, models.VersionDeployPending,
			models.VersionDeploying, models.VersionUncertain, models.VersionDeploying, models.VersionDeployed, models.VersionSuperseded}
		for i := 1; i < len(ladder); i++ {
			must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
				return version.Move(tx, v.ID, ladder[i-1], ladder[i], version.Evidence{ErrorCode: "code", ErrorMessage: "text"})
			}))
			after := p.Version(v.ID)
			if after.State != ladder[i] || after.ErrorCode != "code" || after.ErrorMessage == nil || *after.ErrorMessage != "text" {
				t.Errorf("at %s: %+v", ladder[i], after)
			}
			after.State, after.ErrorCode, after.ErrorMessage, after.UpdatedAt = before.State, "", nil, before.UpdatedAt
			same := *after.SBOM == *before.SBOM && *after.BuildReceipt == *before.BuildReceipt && *after.Manifest == *before.Manifest
			after.SBOM, after.BuildReceipt, after.Manifest, after.CreatedAt = before.SBOM, before.BuildReceipt, before.Manifest, before.CreatedAt
			if !same || after != before {
				t.Errorf("at %s:\nbefore %+v\nafter  %+v", ladder[i], before, after)
			}
		}
		if !bytes.Equal(project, stored(t, p, v.ProjectObjectKey)) || stored(t, p, v.BundleObjectKey) == nil {
			t.Error("an object changed")
		}
	})
}

// S2-008 to S2-013, S2-015: an edge is taken from the state it leaves and from
// no other, and what is no edge is refused as a defect.
func TestMoveIsFenced(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		all := []models.VersionState{models.VersionUploading, models.VersionReady, models.VersionDeployPending, models.VersionDeploying,
			models.VersionDeployed, models.VersionSuperseded, models.VersionFailed, models.VersionUncertain}
		for _, from := range all {
			for _, to := range all {
				p.Exec("UPDATE edge_worker_versions SET state = 'uploading' WHERE id = ?", v.ID) // a state that no edge leaves
				err := p.DB.Tx(t.Context(), func(tx *database.Tx) error { return version.Move(tx, v.ID, from, to, version.Evidence{}) })
				var forbidden models.ErrForbiddenTransition
				if models.Permits(models.VersionEdges, from, to) {
					if !errors.Is(err, models.ErrStaleTransition) {
						t.Errorf("%s → %s from another state: %v", from, to, err)
					}
				} else if !errors.As(err, &forbidden) {
					t.Errorf("%s → %s is no edge: %v", from, to, err)
				}
				if p.Version(v.ID).State != models.VersionUploading {
					t.Errorf("%s → %s moved it", from, to)
				}
			}
		}
	})
}

// S2-221, S2-222: the status a Worker returns to; SetWorker changes one row or
// says so.
func TestWorkerChanges(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Submit("one")
		if version.SettledStatus(models.Worker{}) != models.WorkerDraft || version.SettledStatus(models.Worker{CurrentVersionID: "v"}) != models.WorkerActive {
			t.Error("settled status")
		}
		change := func(id string) error {
			return p.DB.Tx(t.Context(), func(tx *database.Tx) error {
				return version.SetWorker(tx, id, map[string]any{"status": models.WorkerPaused})
			})
		}
		if err := change("nobody"); !errors.Is(err, models.ErrStaleTransition) {
			t.Errorf("%v", err)
		}
		if must(t, change(p.Worker().ID)); p.Worker().Status != models.WorkerPaused {
			t.Error("not paused")
		}
	})
}
