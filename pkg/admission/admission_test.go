package admission_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

// refused checks a golden refusal and that no row and no message came of it.
func refused(t *testing.T, p *plane.Plane, in admission.Request, kind fault.Kind, code, message string) {
	t.Helper()
	rows, sent := p.Count("edge_worker_outbox"), len(p.Published.Messages())
	_, err := p.Desk.Deploy(context.Background(), in)
	f := fault.As(err)
	if f == nil || f.Kind != kind || f.Code != code || f.Message != message {
		t.Errorf("got %v, want %s %q %q", err, kind, code, message)
	}
	if p.Count("edge_worker_outbox") != rows || len(p.Published.Messages()) != sent {
		t.Error("a refused request left a row or a message")
	}
}

// S2-008, S2-058 to S2-064, S2-067, S2-068, S2-071, S2-079, S2-261, S1-025,
// S1-028, S1-030, S3-11: what an admitted deployment leaves behind, seen from
// another connection at the moment of the publication.
func TestAdmittedDeployment(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		var row models.Outbox
		var mirrored string
		p.Published.Seen = func(m transports.Message) {
			err := p.DB.Read(context.Background()).First(&row, "id = ?", m.Args[0]).Error
			if err != nil {
				t.Errorf("the row was not committed before the publication: %v", err)
			}
			mirrored = p.Redis.Get(context.Background(), "edge-workers:ticket:"+row.TicketID).Val()
		}
		view := p.Admit(v)
		if view.Status != ticket.Submitting || view.Operation != "deploy" || view.TicketID != row.TicketID || view.TicketID == row.ID || view.ErrorCode != nil {
			t.Errorf("202 body %+v", view)
		}
		w := p.Worker()
		if row.Status != models.OutboxPending || row.Operation != models.OperationDeploy || row.AdmissionSequence != 1 || w.DeploymentSequence != 1 ||
			row.DispatchNamespace != plane.Namespace || row.DedupeKey != "deploy:"+w.ID+":"+v.ID+":1" || row.LastErrorCode != "" {
			t.Errorf("row %+v", row)
		}
		if w.ServingNamespace != plane.Namespace || w.ServingKind != outbox.ServingLegacy {
			t.Errorf("location %s %s", w.ServingKind, w.ServingNamespace)
		}
		payload, err := outbox.DecodeDeploy(row)
		if err != nil || payload.BaseRevision != 1 || payload.OperationSettingsDigest != nil || payload.Serving == nil {
			t.Errorf("payload %+v, %v", payload, err)
		}
		m := p.Published.Messages()[0]
		if want := []string{row.ID, p.Tenant.CompanyID, p.Tenant.DepartmentID, payload.MessageID}; !slices.Equal(m.Args, want) || m.JobID != payload.MessageID {
			t.Errorf("message %+v", m) // S1-051, S1-253
		}
		if mirrored == "" {
			t.Error("submitting was not written before the publication")
		}
		if p.Version(v.ID).State != models.VersionDeployPending {
			t.Errorf("version %s", p.Version(v.ID).State)
		}
	})
}

// S1-032, S2-067, S2-069: on-prem rows carry onprem:<12 hex> and no location.
func TestOnPremRow(t *testing.T) {
	t.Parallel()
	p := plane.NewIn(t, databasetest.SQLite(t), outbox.OnPremScope("host-1"))
	row := p.Row(p.Admit(p.Submit("one")).TicketID)
	payload, err := outbox.DecodeDeploy(row)
	if err != nil || payload.Serving != nil || row.DispatchNamespace != outbox.OnPremScope("host-1").Default().Namespace {
		t.Errorf("%s %+v %v", row.DispatchNamespace, payload, err)
	}
	if len(row.DispatchNamespace) != len("onprem:")+12 {
		t.Errorf("namespace %q", row.DispatchNamespace)
	}
}

// S2-020, S2-021, S2-022: the provider check comes first, and what the route
// refuses leaves no row.
func TestProviderCheck(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		in := p.Request(v)
		in.VersionID = "breaks the next step too"
		p.Invalid = errors.New("no provider")
		refused(t, p, in, fault.Unavailable, "", "Edge Worker provider is not configured")
		p.Invalid = nil
		p.Admit(v)
	})
}

// S2-024 to S2-027, S2-052, S2-066: an exact retry gets the same ticket; it
// needs neither a free lock nor a free department nor a verifiable location.
func TestExactRetry(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		first := p.Admit(v)
		p.Exec("UPDATE edge_workers SET serving_kind = 'nowhere' WHERE id = ?", p.Worker().ID)
		lock, err := claim.Settings(context.Background(), p.Redis, p.Tenant.CompanyID, p.Tenant.DepartmentID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := p.Desk.Deploy(context.Background(), p.Request(v))
		if err != nil || again.TicketID != first.TicketID || again.Status != ticket.Pending {
			t.Errorf("retry: %+v, %v", again, err)
		}
		if len(p.Published.Messages()) != 1 || p.Worker().DeploymentSequence != 1 {
			t.Error("the retry did something")
		}
		other := p.Request(v)
		other.BaseRevision++ // another base revision is no match
		refused(t, p, other, fault.Conflict, "worker_serving_target_unavailable", "Worker deployment target cannot be verified")
		if lock.Release(context.Background()) != nil {
			t.Fatal("release")
		}
	})
}

// S2-016, S2-053, S2-054, S2-088: the retry of a superseded or uncertain
// deployment keeps its own 409, and that of a failed one its ticket (D19).
func TestRetryOfEndedDeployments(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		in := p.Request(v)
		view := p.Admit(v)
		set := func(status models.OutboxStatus) {
			p.Exec("UPDATE edge_worker_outbox SET status = ? WHERE ticket_id = ?", status, view.TicketID)
		}
		set(models.OutboxCompleted)
		refused(t, p, in, fault.Conflict, "", "Worker version was superseded; V2 rollback is not supported")
		p.Exec("UPDATE edge_workers SET current_version_id = ? WHERE id = ?", v.ID, p.Worker().ID)
		again, err := p.Desk.Deploy(context.Background(), in)
		if err != nil || again.TicketID != view.TicketID { // the control: still current
			t.Errorf("current: %v", err)
		}
		set(models.OutboxUncertain)
		refused(t, p, in, fault.Conflict, "", "uncertain deployment requires company reconciliation")
		set(models.OutboxFailed)
		again, err = p.Desk.Deploy(context.Background(), in)
		if err != nil || again.TicketID != view.TicketID || again.Status != ticket.Failed {
			t.Errorf("failed: %+v %v", again, err)
		}
	})
}

// S2-030 to S2-034: one lock for each department, 600 s, held or unavailable.
func TestSettingsLock(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		ctx := context.Background()
		lock, err := claim.Settings(ctx, p.Redis, p.Tenant.CompanyID, p.Tenant.DepartmentID)
		if err != nil {
			t.Fatal(err)
		}
		ttl := p.Redis.PTTL(ctx, "edge-workers:settings:"+p.Tenant.CompanyID+":"+p.Tenant.DepartmentID).Val()
		if ttl.Seconds() > 600 || ttl.Seconds() < 590 {
			t.Errorf("TTL %v", ttl)
		}
		refused(t, p, p.Request(v), fault.Conflict, "deployment_in_progress", "Another Worker settings mutation or deployment is in progress")
		if _, err := claim.Settings(ctx, p.Redis, p.Tenant.CompanyID, "another"); err != nil {
			t.Errorf("another department is blocked: %v", err)
		}
		if lock.Release(ctx) != nil {
			t.Fatal("release")
		}
		dead, err := admission.New(admission.Params{
			DB: p.DB, Outbox: p.Outbox, Redis: plane.DeadRedis(t), Mirror: p.Mirror, Publisher: p.Published, Stager: p.Live,
			Provider: func() error { return nil }, Log: p.Log,
		})
		if err != nil {
			t.Fatal(err)
		}
		live := p.Desk
		p.Desk = dead
		refused(t, p, p.Request(v), fault.Unavailable, "", "Operation-settings mutation lock is unavailable")
		p.Desk = live
		p.Admit(v)
		if n := p.Redis.Exists(ctx, "edge-workers:settings:"+p.Tenant.CompanyID+":"+p.Tenant.DepartmentID).Val(); n != 0 {
			t.Error("the lock was not given back")
		}
	})
}

// S2-035 to S2-038, S2-080, S2-081: exactly pending, leased and uncertain
// tickets of the department block the next deployment, with the code.
func TestInFlight(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		first, second := p.Submit("one"), p.Submit("two")
		view := p.Admit(first)
		p.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE id = ?", first.ID)
		for _, s := range []models.OutboxStatus{models.OutboxPending, models.OutboxLeased, models.OutboxUncertain} {
			p.Exec("UPDATE edge_worker_outbox SET status = ? WHERE ticket_id = ?", s, view.TicketID)
			refused(t, p, p.Request(second), fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")
		}
		for _, s := range []models.OutboxStatus{models.OutboxCompleted, models.OutboxFailed, models.OutboxCancelled} {
			p.Exec("UPDATE edge_worker_outbox SET status = ? WHERE ticket_id = ?", s, view.TicketID)
			next := p.Submit("three" + string(s))
			ticketID := p.Admit(next).TicketID
			p.Exec("UPDATE edge_worker_outbox SET status = 'cancelled' WHERE ticket_id = ?", ticketID)
			p.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE id = ?", next.ID)
		}
	})
}

// S1-046: the fence of admission is global: a live deployment blocks the Worker
// whatever environment its row belongs to.
func TestFenceIsGlobal(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		first, second := p.Submit("one"), p.Submit("two")
		view := p.Admit(first)
		p.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE id = ?", first.ID)
		p.Exec("UPDATE edge_worker_outbox SET dispatch_namespace = 'of-another-environment' WHERE ticket_id = ?", view.TicketID)
		refused(t, p, p.Request(second), fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")
		p.Exec("UPDATE edge_worker_outbox SET status = 'cancelled' WHERE ticket_id = ?", view.TicketID)
		p.Admit(second)
	})
}

// S1-312, S2-045: in the cloud no maintenance row closes anything.
func TestMaintenanceNeverBlocksTheCloud(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Exec("INSERT INTO edge_worker_maintenance (scope, state, fence_id, restore_pending) VALUES ('onprem:000000000000', 'active', 'fence', 1), (?, 'active', 'fence', 1)", plane.Namespace)
		p.Admit(p.Submit("one"))
	})
}

// S2-046 to S2-049, S2-055, S2-056, S2-060, S2-061, S3-32: the outbox's own
// refusals, word for word.
func TestOutboxRefusals(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		sibling, v := p.Submit("one"), p.Submit("two")
		worker := p.Worker().ID
		in := p.Request(v)
		set := func(sql string, args ...any) {
			p.Exec("UPDATE edge_workers SET "+sql+" WHERE id = '"+worker+"'", args...)
		}

		set("migration_namespace = 'elsewhere'")
		refused(t, p, in, fault.Conflict, "worker_migration_in_progress", "Worker migration is in progress")
		set("migration_namespace = ''")
		for _, off := range []int64{-1, 1} {
			stale := in
			stale.BaseRevision += off
			refused(t, p, stale, fault.Conflict, "", "Worker revision changed; refresh before deploying")
		}
		for _, s := range []models.VersionState{models.VersionDeployPending, models.VersionDeploying, models.VersionUncertain} {
			p.Exec("UPDATE edge_worker_versions SET state = ? WHERE id = ?", s, sibling.ID)
			refused(t, p, in, fault.Conflict, "", "a deployment is already active for this department Worker")
		}
		p.Exec("UPDATE edge_worker_versions SET state = 'failed' WHERE id = ?", sibling.ID)
		for _, s := range []models.VersionState{models.VersionUploading, models.VersionDeployed, models.VersionSuperseded, models.VersionFailed} {
			p.Exec("UPDATE edge_worker_versions SET state = ? WHERE id = ?", s, v.ID)
			refused(t, p, in, fault.Conflict, "", "Worker version cannot deploy from state '"+string(s)+"'")
		}
		p.Exec("UPDATE edge_worker_versions SET state = 'ready' WHERE id = ?", v.ID)
		set("serving_kind = 'legacy', serving_namespace = 'of-another-environment'")
		refused(t, p, in, fault.Conflict, "", "Worker deployment target is unavailable")
		set("serving_kind = '', serving_namespace = ''")
		set("deployment_sequence = ?", int64(math.MaxInt64))
		refused(t, p, in, fault.Conflict, "", "Worker deployment sequence is exhausted")
		if p.Version(v.ID).State != models.VersionReady {
			t.Errorf("version %s", p.Version(v.ID).State)
		}
		set("deployment_sequence = ?", int64(math.MaxInt64-1))
		if row := p.Row(p.Admit(v).TicketID); row.AdmissionSequence != math.MaxInt64 {
			t.Errorf("sequence %d", row.AdmissionSequence)
		}
	})
}

// S2-047, S2-028, S2-029: a location that cannot be named stops a new request.
func TestServingLocation(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		p.Exec("UPDATE edge_workers SET serving_kind = 'moon', serving_namespace = 'x' WHERE id = ?", p.Worker().ID)
		refused(t, p, p.Request(v), fault.Conflict, "worker_serving_target_unavailable", "Worker deployment target cannot be verified")
		p.Exec("UPDATE edge_workers SET serving_kind = '', serving_namespace = '' WHERE id = ?", p.Worker().ID)
		p.Admit(v)
	})
}

// S2-050, S2-051, S2-087, S1-309, S2-057: what only the outbox sees.
func TestRaceRefusals(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		w := p.Worker()
		insert := func(status models.OutboxStatus, key, versionID string) string {
			id := uuid.NewString()
			p.Exec(`INSERT INTO edge_worker_outbox (id, operation, dedupe_key, ticket_id, status, company_id, department_id, worker_id, version_id)
				VALUES (?, 'deploy', ?, ?, ?, 'c', 'd', ?, ?)`, id, key, id, status, w.ID, versionID)
			return id
		}
		id := insert(models.OutboxCancelled, outbox.DedupeKey(w.ID, v.ID, 1, "ab"), v.ID)
		refused(t, p, p.Request(v), fault.Conflict, "", "operation-settings digest differs from the existing deployment")
		p.Exec("DELETE FROM edge_worker_outbox WHERE id = ?", id)
		id = insert(models.OutboxPending, "deploy:"+w.ID+":other:1", "other")
		refused(t, p, p.Request(v), fault.Conflict, "", "a deployment is already active for this department Worker")
		p.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE id = ?", id)
		p.Admit(v)
	})
}

// S2-066, S2-039, S3-36, S3-39: N equal requests at once give one row; N
// different ones admit exactly one.
func TestConcurrentRequests(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		one, two := p.Submit("one"), p.Submit("two")
		var wg sync.WaitGroup
		var mu sync.Mutex
		tickets := map[string]int{}
		for i := range 8 {
			v := []models.Version{one, two}[i%2]
			in := p.Request(v)
			wg.Go(func() {
				view, err := p.Desk.Deploy(context.Background(), in)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					tickets[view.TicketID]++
					return
				}
				if f := fault.As(err); f.Kind != fault.Conflict {
					t.Errorf("loser got %v", err)
				}
			})
		}
		wg.Wait()
		if len(tickets) != 1 || p.Count("edge_worker_outbox") < 1 {
			t.Errorf("tickets %v", tickets)
		}
		var live int64
		if err := p.DB.Read(context.Background()).Model(&models.Outbox{}).Where("active_deployment_worker_id = ?", p.Worker().ID).Count(&live).Error; err != nil || live != 1 {
			t.Errorf("%d live rows, %v", live, err)
		}
	})
}

// S2-079, S1-288: a publication that fails leaves the row to the sweep; a
// mirror that cannot be written publishes nothing.
func TestPublicationFails(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		p.Published.Err = transports.ErrRefused
		view := p.Admit(p.Submit("one"))
		row := p.Row(view.TicketID)
		if row.Status != models.OutboxPending {
			t.Errorf("row %s", row.Status)
		}
		p.Published.Err = nil
		err := admission.Publish(context.Background(), ticket.NewMirror(plane.DeadRedis(t), p.Log), p.Published, row)
		if err == nil || len(p.Published.Messages()) != 0 {
			t.Errorf("%v, %d messages", err, len(p.Published.Messages()))
		}
		err = admission.Publish(context.Background(), p.Mirror, p.Published, row)
		if err != nil || len(p.Published.Messages()) != 1 {
			t.Errorf("control: %v", err)
		}
	})
}

// A lost commit acknowledgement is resolved by reading the ticket back: the
// deployment is admitted once, or not at all.
func TestLostAcknowledgement(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, errors.New("connection reset")) })
		view, err := p.Desk.Deploy(context.Background(), p.Request(v))
		p.DB.AfterCommit(nil)
		if err != nil || p.Row(view.TicketID).Status != models.OutboxPending || len(p.Published.Messages()) != 1 {
			t.Errorf("%+v %v", view, err)
		}
	})
}
