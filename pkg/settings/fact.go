package settings

import (
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
)

// auditDomain separates the digests of audit facts from all others.
const auditDomain = "edge-worker-control-audit"

// ResourceType is that of every control fact; its resource is the Worker (S1-170).
const ResourceType = "edge_worker"

// Action is a fact's action: the operation, with ".noop" when the mutation
// found nothing to delete or to revoke (S1-190).
func Action(operation Operation, noOp bool) string {
	if noOp {
		return string(operation) + ".noop"
	}
	return string(operation)
}

// Fact is the audit fact of an applied mutation. It is made of the outbox row
// and nothing else, so that whoever settles the row writes the same fact: its
// id is the row's id (S1-164). The digest is that of what may be kept of the
// command (S1-171 to S1-173).
func Fact(row models.Outbox, noOp bool) (audit.Fact, error) {
	p, err := outbox.DecodeControl(row)
	if err != nil {
		return audit.Fact{}, err
	}
	digest, err := canonical.JSONDigest(auditDomain, map[string]any{"operation": p.Operation, "command": p.Command})
	if err != nil {
		return audit.Fact{}, fmt.Errorf("audit digest: %w", err)
	}
	return audit.Fact{
		ID: row.ID, Tenant: models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID},
		Actor:  audit.Actor{Type: p.ActorType, ID: p.ActorID, Method: p.AuthMethod, RequestID: p.RequestID},
		Action: Action(Operation(p.Operation), noOp), ResourceType: ResourceType, ResourceID: row.WorkerID,
		Result: audit.Succeeded, Digest: digest,
	}, nil
}

// Complete ends the request's row of an applied mutation and writes its fact in
// the caller's transaction, as CheckResult told of the answer.
// models.ErrStaleTransition says that the recovery lane has taken the row over:
// it writes the same fact.
func Complete(tx *database.Tx, row models.Outbox, noOp bool) error {
	fact, err := Fact(row, noOp)
	if err != nil {
		return err
	}
	err = outbox.CompleteControl(tx, row)
	if err != nil {
		return err
	}
	return audit.Write(tx, fact)
}

// Expected is what a receipt of the row's mutation must speak of. It fails for
// a row whose payload cannot be used.
func Expected(row models.Outbox) (Expectation, error) {
	p, err := outbox.DecodeControl(row)
	if err != nil {
		return Expectation{}, err
	}
	_, err = ReadStored(Operation(p.Operation), p.Command)
	if err != nil {
		return Expectation{}, err
	}
	return Expectation{MutationID: row.ID, Operation: Operation(p.Operation), CommandDigest: p.CommandDigest, Command: p.Command}, nil
}
