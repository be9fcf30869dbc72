package version_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// S0-55, S0-60: the exact bytes, whatever became of the version since.
func TestSource(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		archive := projecttest.Archive(t, plane.Project("one"))
		submitted, err := p.Submitter.Submit(t.Context(), version.Submission{Tenant: p.Tenant, Actor: p.Actor, Archive: bytes.NewReader(archive)})
		must(t, err)
		p.Submit("two")
		for _, state := range []models.VersionState{models.VersionReady, models.VersionDeployed, models.VersionSuperseded, models.VersionFailed, models.VersionUncertain} {
			p.Exec("UPDATE edge_worker_versions SET state = ? WHERE id = ?", state, submitted.ID)
			v, got, err := version.Source(t.Context(), p.DB, p.Store, p.Tenant, submitted.ID)
			if err != nil || v.ID != submitted.ID || !bytes.Equal(got, archive) {
				t.Errorf("%s: %d bytes, %v", state, len(got), err)
			}
		}
	})
}

// S0-21, S0-56 to S0-58, D19: whatever cannot be served is one answer, with no
// byte; a key that is not the tenant's own is refused before any store call.
func TestSourceRefusals(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		h := &hooked{Backend: p.Backend}
		store := artifact.NewFenced(h)
		refused := func(name string, s artifact.Store, calls int) {
			t.Helper()
			before := len(h.gets)
			_, got, err := version.Source(t.Context(), p.DB, s, p.Tenant, v.ID)
			f := fault.As(err)
			if f == nil || f.Kind != fault.Unavailable || f.Code != "edge_worker_artifact_unavailable" || f.Message != "Edge Worker artifact is unavailable" || got != nil {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			if n := len(h.gets) - before; n != calls {
				t.Errorf("%s: %d store calls", name, n)
			}
		}
		served := func() {
			t.Helper()
			if _, got, err := version.Source(t.Context(), p.DB, store, p.Tenant, v.ID); err != nil || len(got) == 0 {
				t.Errorf("control: %v", err)
			}
		}
		served()
		refused("not configured", nil, 0)
		column := func(name, columns string, calls int, args ...any) {
			t.Helper()
			p.Exec("UPDATE edge_worker_versions SET "+columns, args...)
			refused(name, store, calls)
			p.Exec("UPDATE edge_worker_versions SET project_object_key = ?, project_digest = ?, project_size = ?", v.ProjectObjectKey, v.ProjectDigest, v.ProjectSize)
		}
		foreign, err := artifact.Key(artifact.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}, artifact.Project, v.ProjectDigest, v.ArtifactID)
		must(t, err)
		column("another tenant's key", "project_object_key = ?", 0, foreign)
		column("the bundle's key", "project_object_key = bundle_object_key", 0)
		column("a key that climbs", "project_object_key = ?", 0, v.ProjectObjectKey[:45]+"../x")
		column("no key", "project_object_key = ''", 0)
		column("another digest", "project_digest = bundle_digest", 1)
		column("another size", "project_size = project_size + 1", 1)
		column("a missing object", "project_object_key = ?", 1, strings.TrimSuffix(v.ProjectObjectKey, ".tar.gz")+"x.tar.gz")

		altered := bytes.Repeat([]byte("x"), int(v.ProjectSize))
		replace := func(content []byte) {
			must(t, p.Backend.Delete(t.Context(), v.ProjectObjectKey))
			must(t, p.Backend.Put(t.Context(), v.ProjectObjectKey, content, artifact.Attributes{
				ContentType: "application/gzip", Metadata: map[string]string{artifact.MetadataDigest: v.ProjectDigest},
			}))
		}
		original := stored(t, p, v.ProjectObjectKey)
		replace(altered)
		refused("a changed object", store, 1)
		huge := make([]byte, artifact.MaxProjectSize+1)
		replace(huge)
		p.Exec("UPDATE edge_worker_versions SET project_size = ?, project_digest = ?", len(huge), canonical.SHA256(huge)) // all that the row says would fit
		refused("an object over 2 MiB", store, 1)
		replace(original)
		p.Exec("UPDATE edge_worker_versions SET project_size = ?, project_digest = ?", v.ProjectSize, v.ProjectDigest)
		served()
	})
}

// S3-16, D4: another tenant's Worker, version, list and source are those that
// do not exist; right department with the wrong company, and the reverse.
func TestReadsAreTheTenants(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		read := p.DB.Read(t.Context())
		for _, other := range []models.Tenant{
			{CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}, {CompanyID: p.Tenant.CompanyID, DepartmentID: "other"},
			{CompanyID: p.Tenant.CompanyID}, {DepartmentID: p.Tenant.DepartmentID}, {},
		} {
			_, worker := version.WorkerOf(read, other)
			_, one := version.Of(read, other, v.ID)
			_, archive, source := version.Source(t.Context(), p.DB, p.Store, other, v.ID)
			page, err := version.List(t.Context(), p.DB, other, "", 0)
			if !errors.Is(worker, version.ErrNoWorker) || !errors.Is(one, version.ErrNoVersion) || !errors.Is(source, version.ErrNoVersion) || archive != nil ||
				err != nil || len(page.Items) != 0 || page.Next != "" {
				t.Errorf("%+v: %v, %v, %v, %d versions", other, worker, one, source, len(page.Items))
			}
		}
		_, none := version.Of(read, p.Tenant, "nobody")
		if fault.As(none).Message != "Worker version not found" || version.ErrNoWorker.Message != "Department Worker not found" {
			t.Errorf("%v", none)
		}
		_, err := version.Of(read, p.Tenant, v.ID)
		must(t, err)
		_, err = version.WorkerOf(read, p.Tenant)
		must(t, err)
	})
}

// Pages run newest first, without the documents, to an end; a cursor that was
// not given is refused.
func TestList(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		full := p.Version(v.ID)
		for revision := int64(2); revision <= 205; revision++ {
			row := full
			row.ID, row.Revision = v.ID[:30]+string(rune('a'+revision%26))+string(rune('a'+revision/26)), revision
			must(t, p.DB.Read(t.Context()).Create(&row).Error)
		}
		for limit, want := range map[int]int{0: version.DefaultPage, -1: version.DefaultPage, 3: 3, version.MaxPage: version.MaxPage, version.MaxPage + 1: version.MaxPage, 1000: version.MaxPage} {
			page, err := version.List(t.Context(), p.DB, p.Tenant, "", limit)
			if err != nil || len(page.Items) != want || page.Items[0].Revision != 205 || page.Next == "" {
				t.Errorf("limit %d: %d items, %v", limit, len(page.Items), err)
			}
			if page.Items[0].SBOM != nil || page.Items[0].BuildReceipt != nil || page.Items[0].ProjectDigest == "" {
				t.Error("a list carries documents")
			}
		}
		var seen []int64
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			page, err := version.List(t.Context(), p.DB, p.Tenant, cursor, 41)
			must(t, err)
			for _, item := range page.Items {
				seen = append(seen, item.Revision)
			}
			cursor = page.Next
		}
		if len(seen) != 205 || !slices.IsSortedFunc(seen, func(a, b int64) int { return int(b - a) }) || seen[204] != 1 {
			t.Errorf("%d items", len(seen))
		}
		for _, cursor := range []string{"x", "!", "cjE=", "eDE", "cg", "cng", "cjk5OTk5OTk5OTk5OTk5OTk5OTk5OTk"} {
			_, err := version.List(t.Context(), p.DB, p.Tenant, cursor, 0)
			if f := fault.As(err); f == nil || f.Kind != fault.Invalid || f.Problems[0].Type != "cursor_invalid" {
				t.Errorf("cursor %q: %v", cursor, err)
			}
		}
	})
}
