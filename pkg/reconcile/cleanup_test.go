package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// bucket is a plane's store with the requests that reached it.
type bucket struct {
	*artifacttest.Counting
	store artifact.Store
}

func bucketOf(p *plane.Plane) bucket {
	counting := artifacttest.Count(p.Backend)
	return bucket{counting, artifact.NewFenced(counting)}
}

func cleaner(t *testing.T, p *plane.Plane, store func() (artifact.Store, error)) *reconcile.Cleaner {
	t.Helper()
	c, err := reconcile.NewCleaner(reconcile.CleanupParams{DB: p.DB, Outbox: p.Outbox, Store: store, Owner: "sweep", Log: p.Log})
	must(t, err)
	return c
}

func (b bucket) resolve() (artifact.Store, error) { return b.store, nil }

func clean(t *testing.T, p *plane.Plane, b bucket) reconcile.Result {
	t.Helper()
	result, err := cleaner(t, p, b.resolve).RunOnce(t.Context(), time.Minute)
	must(t, err)
	return result
}

// abandoned stores the two objects of a submission that never landed.
func abandoned(t *testing.T, p *plane.Plane) outbox.CleanupIntent {
	t.Helper()
	in := outbox.CleanupIntent{Tenant: p.Tenant, ArtifactID: uuid.NewString(), CreatedBy: "user:x"}
	for kind, item := range map[artifact.Kind]*outbox.CleanupItem{artifact.Project: &in.Project, artifact.Bundle: &in.Bundle} {
		content := []byte(string(kind) + in.ArtifactID)
		object := artifact.Object{Tenant: artifact.Tenant(p.Tenant), Kind: kind, ArtifactID: in.ArtifactID, Digest: canonical.SHA256(content), Content: content}
		must(t, p.Store.Put(t.Context(), object))
		key, err := object.Key()
		must(t, err)
		*item = outbox.CleanupItem{Kind: string(kind), ObjectKey: key, Digest: object.Digest}
	}
	must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
	return in
}

// due ends the grace of every intent, and the pause of every failed one.
func due(p *plane.Plane) {
	p.Exec("UPDATE edge_worker_outbox SET created_at = '2020-01-01 00:00:00', next_attempt_at = '2020-01-01 00:15:00' WHERE operation = 'artifact_cleanup' AND status = 'pending'")
}

func intent(t *testing.T, p *plane.Plane, in outbox.CleanupIntent) models.Outbox {
	t.Helper()
	row, err := outbox.FindCleanup(p.DB.Read(context.WithoutCancel(t.Context())), in.Tenant, in.ArtifactID)
	must(t, err)
	return row
}

func exists(t *testing.T, p *plane.Plane, key string) bool {
	t.Helper()
	_, err := p.Backend.Stat(context.WithoutCancel(t.Context()), key)
	if err != nil && !errors.Is(err, artifact.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// landed submits a version and puts its intent back as if it had not been
// adopted.
func landed(t *testing.T, p *plane.Plane, text string) (models.Version, outbox.CleanupIntent) {
	t.Helper()
	v := p.Submit(text)
	p.Exec("UPDATE edge_worker_outbox SET status = 'pending', version_id = '' WHERE dedupe_key = ?", outbox.CleanupDedupeKey(v.ArtifactID))
	return v, outbox.CleanupIntent{
		Tenant: p.Tenant, ArtifactID: v.ArtifactID,
		Project: outbox.CleanupItem{Kind: "project", ObjectKey: v.ProjectObjectKey, Digest: v.ProjectDigest},
		Bundle:  outbox.CleanupItem{Kind: "bundle", ObjectKey: v.BundleObjectKey, Digest: v.BundleDigest},
	}
}

// S0-61, S0-73, S0-83, S1-151: nobody references the pair: both objects go, the
// row is completed, and a second round over missing objects settles as well.
func TestCleanupDeletesOrphans(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, v, in := bucketOf(p), p.Submit("kept"), abandoned(t, p)
		if result := clean(t, p, b); len(result) != 0 || len(b.Calls()) != 0 || !exists(t, p, in.Project.ObjectKey) {
			t.Errorf("before the grace: %v", result)
		}
		due(p)
		if result := clean(t, p, b); result["completed"] != 1 || result["claimed"] != 1 || b.Count("delete") != 2 {
			t.Errorf("%v, %v", result, b.Calls())
		}
		row := intent(t, p, in)
		if row.Status != models.OutboxCompleted || row.VersionID != "" || row.LeaseOwner != "" || exists(t, p, in.Project.ObjectKey) || exists(t, p, in.Bundle.ObjectKey) {
			t.Errorf("%+v", row)
		}
		if !exists(t, p, v.ProjectObjectKey) || !exists(t, p, v.BundleObjectKey) {
			t.Error("a version lost its objects")
		}
		p.Exec("UPDATE edge_worker_outbox SET status = 'pending' WHERE dedupe_key = ?", row.DedupeKey)
		due(p)
		if result := clean(t, p, b); result["completed"] != 1 {
			t.Errorf("over missing objects: %v", result)
		}
	})
}

// S0-77 to S0-80, S1-145 to S1-148: both referenced: cancelled, pointing to the
// owning version, and no request reaches the store.
func TestCleanupKeepsReferencedObjects(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b := bucketOf(p)
		v, in := landed(t, p, "one")
		due(p)
		if result := clean(t, p, b); result["cancelled"] != 1 || len(b.Calls()) != 0 {
			t.Errorf("%v, %v", result, b.Calls())
		}
		if row := intent(t, p, in); row.Status != models.OutboxCancelled || row.VersionID != v.ID || !exists(t, p, v.ProjectObjectKey) || !exists(t, p, v.BundleObjectKey) {
			t.Errorf("%+v", row)
		}
	})
}

// S0-81, S1-149: damage that makes two versions own one key each deletes
// nothing; the row points to the owner of the project (D19).
func TestCleanupFailsClosedOnDamage(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b := bucketOf(p)
		one, in := landed(t, p, "one")
		two := p.Submit("two")
		p.Exec("UPDATE edge_worker_versions SET bundle_object_key = ? WHERE id = ?", in.Bundle.ObjectKey, two.ID)
		p.Exec("UPDATE edge_worker_versions SET bundle_object_key = 'elsewhere' WHERE id = ?", one.ID)
		due(p)
		if result := clean(t, p, b); result["cancelled"] != 1 || len(b.Calls()) != 0 {
			t.Errorf("%v, %v", result, b.Calls())
		}
		if row := intent(t, p, in); row.VersionID != one.ID {
			t.Errorf("points to %s", row.VersionID)
		}
	})
}

// S0-82, S1-150: one key referenced: only the other object goes, in both
// directions.
func TestCleanupDeletesOnlyTheOrphan(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for _, column := range []string{"project_object_key", "bundle_object_key"} {
			b := bucketOf(p)
			v, in := landed(t, p, column)
			p.Exec("UPDATE edge_worker_versions SET "+column+" = 'elsewhere' WHERE id = ?", v.ID)
			orphan, kept := in.Project.ObjectKey, in.Bundle.ObjectKey
			if column == "bundle_object_key" {
				orphan, kept = kept, orphan
			}
			due(p)
			result := clean(t, p, b)
			if result["completed"] != 1 || !slices.Equal(b.Calls(), []artifacttest.Call{{Method: "delete", Key: orphan}}) || exists(t, p, orphan) || !exists(t, p, kept) {
				t.Errorf("%s: %v, %v", column, result, b.Calls())
			}
		}
	})
}

// S0-77, S1-145: a row of another tenant with the same key is no reference.
func TestCleanupAsksTheTenantsRowsOnly(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, in := bucketOf(p), abandoned(t, p)
		other := *p
		other.Tenant = models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "other-" + uuid.NewString()[:8]}
		other.Provision(other.Tenant)
		v := other.Submit("other")
		p.Exec("UPDATE edge_worker_versions SET project_object_key = ?, bundle_object_key = ? WHERE id = ?", in.Project.ObjectKey, in.Bundle.ObjectKey, v.ID)
		due(p)
		if result := clean(t, p, b); result["completed"] != 1 || exists(t, p, in.Project.ObjectKey) {
			t.Errorf("%v", result)
		}
	})
}

// S0-85, S0-88, S1-152, S1-153, S1-156: a failed delete stops the pair, puts the
// row back with its payload and one attempt more, and the next attempt sends
// both again.
func TestCleanupRetriesAsAGroup(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, in := bucketOf(p), abandoned(t, p)
		payload := *intent(t, p, in).Payload
		due(p)
		b.FailWith(errors.New("refused"))
		result, err := cleaner(t, p, b.resolve).RunOnce(t.Context(), time.Minute)
		row := intent(t, p, in)
		if err == nil || result["retry"] != 1 || b.Count("delete") != 1 || row.Status != models.OutboxPending || row.Attempts != 1 ||
			row.LastErrorCode != "artifact_cleanup_failed" || *row.Payload != payload || row.NextAttemptAt.Before(row.UpdatedAt.Add(15*time.Second)) {
			t.Errorf("%v, %v, %+v", result, err, row)
		}
		if strings.Contains(*row.LastError, "refused") {
			t.Error("a cause was stored")
		}
		b.FailWith(nil)
		if result := clean(t, p, b); len(result) != 0 {
			t.Errorf("before its pause has passed: %v", result)
		}
		due(p)
		if result := clean(t, p, b); result["completed"] != 1 || b.Count("delete") != 3 {
			t.Errorf("%v, %v", result, b.Calls())
		}
	})
}

// S0-87, S1-155: an outage fails the whole batch after one request, a store that
// cannot be built fails it without any; when it is back all of them settle.
func TestCleanupOutageFailsTheBatch(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b := bucketOf(p)
		for range 3 {
			abandoned(t, p)
		}
		attempts := func(want int) {
			t.Helper()
			var rows []models.Outbox
			must(t, p.DB.Read(t.Context()).Where("operation = 'artifact_cleanup'").Find(&rows).Error)
			for _, row := range rows {
				if row.Status != models.OutboxPending || row.Attempts != want || !row.NextAttemptAt.After(row.UpdatedAt) {
					t.Errorf("%+v", row)
				}
			}
		}
		due(p)
		b.FailWith(errors.New("no route to host"))
		result, err := cleaner(t, p, b.resolve).RunOnce(t.Context(), time.Minute)
		if !errors.Is(err, artifact.ErrUnavailable) || result["retry"] != 3 || b.Count("delete") != 1 {
			t.Errorf("outage: %v, %v, %d requests", result, err, b.Count("delete"))
		}
		attempts(1)
		due(p)
		unbuilt := errors.New("the store's settings are wrong")
		result, err = cleaner(t, p, func() (artifact.Store, error) { return nil, unbuilt }).RunOnce(t.Context(), time.Minute)
		if !errors.Is(err, unbuilt) || result["retry"] != 3 || b.Count("delete") != 1 {
			t.Errorf("not built: %v, %v", result, err)
		}
		attempts(2)
		due(p)
		b.FailWith(nil)
		if result := clean(t, p, b); result["completed"] != 3 {
			t.Errorf("back again: %v", result)
		}
	})
}

// S1-144, S0-45: an intent that cannot be used is failed with its evidence, and
// no request reaches the store: neither for a broken payload nor for another
// tenant's key.
func TestCleanupIsolatesInvalidPayloads(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, in := bucketOf(p), abandoned(t, p)
		row := intent(t, p, in)
		foreign := artifact.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}.Prefix()
		for name, payload := range map[string]any{
			"none": nil, "no JSON": "{", "one item": `{"items":[{"kind":"project","object_key":"k","digest":"` + in.Project.Digest + `"}]}`,
			"another field": strings.Replace(*row.Payload, `"digest"`, `"more":1,"digest"`, 1),
			"foreign key":   strings.Replace(*row.Payload, artifact.Tenant(p.Tenant).Prefix(), foreign, 1),
			"dotted key":    strings.Replace(*row.Payload, "/project/", "/project/../", 1),
			"swapped kinds": strings.NewReplacer(`"project"`, `"bundle"`, `"bundle"`, `"project"`).Replace(*row.Payload),
		} {
			p.Exec("UPDATE edge_worker_outbox SET status = 'pending', payload = ? WHERE id = ?", payload, row.ID)
			due(p)
			result := clean(t, p, b)
			got := intent(t, p, in)
			if result["invalid"] != 1 || got.Status != models.OutboxFailed || got.LastErrorCode != "cleanup_payload_invalid" || len(b.Calls()) != 0 {
				t.Errorf("%s: %v, %+v", name, result, got)
			}
		}
		if !exists(t, p, in.Project.ObjectKey) {
			t.Error("an object was deleted")
		}
	})
}

// S0-84: a sweep that died between the deletion and the settlement keeps the
// row until its lease has ended; then another one repeats the harmless delete.
func TestCleanupAfterACrashedSweep(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, in := bucketOf(p), abandoned(t, p)
		due(p)
		ctx, kill := context.WithCancel(t.Context())
		_, _ = cleaner(t, p, func() (artifact.Store, error) {
			return artifact.NewFenced(&lastDelete{Backend: b.Counting, then: kill}), nil
		}).RunOnce(ctx, time.Minute)
		// What the dead sweep could still write is taken back.
		p.Exec("UPDATE edge_worker_outbox SET status = 'leased', lease_owner = 'dead:1', lease_expires_at = ? WHERE operation = 'artifact_cleanup'", time.Now().UTC().Add(time.Hour))
		if result := clean(t, p, b); len(result) != 0 {
			t.Errorf("while it is leased: %v", result)
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = '2020-01-01 00:00:00'")
		if result := clean(t, p, b); result["completed"] != 1 || intent(t, p, in).Status != models.OutboxCompleted {
			t.Errorf("%v", result)
		}
	})
}

// lastDelete calls then after the second deletion.
type lastDelete struct {
	artifact.Backend
	n    int
	then func()
}

func (l *lastDelete) Delete(ctx context.Context, key string) error {
	err := l.Backend.Delete(ctx, key)
	l.n++
	if l.n == 2 {
		l.then()
	}
	return err
}

// A submission that failed makes its intent due at once, and a PUT whose answer
// it never had may still be on its way: the sweep deletes at once, and looks
// once more when the grace has passed (S0-62, S0-89).
func TestCleanupWaitsForLateWrites(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b, in := bucketOf(p), abandoned(t, p)
		late, err := readObject(t, p, in.Project.ObjectKey)
		must(t, err)
		must(t, p.Outbox.MakeCleanupDue(t.Context(), p.Tenant, in.ArtifactID, ""))
		if result := clean(t, p, b); result["held"] != 1 || exists(t, p, in.Project.ObjectKey) || exists(t, p, in.Bundle.ObjectKey) {
			t.Errorf("%v", result)
		}
		row := intent(t, p, in)
		if row.Status != models.OutboxPending || row.LastErrorCode != "submission_not_committed" || row.NextAttemptAt.Before(row.CreatedAt.Add(900*time.Second)) {
			t.Errorf("%+v", row)
		}
		must(t, p.Store.Put(t.Context(), artifact.Object{
			Tenant: artifact.Tenant(p.Tenant), Kind: artifact.Project, ArtifactID: in.ArtifactID, Digest: in.Project.Digest, Content: late,
		}))
		due(p)
		if result := clean(t, p, b); result["completed"] != 1 || exists(t, p, in.Project.ObjectKey) {
			t.Errorf("%v", result)
		}
	})
}

func readObject(t *testing.T, p *plane.Plane, key string) ([]byte, error) {
	t.Helper()
	return p.Store.Get(t.Context(), artifact.Tenant(p.Tenant), artifact.Project, key, 0)
}

// S0-74, S0-75: rounds at once handle each of many intents once, batch after
// batch.
func TestCleanupRoundsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b := bucketOf(p)
		for range outbox.CleanupBatch + 3 {
			abandoned(t, p)
		}
		due(p)
		results := make([]reconcile.Result, 2)
		var group sync.WaitGroup
		for i := range results {
			c := cleaner(t, p, b.resolve)
			group.Go(func() {
				result, err := c.RunOnce(context.Background(), time.Minute)
				results[i] = result
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		again := clean(t, p, b) // a row that the other had locked is left to the next round
		if sum := results[0]["completed"] + results[1]["completed"] + again["completed"]; sum != outbox.CleanupBatch+3 || b.Count("delete") != 2*sum {
			t.Errorf("%v, %v: %d deletes", results, again, b.Count("delete"))
		}
	})
}

// S0-59, S0-60, S0-61: the objects of a superseded version survive every round
// and stay readable.
func TestCleanupKeepsSupersededVersions(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		b := bucketOf(p)
		v, in := landed(t, p, "one")
		p.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE id = ?", v.ID)
		due(p)
		clean(t, p, b)
		_, archive, err := version.Source(t.Context(), p.DB, p.Store, p.Tenant, v.ID)
		if err != nil || canonical.SHA256(archive) != v.ProjectDigest || intent(t, p, in).Status != models.OutboxCancelled || !exists(t, p, v.BundleObjectKey) {
			t.Errorf("%v", err)
		}
	})
}

func TestCleanerNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := reconcile.NewCleaner(reconcile.CleanupParams{}); err == nil {
		t.Error("a lane of nothing")
	}
}
