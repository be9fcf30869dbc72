package outbox

import (
	"context"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/maintenance"
)

// Gate is the environment's gate, which stays as it is until the transaction
// ends. Only an edge host has one that can close; in every other environment it
// is open and nothing is read (S1-312, S3-51).
func (o *Outbox) Gate(tx *database.Tx) (maintenance.Gate, error) {
	if !o.scope.OnPrem() {
		return maintenance.Open, nil
	}
	return maintenance.Hold(tx, o.scope.own)
}

// PeekGate is Gate at this moment, for a decision that a later refusal of the
// edge host makes good.
func (o *Outbox) PeekGate(ctx context.Context) (maintenance.Gate, error) {
	if !o.scope.OnPrem() {
		return maintenance.Open, nil
	}
	return maintenance.Peek(o.db.Read(ctx), o.scope.own)
}
