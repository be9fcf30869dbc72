package admission_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
)

func eachOnPrem(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.NewIn(t, db, outbox.OnPremScope("host-1"))) })
}

func gate(p *plane.Plane, columns string) { p.Exec("UPDATE edge_worker_maintenance SET " + columns) }

const opened = "state = 'idle', restore_pending = 0, fence_id = ''"

// closed are the gates that refuse, each with its golden answer (S1-313).
var closed = []struct{ columns, code, message string }{
	{"state = 'active'", "edge_workers_maintenance", "Edge Workers are under maintenance; try again when the platform's operator has ended it"},
	{"restore_pending = 1", "edge_workers_restore_pending", "Edge Workers were restored from a backup that is still being checked; try again when the platform's operator has ended the restore"},
	{"state = 'active', restore_pending = 1, fence_id = 'f'", "edge_workers_maintenance", "Edge Workers are under maintenance; try again when the platform's operator has ended it"},
	{"scope = 'onprem:another'", "edge_workers_maintenance", "Edge Workers are under maintenance; try again when the platform's operator has ended it"}, // S3-55
}

// S1-310, S1-313, S2-043, S2-044, S3-55: a closed gate refuses with its own code
// and leaves no row; it comes before every other step of the outbox (S2-042) and
// after the exact retry.
func TestGateRefusesAdmission(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		first := p.Submit("one")
		view := p.Admit(first)
		p.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE operation = 'deploy'")
		p.Exec("UPDATE edge_worker_versions SET state = 'failed' WHERE id = ?", first.ID)
		v := p.Submit("two")
		stale := p.Request(v)
		stale.BaseRevision++ // breaks the step right behind the gate too
		for _, c := range closed {
			gate(p, c.columns)
			refused(t, p, p.Request(v), fault.Conflict, c.code, c.message)
			refused(t, p, stale, fault.Conflict, c.code, c.message)
			in := p.Request(first)
			in.BaseRevision = 1
			again, err := p.Desk.Deploy(context.Background(), in)
			if err != nil || again.TicketID != view.TicketID {
				t.Errorf("exact retry: %+v, %v", again, err)
			}
			gate(p, opened+", scope = '"+p.Outbox.Scope().Default().Namespace+"'")
		}
		refused(t, p, stale, fault.Conflict, "", "Worker revision changed; refresh before deploying")
		p.Admit(v) // open: it passes
	})
}

// S1-311, S1-313, S3-56: a closed gate refuses a repair and leaves row and
// version as they were; an open one takes it.
func TestGateRefusesRepair(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		row := p.Row(p.Admit(v).TicketID)
		p.Exec("UPDATE edge_worker_outbox SET status = 'uncertain' WHERE id = ?", row.ID)
		p.Exec("UPDATE edge_worker_versions SET state = 'uncertain' WHERE id = ?", v.ID)
		in := admission.RepairRequest{Tenant: p.Tenant, Actor: p.Actor, TicketID: row.TicketID, ObservedRevision: 1}
		for _, c := range closed {
			gate(p, c.columns)
			_, err := p.Desk.Repair(context.Background(), in)
			if f := fault.As(err); f == nil || f.Kind != fault.Conflict || f.Code != c.code || f.Message != c.message {
				t.Errorf("%s: %v", c.columns, err)
			}
			if p.Row(row.TicketID).Status != models.OutboxUncertain || p.Version(v.ID).State != models.VersionUncertain || len(p.Published.Messages()) != 1 {
				t.Errorf("%s: something changed", c.columns)
			}
			gate(p, opened+", scope = '"+p.Outbox.Scope().Default().Namespace+"'")
		}
		view, err := p.Desk.Repair(context.Background(), in)
		if err != nil || view.Status != ticket.Submitting || len(p.Published.Messages()) != 2 {
			t.Errorf("open: %+v, %v", view, err)
		}
	})
}

// Behind a backup fence a repair is taken in like a deployment: reopened with the
// mark, and announced to nobody.
func TestRepairBehindAFence(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		row := p.Row(p.Admit(v).TicketID)
		p.Exec("UPDATE edge_worker_outbox SET status = 'uncertain' WHERE id = ?", row.ID)
		p.Exec("UPDATE edge_worker_versions SET state = 'uncertain' WHERE id = ?", v.ID)
		gate(p, "fence_id = 'f'")
		view, err := p.Desk.Repair(context.Background(), admission.RepairRequest{Tenant: p.Tenant, Actor: p.Actor, TicketID: row.TicketID, ObservedRevision: 1})
		if err != nil || view.Status != ticket.Pending || view.ErrorCode == nil || *view.ErrorCode != "edge_host_fenced" {
			t.Errorf("%+v, %v", view, err)
		}
		got := p.Row(row.TicketID)
		if got.Status != models.OutboxPending || got.LastErrorCode != "edge_host_fenced" || p.Version(v.ID).State != models.VersionDeploying || len(p.Published.Messages()) != 1 {
			t.Errorf("%+v, %d messages", got, len(p.Published.Messages()))
		}
	})
}

// S1-314, S1-315, S2-072 to S2-075: behind a backup fence the row is committed
// with its mark, nothing is published, and the ticket says why; a retry of it
// publishes nothing either. Without a fence there is one message and no mark.
func TestAdmissionBehindAFence(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		for _, fence := range []string{"fence_id = 'f'", "fence_id = 'ending:f'"} {
			gate(p, fence)
			v := p.Submit("one")
			view := p.Admit(v)
			for _, seen := range []ticket.Ticket{view, p.Admit(v), poll(t, p, view.TicketID)} {
				if seen.TicketID != view.TicketID || seen.Status != ticket.Pending || seen.ErrorCode == nil || *seen.ErrorCode != "edge_host_fenced" {
					t.Errorf("%s: %+v", fence, seen)
				}
			}
			row := p.Row(view.TicketID)
			if row.LastErrorCode != "edge_host_fenced" || row.NextAttemptAt != nil || len(p.Published.Messages()) != 0 {
				t.Errorf("%s: %+v, %d messages", fence, row, len(p.Published.Messages()))
			}
			p.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE id = ?", row.ID)
			p.Exec("UPDATE edge_worker_versions SET state = 'failed' WHERE id = ?", v.ID)
		}
		gate(p, opened)
		view := p.Admit(p.Submit("two"))
		if view.Status != ticket.Submitting || p.Row(view.TicketID).LastErrorCode != "" || len(p.Published.Messages()) != 1 {
			t.Errorf("open: %+v, %d messages", view, len(p.Published.Messages()))
		}
	})
}

func poll(t *testing.T, p *plane.Plane, id string) ticket.Ticket {
	t.Helper()
	view, err := p.Mirror.View(t.Context(), p.DB, p.Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// S1-312, S3-50 to S3-52: a cloud environment admits and repairs over a row in
// every state and over none, and no statement of it names the table.
func TestCloudNeverReadsTheGate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reads []string
	db := databasetest.Open(t, database.Params{URL: databasetest.MySQLURL(t), Trace: func(sql string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(sql, "edge_worker_maintenance") && !strings.Contains(sql, "/* the test */") {
			reads = append(reads, sql)
		}
	}})
	p := plane.New(t, db)
	mu.Lock()
	reads = nil // the schema was created
	mu.Unlock()
	for i, text := range []string{"none", "active"} {
		if i == 1 {
			p.Exec("/* the test */ INSERT INTO edge_worker_maintenance (scope, state, restore_pending, fence_id) VALUES (?, 'active', 1, 'f')", plane.Namespace)
		}
		v := p.Submit(text)
		view := p.Admit(v)
		p.Exec("UPDATE edge_worker_outbox SET status = 'uncertain' WHERE ticket_id = ?", view.TicketID)
		p.Exec("UPDATE edge_worker_versions SET state = 'uncertain' WHERE id = ?", v.ID)
		_, err := p.Desk.Repair(t.Context(), admission.RepairRequest{Tenant: p.Tenant, Actor: p.Actor, TicketID: view.TicketID, ObservedRevision: p.Worker().LatestRevision})
		if err != nil {
			t.Errorf("repair: %v", err)
		}
		messages := p.Published.Messages()
		if len(messages) != 2*(i+1) {
			t.Fatalf("%d messages", len(messages))
		}
		p.Provider.OnReadBack = func(provider.Release) error { return nil }
		err = p.Task(nil).Handle(t.Context(), messages[len(messages)-1])
		if err != nil || p.Row(view.TicketID).Status != models.OutboxCompleted {
			t.Errorf("task: %v, %s", err, p.Row(view.TicketID).Status)
		}
		_, err = p.Outbox.ClaimRecoverable(t.Context(), outbox.RecoveryClaim{})
		if err != nil {
			t.Error(err)
		}
		_, err = p.Outbox.ClaimDeferred().Next(t.Context())
		if err != nil {
			t.Error(err)
		}
	}
	if len(reads) != 0 {
		t.Errorf("cloud: %q", reads)
	}
	host := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
	mu.Lock()
	reads = nil
	mu.Unlock()
	host.Admit(host.Submit("control"))
	if len(reads) != 1 {
		t.Errorf("control, an edge host: %q", reads)
	}
}

// A fence that begins while 16 departments deploy: each row is committed before
// it and published, or marked and not; none is both and none neither.
func TestFenceBeginsAmongAdmissions(t *testing.T) {
	t.Parallel()
	p := plane.NewIn(t, databasetest.MySQL(t), outbox.OnPremScope("host-1"))
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range 16 {
		one := *p
		one.Tenant.DepartmentID += string(rune('a' + i))
		one.Provision(one.Tenant)
		in := one.Request(one.Submit("one"))
		group.Go(func() {
			<-begin
			_, err := p.Desk.Deploy(context.Background(), in)
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Go(func() {
		<-begin
		gate(p, "fence_id = 'f'")
	})
	close(begin)
	group.Wait()
	published := map[string]bool{}
	for _, m := range p.Published.Messages() {
		published[m.Args[0]] = true
	}
	var rows []models.Outbox
	if err := p.DB.Read(t.Context()).Where("operation = 'deploy'").Find(&rows).Error; err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if published[row.ID] == (row.LastErrorCode == "edge_host_fenced") {
			t.Errorf("published %v, code %q", published[row.ID], row.LastErrorCode)
		}
	}
	t.Logf("%d of %d before the fence", len(published), len(rows))
	if len(rows) != 16 {
		t.Errorf("%d rows", len(rows))
	}
}

// The check and the insert are one: a fence waits for an admission that has
// passed the gate, and another admission does not.
func TestGateIsHeldUntilTheCommit(t *testing.T) {
	t.Parallel()
	p := plane.NewIn(t, databasetest.MySQL(t), outbox.OnPremScope("host-1"))
	done := make(chan struct{})
	err := p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		_, err := p.Outbox.Gate(tx)
		if err != nil {
			return err
		}
		p.Admit(p.Submit("one")) // shares the gate
		go func() {
			defer close(done)
			gate(p, "fence_id = 'f'")
		}()
		databasetest.AwaitLockWait(t, p.DB)
		select {
		case <-done:
			t.Error("the fence began before the admission was committed")
		default:
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-done
}
