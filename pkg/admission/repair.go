package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
)

// RepairAction is the one action that the repair route knows (S2-250).
const RepairAction = "reconcile_uncertain_deployment"

// RepairRequest asks for a GET-only reconciliation of an uncertain deployment.
// ObservedRevision is the Worker's latest revision as the caller saw it.
type RepairRequest struct {
	Tenant           models.Tenant
	Actor            audit.Actor
	TicketID         string
	ObservedRevision int64
}

// Repair reopens an uncertain deployment: the row goes back to pending and the
// version to deploying, which makes the next run read and never write
// (S2-252 to S2-254). The Worker stays paused until that run has settled. It
// returns the ticket as it now stands. Behind a backup fence the run waits for
// the fence's end, like a deployment.
func (d *Desk) Repair(ctx context.Context, in RepairRequest) (ticket.Ticket, error) {
	err := d.p.Provider()
	if err != nil {
		return ticket.Ticket{}, version.ErrProviderInvalid.Because(err)
	}
	var row models.Outbox
	// gofail: var repairCommitBefore string
	// if err := failpoint.Act(repairCommitBefore); err != nil { return ticket.Ticket{}, err }
	err = d.p.DB.Tx(ctx, func(tx *database.Tx) error {
		var err error
		row, err = d.reopen(tx, in)
		return err
	})
	// gofail: var repairCommitAfter string
	// if err == nil { err = failpoint.Act(repairCommitAfter) }
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = d.reopened(ctx, in, unknown)
	}
	if err != nil {
		var known *fault.Error
		if errors.As(err, &known) {
			return ticket.Ticket{}, err
		}
		return ticket.Ticket{}, fmt.Errorf("repair the deployment: %w", err)
	}
	return d.announce(ctx, row), nil
}

// reopen checks the maintenance gate (S1-311) and then checks and changes the
// rows, locked in the order outbox → worker → version.
func (d *Desk) reopen(tx *database.Tx, in RepairRequest) (models.Outbox, error) {
	gate, err := d.p.Outbox.Gate(tx)
	if err == nil {
		err = gate.Refusal()
	}
	if err != nil {
		return models.Outbox{}, err
	}
	row, err := outbox.Ticket(tx.Locked(), in.Tenant, in.TicketID)
	if errors.Is(err, outbox.ErrNoTicket) {
		return models.Outbox{}, ticket.ErrNotFound
	}
	if err != nil {
		return models.Outbox{}, err
	}
	worker, err := version.WorkerOf(tx.Locked(), in.Tenant)
	if err != nil {
		return models.Outbox{}, err
	}
	at, err := d.location(worker)
	switch {
	case err != nil || !d.p.Outbox.Scope().May(at.Namespace): // S2-257
		return models.Outbox{}, errTargetUnverified
	case in.ObservedRevision != worker.LatestRevision: // S2-251
		return models.Outbox{}, errRevisionStale
	case row.Status != models.OutboxUncertain:
		return models.Outbox{}, errNotUncertain
	}
	err = version.Move(tx, row.VersionID, models.VersionUncertain, models.VersionDeploying, version.Evidence{})
	if err != nil {
		return models.Outbox{}, err
	}
	row, err = outbox.Reopen(tx, row, mark(gate))
	if err != nil {
		return models.Outbox{}, err
	}
	// Each repair is a change of its own, so its fact has a fresh id.
	return row, audit.Write(tx, audit.Fact{
		ID: uuid.NewString(), Tenant: in.Tenant, Actor: in.Actor, Action: "deployment.repair_requested",
		ResourceType: "edge_worker", ResourceID: worker.ID, Result: audit.Succeeded,
	})
}

// reopened reads back whether the repair was committed.
func (d *Desk) reopened(ctx context.Context, in RepairRequest, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	row, err := d.committed(ctx, in.Tenant, in.TicketID)
	if err != nil {
		return errOutcomeUnknown.Because(errors.Join(cause, err))
	}
	if row.Status == models.OutboxUncertain {
		return fmt.Errorf("the repair was not committed: %w", cause)
	}
	return nil
}
