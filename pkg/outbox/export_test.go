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

// ClaimCleanupsIn is ClaimCleanups inside a transaction that a test holds open.
func (o *Outbox) ClaimCleanupsIn(tx *database.Tx, token string, limit int) ([]Lease, error) {
	return o.claimDue(tx, models.OperationArtifactCleanup, token, limit, CleanupLeaseTTL)
}
