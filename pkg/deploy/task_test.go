package deploy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

// admitted submits and admits a version and returns its message.
func admitted(t *testing.T, p *plane.Plane, text string) (models.Version, string, transports.Message) {
	t.Helper()
	v := p.Submit(text)
	view := p.Admit(v)
	messages := p.Published.Messages()
	if len(messages) == 0 {
		t.Fatal("nothing was published")
	}
	return v, view.TicketID, messages[len(messages)-1]
}

func handle(t *testing.T, task *deploy.Task, m transports.Message) {
	t.Helper()
	err := task.Handle(context.Background(), m)
	if err != nil {
		t.Fatalf("run the task: %v", err)
	}
}

// S1-055, S2-115 to S2-123, S2-134, S2-147 to S2-151, S2-164, S2-175, S2-176,
// S2-190 to S2-194, S2-014, S1-095, S1-101, S1-102, S1-110: the whole way, in
// the seed's order of stages, twice: the second deployment supersedes the
// first in one settlement.
func TestDeploymentCompletes(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		var stages []string
		task := p.Task(func(d *deploy.Params) { d.Trace = func(s string) { stages = append(stages, s) } })
		first, ticketID, message := admitted(t, p, "one")
		var seen models.Version
		var paused models.WorkerStatus
		p.Provider.OnUpload = func(provider.Release) error { // another connection at the moment of the PUT
			seen, paused = p.Version(first.ID), p.Worker().Status
			return nil
		}
		handle(t, task, message)
		if seen.State != models.VersionDeploying || paused != models.WorkerPaused {
			t.Errorf("at the PUT: version %s, Worker %s", seen.State, paused)
		}
		want := []string{"delivery_claim", "provider_resolution", "lease", "department_check", "snapshot", "integrity", "fence", "upload", "read_back", "readiness", "settlement"}
		if !slices.Equal(stages, want) {
			t.Errorf("stages %v", stages)
		}
		if got := p.Provider.Calls(); !slices.Equal(got, []string{"PUT", "GET"}) {
			t.Errorf("provider calls %v", got)
		}
		if got := p.Release.Probes(); !slices.Equal(got, []string{first.ReleaseGeneration}) {
			t.Errorf("probes %v", got)
		}
		checkLive(t, p, first.ID, ticketID)

		p.Provider.OnUpload = nil
		second, ticketID, message := admitted(t, p, "two")
		handle(t, task, message)
		checkLive(t, p, second.ID, ticketID)
		if got := p.Version(first.ID); got.State != models.VersionSuperseded {
			t.Errorf("the first version is %s", got.State)
		}
	})
}

func checkLive(t *testing.T, p *plane.Plane, versionID, ticketID string) {
	t.Helper()
	v, w, row := p.Version(versionID), p.Worker(), p.Row(ticketID)
	if v.State != models.VersionDeployed || v.DeployedAt == nil || v.ErrorCode != "" {
		t.Errorf("version: %s %v %q", v.State, v.DeployedAt, v.ErrorCode)
	}
	if w.CurrentVersionID != versionID || w.Status != models.WorkerActive {
		t.Errorf("Worker: current %s, %s", w.CurrentVersionID, w.Status)
	}
	if row.Status != models.OutboxCompleted || row.LeaseOwner != "" || row.LeaseExpiresAt != nil || row.LastErrorCode != "" {
		t.Errorf("row: %s owner %q until %v code %q", row.Status, row.LeaseOwner, row.LeaseExpiresAt, row.LastErrorCode)
	}
}

// S2-006, S2-007, S3-22, S3-23: a deployment changes only state, error_* and
// deployed_at of a version.
func TestDeploymentChangesOnlyItsEvidence(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, _, message := admitted(t, p, "one")
		before := p.Version(v.ID)
		handle(t, p.Task(nil), message)
		after := p.Version(v.ID)
		if after.State == before.State {
			t.Fatal("nothing changed") // the positive control
		}
		after.State, after.DeployedAt, after.UpdatedAt = before.State, before.DeployedAt, before.UpdatedAt
		same := *after.SBOM == *before.SBOM && *after.BuildReceipt == *before.BuildReceipt && *after.Manifest == *before.Manifest
		after.SBOM, after.BuildReceipt, after.Manifest = before.SBOM, before.BuildReceipt, before.Manifest
		if !same || after != before {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
	})
}

// S1-059, S1-271, S2-119, S2-264: a delivery of a settled deployment returns at
// once with no lease, no provider call and an unchanged row.
func TestSettledDeploymentIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, message := admitted(t, p, "one")
		task := p.Task(nil)
		handle(t, task, message)
		before, calls := p.Row(ticketID), len(p.Provider.Calls())
		handle(t, task, message)
		if err := p.Redis.Del(context.Background(), "edge-workers:delivery:"+message.Args[0]).Err(); err != nil {
			t.Fatal(err)
		}
		handle(t, task, message)
		after := p.Row(ticketID)
		if len(p.Provider.Calls()) != calls || !after.UpdatedAt.Equal(before.UpdatedAt) || after.Attempts != before.Attempts {
			t.Errorf("the settled row was touched: %+v", after)
		}
	})
}

// S1-060, S1-136, S1-137: a done mark over a row that is not terminal is
// deleted and the delivery claimed again; after the work the mark stands.
func TestStaleDoneMark(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, message := admitted(t, p, "one")
		held, err := claim.Delivery(context.Background(), p.Redis, message.Args[0])
		if err != nil || held.Done(context.Background()) != nil {
			t.Fatal(err)
		}
		handle(t, p.Task(nil), message)
		if p.Row(ticketID).Status != models.OutboxCompleted {
			t.Errorf("row is %s", p.Row(ticketID).Status)
		}
		_, err = claim.Delivery(context.Background(), p.Redis, message.Args[0])
		if !errors.Is(err, claim.ErrDone) {
			t.Errorf("after the work: %v", err)
		}
	})
}

// S1-265, S2-118: a second delivery while the first works is not
// acknowledged and does nothing.
func TestSecondDeliveryWaits(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, message := admitted(t, p, "one")
		held, err := claim.Delivery(context.Background(), p.Redis, message.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		task := p.Task(nil)
		err = task.Handle(context.Background(), message)
		if !errors.Is(err, deploy.ErrInFlight) || p.Row(ticketID).Status != models.OutboxPending {
			t.Errorf("%v, row %s", err, p.Row(ticketID).Status)
		}
		if held.Release(context.Background()) != nil {
			t.Fatal("release")
		}
		handle(t, task, message)
	})
}

// S1-056, S1-057, S2-115: without Redis the lease alone lets exactly one of
// two deliveries work.
func TestLeaseAloneDecides(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, message := admitted(t, p, "one")
		dead := plane.DeadRedis(t)
		inUpload, release := make(chan struct{}), make(chan struct{})
		p.Provider.OnUpload = func(provider.Release) error { close(inUpload); <-release; return nil }
		task := p.Task(func(d *deploy.Params) { d.Redis = dead })
		done := make(chan error, 1)
		go func() { done <- task.Handle(context.Background(), message) }()
		<-inUpload
		err := p.Task(func(d *deploy.Params) { d.Redis = dead }).Handle(context.Background(), message)
		if !errors.Is(err, deploy.ErrInFlight) {
			t.Errorf("the second delivery: %v", err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if p.Provider.Puts() != 1 || p.Row(ticketID).Status != models.OutboxCompleted {
			t.Errorf("%d uploads, row %s", p.Provider.Puts(), p.Row(ticketID).Status)
		}
	})
}

// S1-051 to S1-054: four non-empty arguments, checked by the task itself
// before anything is touched.
func TestArgumentsAreValidated(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, m := admitted(t, p, "one")
		task := p.Task(nil)
		for i := range m.Args {
			args := slices.Clone(m.Args)
			args[i] = ""
			err := task.Run(context.Background(), args[0], args[1], args[2], args[3])
			if !errors.Is(err, transports.ErrMalformed) {
				t.Errorf("argument %d empty: %v", i+1, err)
			}
		}
		for _, args := range [][]string{m.Args[:3], append(slices.Clone(m.Args), "five"), nil} {
			err := task.Handle(context.Background(), transports.Message{JobID: m.JobID, Function: m.Function, Args: args})
			if !errors.Is(err, transports.ErrMalformed) {
				t.Errorf("%d arguments: %v", len(args), err)
			}
		}
		if p.Row(ticketID).Attempts != 0 || len(p.Provider.Calls()) != 0 {
			t.Error("a malformed message touched something")
		}
		handle(t, task, m)
	})
}

// Foreign and forged messages find no row: nothing is leased, nothing is
// called, and the delivery is acknowledged.
func TestForeignMessages(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, m := admitted(t, p, "one")
		for i := range m.Args {
			args := slices.Clone(m.Args)
			args[i] = "somebody-else"
			err := p.Task(nil).Run(context.Background(), args[0], args[1], args[2], args[3])
			if err != nil {
				t.Errorf("argument %d: %v", i+1, err)
			}
		}
		row := p.Row(ticketID)
		if row.Status != models.OutboxPending || row.Attempts != 0 || len(p.Provider.Calls()) != 0 {
			t.Errorf("touched: %s, %d attempts", row.Status, row.Attempts)
		}
		handle(t, p.Task(nil), m)
	})
}

// S2-214, S1-081, S1-082, S1-114, S2-198: a task that finds deploying pauses
// the Worker again and only reads, whatever it then finds.
func TestReconcileNeverUploads(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		crashed := p.Task(nil)
		ctx, cancel := context.WithCancel(context.Background())
		p.Provider.After = func(provider.Release) error { cancel(); return context.Canceled } // applied, then the process is gone
		err := crashed.Handle(ctx, m)
		if err == nil {
			t.Fatal("an interrupted run was acknowledged")
		}
		if got := p.Row(ticketID); got.Status != models.OutboxLeased || p.Version(v.ID).State != models.VersionDeploying {
			t.Fatalf("after the crash: %s, %s", got.Status, p.Version(v.ID).State)
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE ticket_id = ?", ticketID)
		p.Exec("UPDATE edge_workers SET status = 'active' WHERE id = ?", p.Worker().ID)
		p.Provider.After = nil
		p.Provider.OnReadBack = func(provider.Release) error {
			if p.Worker().Status != models.WorkerPaused {
				t.Error("the Worker was not paused again")
			}
			return nil
		}
		handle(t, p.Task(nil), m)
		if p.Provider.Puts() != 1 {
			t.Errorf("%d uploads", p.Provider.Puts())
		}
		checkLive(t, p, v.ID, ticketID)
	})
}

// S2-187, S2-186, S2-195, S1-111: a release that never answers ends uncertain
// with worker_readiness_timeout, the Worker paused, never completed. The
// gate's own clock is tested apart; here the lease is lost to show S2-182.
func TestLeaseLostDuringReadiness(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		p.Release.OnProbe = func(string, string) error { // another delivery takes the row while this one probes
			p.Exec("UPDATE edge_worker_outbox SET lease_owner = 'thief:1' WHERE ticket_id = ?", ticketID)
			return nil
		}
		err := p.Task(nil).Handle(context.Background(), m)
		if !errors.Is(err, deploy.ErrInFlight) {
			t.Errorf("%v", err)
		}
		row := p.Row(ticketID)
		if row.Status != models.OutboxLeased || row.LeaseOwner != "thief:1" || p.Version(v.ID).State != models.VersionDeploying {
			t.Errorf("the loser wrote: %+v", row)
		}
		if len(p.Release.Probes()) != 1 {
			t.Errorf("%d probes after the loss", len(p.Release.Probes()))
		}
	})
}

// S1-063, S2-120, S2-122: the lease is 90 s from the database's clock and its
// owner token is owner:uuid4, a fresh one each time.
func TestLeaseForm(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, m := admitted(t, p, "one")
		var held models.Outbox
		var now time.Time
		p.Provider.OnUpload = func(provider.Release) error {
			held = p.Row(ticketID)
			return p.DB.Tx(context.Background(), func(tx *database.Tx) error {
				var err error
				now, err = tx.Now()
				return err
			})
		}
		handle(t, p.Task(func(d *deploy.Params) { d.Owner = "box" }), m)
		left := held.LeaseExpiresAt.Sub(now)
		if left <= 0 || left > 90*time.Second {
			t.Errorf("lease has %v left", left)
		}
		if !strings.HasPrefix(held.LeaseOwner, "box:") || len(held.LeaseOwner) != len("box:")+36 || held.Attempts != 1 {
			t.Errorf("owner %q, attempts %d", held.LeaseOwner, held.Attempts)
		}
	})
}

// S2-135 to S2-144, S1-083 to S1-094, S0-50, S0-51: evidence that does not
// verify fails the deployment before the fence and uploads nothing.
func TestIntegrityFaults(t *testing.T) {
	t.Parallel()
	column := func(sql string) func(*plane.Plane, models.Version) {
		return func(p *plane.Plane, v models.Version) {
			p.Exec("UPDATE edge_worker_versions SET "+sql+" WHERE id = ?", v.ID)
		}
	}
	faults := map[string]func(*plane.Plane, models.Version){
		"manifest altered":     column(`manifest = REPLACE(manifest, 'echo.say', 'echo.sax')`),
		"manifest missing":     column(`manifest = NULL`),
		"sbom missing":         column(`sbom = NULL`),
		"receipt missing":      column(`build_receipt = NULL`),
		"receipt version":      column(`build_receipt = REPLACE(build_receipt, '"receiptVersion":"1"', '"receiptVersion":"2"')`),
		"receipt version int":  column(`build_receipt = REPLACE(build_receipt, '"receiptVersion":"1"', '"receiptVersion":1')`),
		"receipt extra key":    column(`build_receipt = REPLACE(build_receipt, '"receiptVersion"', '"more":1,"receiptVersion"')`),
		"receipt missing key":  column(`build_receipt = REPLACE(build_receipt, '"receiptVersion":"1",', '')`),
		"main module":          column(`main_module = 'other.mjs'`),
		"module type":          column(`module_type = 'text/plain'`),
		"generation":           column(`release_generation = sbom_digest`),
		"runtime digest":       column(`runtime_digest = sbom_digest`),
		"compatibility date":   column(`compatibility_date = '2026-01-02'`),
		"builder policy":       column(`builder_policy = 'department-worker-project-v2.7'`),
		"project digest form":  column(`project_digest = 'x'`),
		"bundle digest form":   column(`bundle_digest = 'x'`),
		"manifest digest form": column(`manifest_digest = 'x'`),
		"lock digest form":     column(`lock_digest = 'x'`),
		"dependency form":      column(`dependency_digest = 'x'`),
		"sbom digest form":     column(`sbom_digest = 'x'`),
		"static data form":     column(`static_data_digest = 'x'`),
		"bundle size":          column(`bundle_size = bundle_size + 1`),
		"project size":         column(`project_size = project_size - 1`),
		"bundle gone":          func(p *plane.Plane, v models.Version) { remove(p, artifact.Bundle, v.BundleObjectKey) },
		"project gone":         func(p *plane.Plane, v models.Version) { remove(p, artifact.Project, v.ProjectObjectKey) },
		"bundle key foreign":   column(`bundle_object_key = 'edge-workers/00000000000000000000000000000000/bundle/x.mjs'`),
	}
	db := databasetest.MySQL(t)
	for name, breakIt := range faults {
		t.Run(name, func(t *testing.T) {
			p := plane.New(t, db)
			v, ticketID, m := admitted(t, p, "one")
			breakIt(p, v)
			handle(t, p.Task(nil), m)
			got, row := p.Version(v.ID), p.Row(ticketID)
			if row.Status != models.OutboxFailed || row.LastErrorCode != "artifact_integrity_failed" || got.State != models.VersionFailed {
				t.Errorf("row %s %s, version %s", row.Status, row.LastErrorCode, got.State)
			}
			if got.ErrorMessage == nil || *got.ErrorMessage != "deployment failed" { // S2-229
				t.Errorf("message %v", got.ErrorMessage)
			}
			if n := len(p.Provider.Calls()); n != 0 {
				t.Errorf("%d provider calls", n)
			}
			if p.Worker().Status != models.WorkerDraft { // S2-222
				t.Errorf("Worker is %s", p.Worker().Status)
			}
		})
	}
}

func remove(p *plane.Plane, kind artifact.Kind, key string) {
	p.T.Helper()
	err := p.Store.Delete(context.Background(), artifact.Tenant(p.Tenant), kind, key)
	if err != nil {
		p.T.Fatal(err)
	}
}

// S0-54, S2-145: the module at the provider equals the stored object.
func TestStoredBundleIsUploaded(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, _, m := admitted(t, p, "one")
		handle(t, p.Task(nil), m)
		stored, err := p.Store.Get(context.Background(), artifact.Tenant(p.Tenant), artifact.Bundle, v.BundleObjectKey, 0)
		if err != nil {
			t.Fatal(err)
		}
		if live := p.Provider.Live(); string(live.Bundle) != string(stored) || live.BundleDigest != v.BundleDigest {
			t.Error("the uploaded bundle is not the stored one")
		}
	})
}
