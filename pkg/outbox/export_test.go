package outbox

import (
	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// ClaimRecoverableIn is ClaimRecoverable inside a transaction that a test holds
// open.
func (o *Outbox) ClaimRecoverableIn(tx *database.Tx, c RecoveryClaim) ([]models.Outbox, error) {
	return o.claimRecoverable(tx, c.Clamped())
}
