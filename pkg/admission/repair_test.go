package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
)

// uncertain brings a deployment to an uncertain end and returns its ticket.
func uncertain(t *testing.T, p *plane.Plane) (models.Version, string) {
	t.Helper()
	v := p.Submit("one")
	view := p.Admit(v)
	p.Provider.After = func(provider.Release) error { return nil }
	p.Provider.OnReadBack = func(provider.Release) error { return &provider.UnreadableError{Cause: errors.New("away")} }
	run(t, p)
	p.Provider.OnReadBack = nil
	if got := p.Row(view.TicketID).Status; got != models.OutboxUncertain {
		t.Fatalf("row %s", got)
	}
	return v, view.TicketID
}

// run handles the last published message.
func run(t *testing.T, p *plane.Plane) {
	t.Helper()
	messages := p.Published.Messages()
	err := p.Task(nil).Handle(context.Background(), messages[len(messages)-1])
	if err != nil {
		t.Fatal(err)
	}
}

func repairOf(p *plane.Plane, ticketID string) admission.RepairRequest {
	return admission.RepairRequest{Tenant: p.Tenant, Actor: p.Actor, TicketID: ticketID, ObservedRevision: p.Worker().LatestRevision}
}

func repairRefused(t *testing.T, p *plane.Plane, in admission.RepairRequest, kind fault.Kind, code, message string) {
	t.Helper()
	sent := len(p.Published.Messages())
	_, err := p.Desk.Repair(context.Background(), in)
	if f := fault.As(err); f == nil || f.Kind != kind || f.Code != code || f.Message != message {
		t.Errorf("got %v, want %s %q %q", err, kind, code, message)
	}
	if len(p.Published.Messages()) != sent {
		t.Error("a refused repair was published")
	}
}

// S2-249, S2-252 to S2-256, S2-081, S2-265: a repair reopens the row and the
// version, counts attempts anew, and the run that follows only reads; it ends
// completed because the release is there and answers, and the department may
// deploy again.
func TestRepair(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID := uncertain(t, p)
		next := p.Submit("two")
		refused(t, p, p.Request(next), fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")
		view, err := p.Desk.Repair(context.Background(), repairOf(p, ticketID))
		if err != nil || view.Status != ticket.Submitting || view.TicketID != ticketID || view.ErrorCode != nil {
			t.Fatalf("%+v %v", view, err)
		}
		row := p.Row(ticketID)
		if row.Status != models.OutboxPending || row.Attempts != 0 || p.Version(v.ID).State != models.VersionDeploying || p.Worker().Status != models.WorkerPaused {
			t.Errorf("row %s %d, version %s, Worker %s", row.Status, row.Attempts, p.Version(v.ID).State, p.Worker().Status)
		}
		puts := p.Provider.Puts()
		run(t, p)
		if p.Provider.Puts() != puts {
			t.Error("a repair wrote to the provider")
		}
		if p.Row(ticketID).Status != models.OutboxCompleted || p.Worker().Status != models.WorkerActive {
			t.Errorf("row %s, Worker %s", p.Row(ticketID).Status, p.Worker().Status)
		}
		p.Admit(next)
	})
}

// S2-255: a mismatch stays uncertain, and may be repaired again later.
func TestRepairOfAMismatch(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID := uncertain(t, p)
		p.Provider.OnReadBack = func(provider.Release) error { return &provider.MismatchError{Detail: "tags"} }
		for range 2 {
			_, err := p.Desk.Repair(context.Background(), repairOf(p, ticketID))
			if err != nil {
				t.Fatal(err)
			}
			run(t, p)
			row := p.Row(ticketID)
			if row.Status != models.OutboxUncertain || row.LastErrorCode != "provider_bundle_mismatch" || p.Version(v.ID).State != models.VersionUncertain {
				t.Errorf("row %s %s", row.Status, row.LastErrorCode)
			}
		}
		repairs := 0
		for _, f := range p.Facts() {
			if f.Action == "deployment.repair_requested" {
				repairs++
			}
		}
		if repairs != 2 {
			t.Errorf("%d facts of repairs", repairs)
		}
	})
}

// S2-023, S2-251, S2-257: what stops a repair, with the row unchanged.
func TestRepairRefusals(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID := uncertain(t, p)
		in := repairOf(p, ticketID)
		p.Invalid = errors.New("no provider")
		repairRefused(t, p, in, fault.Unavailable, "", "Edge Worker provider is not configured")
		p.Invalid = nil
		for _, off := range []int64{-1, 1} {
			stale := in
			stale.ObservedRevision += off
			repairRefused(t, p, stale, fault.Conflict, "", "Worker revision is stale; refresh department state")
		}
		unknown := in
		unknown.TicketID = "nobody's"
		repairRefused(t, p, unknown, fault.NotFound, "", "Deployment ticket not found")
		foreign := in
		foreign.Tenant.CompanyID = "another"
		repairRefused(t, p, foreign, fault.NotFound, "", "Deployment ticket not found")
		p.Exec("UPDATE edge_workers SET serving_namespace = 'of-another-environment' WHERE id = ?", p.Worker().ID)
		repairRefused(t, p, in, fault.Conflict, "worker_serving_target_unavailable", "Worker deployment target cannot be verified")
		p.Exec("UPDATE edge_workers SET serving_namespace = ? WHERE id = ?", plane.Namespace, p.Worker().ID)
		if p.Row(ticketID).Status != models.OutboxUncertain {
			t.Errorf("row %s", p.Row(ticketID).Status)
		}
		_, err := p.Desk.Repair(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		repairRefused(t, p, in, fault.Conflict, "deployment_not_uncertain", "Only an uncertain deployment can be reconciled")
	})
}

// A repair whose commit acknowledgement is lost is read back and published.
func TestRepairLostAcknowledgement(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID := uncertain(t, p)
		in := repairOf(p, ticketID)
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, errors.New("connection reset")) })
		_, err := p.Desk.Repair(context.Background(), in)
		p.DB.AfterCommit(nil)
		if err != nil || p.Row(ticketID).Status != models.OutboxPending || len(p.Published.Messages()) != 2 {
			t.Errorf("%v, row %s, %d messages", err, p.Row(ticketID).Status, len(p.Published.Messages()))
		}
	})
}

// S2-019, S2-105, S2-106, S2-108: over a live v2.8 no older policy is
// deployed; releases whose identity cannot be derived are refused.
func TestReleaseRules(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		live := p.Submit("one")
		p.Admit(live)
		run(t, p)
		old := p.SubmitPolicy("two", "department-worker-project-v2.7")
		refused(t, p, p.Request(old), fault.Conflict, "release_downgrade_blocked",
			"The live release does not allow an older builder policy; upload the project again and deploy the new revision")
		// S2-107: the same project, uploaded again, is a new revision that may be deployed.
		again := p.Submit("two")
		if again.ProjectDigest != old.ProjectDigest || again.Revision != old.Revision+1 || again.BuilderPolicy != string(builder.Current) {
			t.Errorf("uploaded again: revision %d, policy %s", again.Revision, again.BuilderPolicy)
		}
		p.Admit(again)
		run(t, p)
		live = again
		next := p.Submit("three")
		const unavailable = "Deployed department Worker release is unavailable"
		for _, id := range []string{live.ID, next.ID} {
			before := p.Version(id).ReleaseGeneration
			p.Exec("UPDATE edge_worker_versions SET release_generation = bundle_digest WHERE id = ?", id)
			refused(t, p, p.Request(next), fault.Unavailable, "", unavailable)
			p.Exec("UPDATE edge_worker_versions SET release_generation = ? WHERE id = ?", before, id)
		}
		p.Admit(next)
	})
}
