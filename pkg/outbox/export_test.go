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

// ClaimControlsIn is ClaimControlAudits inside a transaction that a test holds
// open.
func (o *Outbox) ClaimControlsIn(tx *database.Tx, token string, limit int) ([]Lease, error) {
	return o.claimDue(tx, models.OperationControlAudit, token, limit, ControlLeaseTTL)
}

// ClaimAcksIn is ClaimControlReceiptAcks inside a transaction that a test holds
// open.
func (o *Outbox) ClaimAcksIn(tx *database.Tx, limit int) ([]models.Outbox, error) {
	return o.claimAcks(tx, limit)
}
