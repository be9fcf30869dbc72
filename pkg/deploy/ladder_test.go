package deploy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
)

// settled is what the world shows after a run.
type settled struct {
	row     models.OutboxStatus
	code    string
	version models.VersionState
	worker  models.WorkerStatus
	puts    int
}

func observe(p *plane.Plane, ticketID, versionID string) settled {
	row := p.Row(ticketID)
	return settled{row.Status, row.LastErrorCode, p.Version(versionID).State, p.Worker().Status, p.Provider.Puts()}
}

// S1-132, S2-200, S2-206 to S2-213, S2-215 to S2-217, S2-223 to S2-229: the
// ladder after the fence, by error class alone. Every uncertain one pauses the
// Worker, every definite one leaves it as it was, none uploads again.
func TestLadderAfterTheFence(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause with secret detail")
	cases := map[string]struct {
		set  func(*plane.Plane)
		want settled
	}{
		"terminal": {
			func(p *plane.Plane) {
				p.Provider.OnUpload = answer(&provider.TerminalError{Code: "edge_host_bundle_rejected", Cause: cause})
			},
			settled{models.OutboxFailed, "edge_host_bundle_rejected", models.VersionFailed, models.WorkerDraft, 1},
		},
		"uncertain, applied": { // read-back matches, the release answers
			func(p *plane.Plane) {
				p.Provider.After = answer(&provider.UncertainError{Code: "cloudflare_upload_uncertain", Cause: cause})
			},
			settled{models.OutboxCompleted, "", models.VersionDeployed, models.WorkerActive, 1},
		},
		"uncertain, not applied": {
			func(p *plane.Plane) {
				p.Provider.OnUpload = answer(&provider.UncertainError{Code: "cloudflare_upload_uncertain", Cause: cause})
			},
			settled{models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"uncertain, unreadable": {
			func(p *plane.Plane) {
				p.Provider.OnUpload = answer(&provider.UncertainError{Code: "cloudflare_upload_uncertain", Cause: cause})
				p.Provider.OnReadBack = answer(&provider.UnreadableError{Cause: cause})
			},
			settled{models.OutboxUncertain, "cloudflare_upload_uncertain", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"accepted, unreadable": {
			func(p *plane.Plane) { p.Provider.OnReadBack = answer(&provider.UnreadableError{Cause: cause}) },
			settled{models.OutboxUncertain, "provider_settlement_lost", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"accepted, different": {
			func(p *plane.Plane) { p.Provider.OnReadBack = answer(&provider.MismatchError{Detail: "tags"}) },
			settled{models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"unclassified": {
			func(p *plane.Plane) { p.Provider.OnUpload = answer(cause) },
			settled{models.OutboxUncertain, "deployment_internal_error", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"panic": {
			func(p *plane.Plane) { p.Provider.OnUpload = func(provider.Release) error { panic("boom") } },
			settled{models.OutboxUncertain, "deployment_internal_error", models.VersionUncertain, models.WorkerPaused, 1},
		},
		"deferred": {
			func(p *plane.Plane) { p.Provider.OnUpload = answer(&provider.DeferredError{Code: "edge_host_fenced"}) },
			settled{models.OutboxPending, "edge_host_fenced", models.VersionDeployPending, models.WorkerDraft, 1},
		},
		"rate limited": {
			func(p *plane.Plane) {
				p.Provider.OnUpload = answer(&provider.RateLimitedError{Code: "cloudflare_rate_limited"})
			},
			settled{models.OutboxPending, "cloudflare_rate_limited", models.VersionDeployPending, models.WorkerDraft, 1},
		},
	}
	db := databasetest.MySQL(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := plane.New(t, db)
			v, ticketID, m := admitted(t, p, "one")
			c.set(p)
			err := p.Task(nil).Handle(context.Background(), m)
			if again := c.want.row == models.OutboxPending; again != errors.Is(err, deploy.ErrRetry) || (!again && err != nil) {
				t.Errorf("returned %v", err)
			}
			if got := observe(p, ticketID, v.ID); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			facts := p.Facts()
			last := facts[len(facts)-1]
			if c.want.row == models.OutboxPending {
				if last.Action != "deployment.admitted" { // S2-223: no audit of a failure
					t.Errorf("fact %s", last.Action)
				}
				return
			}
			if last.Action != "deployment."+string(c.want.row) || last.ReasonCode != c.want.code {
				t.Errorf("fact %s %s", last.Action, last.ReasonCode)
			}
			if text := p.Version(v.ID).ErrorMessage; text != nil && *text == cause.Error() {
				t.Error("the cause's text was stored")
			}
		})
	}
}

func answer(err error) func(provider.Release) error {
	return func(provider.Release) error { return err }
}

// S2-200 to S2-205, S2-230, S2-231: a rate limit withdraws the fence once, with the
// Worker's settled status, and the second one fails safely after two PUTs.
func TestRateLimitTwice(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		first, _, m := admitted(t, p, "one")
		task := p.Task(nil)
		handle(t, task, m)
		second, ticketID, m := admitted(t, p, "two")
		p.Provider.OnUpload = answer(&provider.RateLimitedError{Code: "cloudflare_rate_limited"})
		err := task.Handle(context.Background(), m)
		if !errors.Is(err, deploy.ErrRetry) {
			t.Fatal(err)
		}
		row := p.Row(ticketID)
		if p.Worker().Status != models.WorkerActive || row.NextAttemptAt != nil || row.Attempts != 1 { // was active: S2-202
			t.Errorf("Worker %s, next %v, attempts %d", p.Worker().Status, row.NextAttemptAt, row.Attempts)
		}
		handle(t, task, m)
		want := settled{models.OutboxFailed, "cloudflare_rate_limited", models.VersionFailed, models.WorkerActive, 3}
		if got := observe(p, ticketID, second.ID); got != want {
			t.Errorf("got %+v", got)
		}
		if p.Worker().CurrentVersionID != first.ID { // S2-221: still the one that serves
			t.Error("the current version changed")
		}
		handle(t, task, m) // a third delivery finds a terminal row
		if p.Provider.Puts() != 3 {
			t.Errorf("%d uploads", p.Provider.Puts())
		}
	})
}

// S2-226, S2-227: a deferral is not counted: after many the deployment still
// has its full attempts.
func TestDeferralsAreNotCounted(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		task := p.Task(nil)
		p.Provider.OnUpload = answer(&provider.DeferredError{Code: "edge_host_fenced"})
		for range 5 {
			err := task.Handle(context.Background(), m)
			if !errors.Is(err, deploy.ErrRetry) {
				t.Fatal(err)
			}
		}
		if n := p.Row(ticketID).Attempts; n != 0 {
			t.Errorf("%d attempts", n)
		}
		p.Provider.OnUpload = nil
		handle(t, task, m)
		checkLive(t, p, v.ID, ticketID)
	})
}

// S2-124, S2-125, S1-061, S1-062, S1-070, S1-071: invalid provider settings settle the ticket
// under the lease: failed before the fence, uncertain after it, with no
// provider call.
func TestInvalidProvider(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		p.Invalid = errors.New("EDGE_WORKERS_PROVIDER is not valid")
		handle(t, p.Task(nil), m)
		want := settled{models.OutboxFailed, "edge_workers_provider_invalid", models.VersionFailed, models.WorkerDraft, 0}
		if got := observe(p, ticketID, v.ID); got != want {
			t.Errorf("before the fence: %+v", got)
		}
		p.Invalid = nil
		v, ticketID, m = admitted(t, p, "two")
		p.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
		p.Invalid = errors.New("EDGE_WORKERS_PROVIDER is not valid")
		handle(t, p.Task(nil), m)
		want = settled{models.OutboxUncertain, "edge_workers_provider_invalid", models.VersionUncertain, models.WorkerPaused, 0}
		if got := observe(p, ticketID, v.ID); got != want {
			t.Errorf("after the fence: %+v", got)
		}
		if len(p.Provider.Calls()) != 0 {
			t.Error("the provider was called")
		}
	})
}

// S2-128 to S2-133, S1-072 to S1-079: a deleted department fails the
// deployment in the cloud before anything is read, is not asked for on-prem,
// and not in the GET-only mode.
func TestDeletedDepartment(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		del := func(p *plane.Plane) {
			err := p.Directory.DeleteDepartment(context.Background(), p.Actor, p.Tenant.DepartmentID)
			if err != nil {
				t.Fatal(err)
			}
		}
		p := plane.New(t, db)
		v, ticketID, m := admitted(t, p, "one")
		del(p)
		remove(p, artifact.Bundle, v.BundleObjectKey) // a read would fail in another way
		handle(t, p.Task(nil), m)
		want := settled{models.OutboxFailed, "department_deleted", models.VersionFailed, models.WorkerDraft, 0}
		if got := observe(p, ticketID, v.ID); got != want {
			t.Errorf("cloud: %+v", got)
		}
		facts := p.Facts()
		if last := facts[len(facts)-1]; last.Action != "deployment.failed" || last.ReasonCode != "department_deleted" {
			t.Errorf("fact %s %s", last.Action, last.ReasonCode)
		}

		onprem := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
		v, ticketID, m = admitted(t, onprem, "one")
		del(onprem)
		handle(t, onprem.Task(nil), m)
		checkLive(t, onprem, v.ID, ticketID)

		again := plane.New(t, db)
		v, ticketID, m = admitted(t, again, "one")
		tag := provider.Release{ScriptName: again.Worker().ScriptName, CompatibilityDate: v.CompatibilityDate, BundleDigest: v.BundleDigest}
		if again.Provider.Upload(context.Background(), tag) != nil {
			t.Fatal("apply")
		}
		again.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
		del(again)
		handle(t, again.Task(nil), m)
		checkLive(t, again, v.ID, ticketID)
	})
}

// S3-80, S3-78: a row that outlived its Worker is settled as failed with
// worker_deleted.
func TestWorkerDeleted(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, m := admitted(t, p, "one")
		err := p.Directory.DeleteCompany(context.Background(), p.Actor, p.Tenant.CompanyID)
		if err != nil {
			t.Fatal(err)
		}
		handle(t, p.Task(func(d *deploy.Params) { d.Outbox = outbox.New(p.DB, outbox.CloudScope(plane.Namespace)) }), m)
		row := p.Row(ticketID)
		if row.Status != models.OutboxFailed || (row.LastErrorCode != "worker_deleted" && row.LastErrorCode != "department_deleted") {
			t.Errorf("row %s %s", row.Status, row.LastErrorCode)
		}
		if p.Provider.Puts() != 0 {
			t.Error("something was uploaded")
		}
	})
}

// D14: an unreachable store gives the lease back before the fence and fails
// with artifact_storage_unavailable at the attempt limit.
func TestStoreUnreachable(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		task := p.Task(func(d *deploy.Params) { d.Store = nil })
		err := task.Handle(context.Background(), m)
		want := settled{models.OutboxPending, "artifact_storage_unavailable", models.VersionDeployPending, models.WorkerDraft, 0}
		if got := observe(p, ticketID, v.ID); got != want || !errors.Is(err, deploy.ErrRetry) {
			t.Errorf("first: %+v, %v", got, err)
		}
		handle(t, task, m)
		want = settled{models.OutboxFailed, "artifact_storage_unavailable", models.VersionFailed, models.WorkerDraft, 0}
		if got := observe(p, ticketID, v.ID); got != want {
			t.Errorf("second: %+v", got)
		}
	})
}

// S1-097, D3: a lost commit acknowledgement of any of the task's transactions
// is resolved by reading back: the work ends once, with one upload.
func TestLostCommitAcknowledgements(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		lost := errors.New("invalid connection")
		for n := 1; n <= 4; n++ { // lease, snapshot, fence, settlement
			p := plane.New(t, db)
			v, ticketID, m := admitted(t, p, "one")
			commits := 0
			db.AfterCommit(func(err error) error {
				commits++
				if commits == n {
					return errors.Join(err, lost)
				}
				return err
			})
			err := p.Task(nil).Handle(context.Background(), m)
			db.AfterCommit(nil)
			if err != nil || p.Provider.Puts() != 1 {
				t.Errorf("commit %d lost: %d uploads (%v)", n, p.Provider.Puts(), err)
			}
			checkLive(t, p, v.ID, ticketID)
			if commits < 4 {
				t.Fatalf("only %d commits were seen", commits)
			}
		}
	})
}

// S1-261, S2-209: a run that is asked to stop after its upload settles nothing
// that it has not seen: the next run reads and completes it.
func TestStoppedAfterTheUpload(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		ctx, cancel := context.WithCancel(context.Background())
		p.Provider.OnReadBack = func(provider.Release) error {
			cancel()
			return &provider.UnreadableError{Cause: context.Canceled}
		}
		err := p.Task(nil).Handle(ctx, m)
		if !errors.Is(err, deploy.ErrRetry) {
			t.Errorf("%v", err)
		}
		want := settled{models.OutboxLeased, "", models.VersionDeploying, models.WorkerPaused, 1}
		if got := observe(p, ticketID, v.ID); got != want {
			t.Errorf("got %+v", got)
		}
		p.Provider.OnReadBack = nil
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE ticket_id = ?", ticketID)
		handle(t, p.Task(nil), m)
		checkLive(t, p, v.ID, ticketID)
		if p.Provider.Puts() != 1 {
			t.Errorf("%d uploads", p.Provider.Puts())
		}
	})
}
