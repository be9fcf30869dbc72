package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Lease constants of S1 and S2, in code on purpose (S1-014).
const (
	// LeaseTTL is lease_seconds=90: how long a deployment is one owner's
	// without a heartbeat (S1-063).
	LeaseTTL = 90 * time.Second
	// HeartbeatEvery renews the lease; two beats may be missed (S2-121).
	HeartbeatEvery = 30 * time.Second
)

// Disposition is the answer to a request for a lease (S1-064).
type Disposition string

// The five dispositions; there is no other.
const (
	Acquired   Disposition = "acquired"    // the caller owns the row now
	Terminal   Disposition = "terminal"    // nothing is left to do for a delivery
	InFlight   Disposition = "inflight"    // another owner works on it
	NotDue     Disposition = "not_due"     // a sweep is about to publish it; try again when due
	WrongScope Disposition = "wrong_scope" // another environment's row; leave it
)

// LeaseRequest names the row by all that a job message says of it.
type LeaseRequest struct {
	OutboxID  string
	Tenant    models.Tenant
	MessageID string
	// Owner identifies the process; the token adds a fresh UUID (S2-122).
	Owner string
	// BatchJobID and BatchAttempt are AWS Batch's identity of the run; only
	// attempt ≥ 2 of the same job may take its own live lease (S1-065, S1-066).
	BatchJobID   string
	BatchAttempt int
}

// Lease is one owner's hold on a row.
type Lease struct {
	OutboxID string
	Tenant   models.Tenant
	// Token fences every later change: owner:uuid4, or for AWS Batch
	// batch/<job id>:uuid4.
	Token string
	// ReadOnly is the GET-only mode: the lease found the version deploying, so
	// an earlier run may have written to the provider (S1-081).
	ReadOnly bool
	// Attempts counts the leases that found the version deploy_pending.
	Attempts int
	// Asked is the local time just before the lease was taken: a local timer
	// that runs from it can end early, but never after the lease.
	Asked time.Time
	// Wait is how long a NotDue row needs until it is due, and what is left of
	// a cleanup intent's grace.
	Wait time.Duration
	// Row is the row as it was when leased.
	Row models.Outbox
}

// LeaseDeployment asks for the row (S1-063). Rows are locked in the order
// outbox → worker → version. A lost commit acknowledgement is resolved by
// looking for the fresh token.
func (o *Outbox) LeaseDeployment(ctx context.Context, req LeaseRequest) (Lease, Disposition, error) {
	token := leaseToken(req)
	var lease Lease
	var disposition Disposition
	// gofail: var leaseBefore string
	// if err := failpoint.Act(leaseBefore); err != nil { return Lease{}, "", err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		asked := time.Now()
		var err error
		lease, disposition, err = o.lease(tx, req, token)
		lease.Asked = asked
		return err
	})
	// gofail: var leaseAfter string
	// if err == nil { err = failpoint.Act(leaseAfter) }
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		return o.leaseByToken(ctx, lease, disposition, unknown)
	}
	if err != nil {
		return Lease{}, "", fmt.Errorf("lease the deployment: %w", err)
	}
	return lease, disposition, nil
}

func leaseToken(req LeaseRequest) string {
	owner := req.Owner
	if req.BatchJobID != "" {
		owner = batchOwner(req.BatchJobID)
	}
	return owner + ":" + uuid.NewString()
}

func batchOwner(jobID string) string { return "batch/" + jobID }

func (o *Outbox) lease(tx *database.Tx, req LeaseRequest, token string) (Lease, Disposition, error) {
	found, ok, err := lockLeasable(tx, req)
	if err != nil {
		return Lease{}, "", err
	}
	if !ok {
		return Lease{}, Terminal, nil
	}
	row, now := found.Outbox, tx.At(found.Micros)
	disposition, wait := o.dispose(row, req, now)
	if disposition != Acquired {
		return Lease{Wait: wait}, disposition, nil
	}
	readOnly, attempts := found.VersionState == models.VersionDeploying, row.Attempts
	if !readOnly {
		attempts++
	}
	taken := tx.Model(&models.Outbox{}).
		Where("id = ? AND status = ? AND lease_owner = ?", row.ID, row.Status, row.LeaseOwner).
		UpdateColumns(map[string]any{
			"status": models.OutboxLeased, "lease_owner": token, "lease_expires_at": now.Add(LeaseTTL),
			"attempts": attempts, "next_attempt_at": nil, "last_error_code": beyondFence(row.LastErrorCode), "updated_at": now,
		})
	err = database.Exactly(taken, "take the lease")
	if err != nil {
		return Lease{}, "", err
	}
	return Lease{OutboxID: row.ID, Tenant: req.Tenant, Token: token, ReadOnly: readOnly, Attempts: attempts, Row: row}, Acquired, nil
}

// dispose decides without touching anything.
func (o *Outbox) dispose(row models.Outbox, req LeaseRequest, now time.Time) (Disposition, time.Duration) {
	payload, err := DecodeDeploy(row)
	switch {
	case row.Status.Released() || row.Status == models.OutboxUncertain:
		return Terminal, 0
	case !o.scope.May(row.DispatchNamespace):
		return o.foreign(), 0
	case err != nil || payload.MessageID != req.MessageID:
		return Terminal, 0 // the recovery sweep isolates an invalid payload
	case payload.Serving != nil && !o.scope.May(payload.Serving.Serving.Namespace):
		return o.foreign(), 0 // S1-049
	case row.Status == models.OutboxLeased && o.held(row, req, now):
		return InFlight, 0
	case row.Status == models.OutboxPending && row.NextAttemptAt != nil && row.NextAttemptAt.After(now):
		return NotDue, row.NextAttemptAt.Sub(now)
	}
	return Acquired, 0
}

// beyondFence is the code of a row that is leased: who leases it found the gate
// open, so that a fence's mark is over (S2-075).
func beyondFence(code string) string {
	if code == CodeFenced {
		return ""
	}
	return code
}

// foreign is the answer for a row that this environment may not run. An edge
// host shares its rows with nobody, so that nothing is left to do for the
// delivery (S1-322).
func (o *Outbox) foreign() Disposition {
	if o.scope.OnPrem() {
		return Terminal
	}
	return WrongScope
}

// held reports whether another owner's lease is alive. The second attempt of
// the same AWS Batch job may take over its own (S2-232, S2-233).
func (o *Outbox) held(row models.Outbox, req LeaseRequest, now time.Time) bool {
	if row.LeaseExpiresAt == nil || !row.LeaseExpiresAt.After(now) {
		return false
	}
	if req.BatchJobID == "" || req.BatchAttempt < 2 {
		return true
	}
	prefix := batchOwner(req.BatchJobID) + ":"
	return len(row.LeaseOwner) <= len(prefix) || row.LeaseOwner[:len(prefix)] != prefix
}

func (o *Outbox) leaseByToken(ctx context.Context, lease Lease, disposition Disposition, cause error) (Lease, Disposition, error) {
	if disposition != Acquired {
		return lease, disposition, nil // nothing was written
	}
	var n int64
	err := o.db.Read(ctx).Model(&models.Outbox{}).Where("id = ? AND lease_owner = ?", lease.OutboxID, lease.Token).Count(&n).Error
	if err != nil {
		return Lease{}, "", fmt.Errorf("lease the deployment: %w", errors.Join(cause, err))
	}
	if n == 1 {
		return lease, Acquired, nil
	}
	return Lease{}, "", fmt.Errorf("lease the deployment: %w", cause)
}

// ErrLeaseLost says that another owner holds the row, or that the lease ended
// and anyone may. The task stops at once and writes nothing (S2-182).
var ErrLeaseLost = errors.New("the deployment's lease was lost")

// Renew extends the lease to LeaseTTL from the database's now. It uses the
// heartbeat connections and is fenced by the token (S2-121).
func (o *Outbox) Renew(ctx context.Context, lease Lease) error {
	return o.db.HeartbeatTx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		renewed := tx.Model(&models.Outbox{}).
			Where("id = ? AND status = ? AND lease_owner = ? AND lease_expires_at > ?", lease.OutboxID, models.OutboxLeased, lease.Token, now).
			UpdateColumns(map[string]any{"lease_expires_at": now.Add(LeaseTTL), "updated_at": now})
		return leaseFence(renewed.RowsAffected, renewed.Error)
	})
}

// Verify checks that the lease is still the caller's and alive: one statement
// that asks the database's clock itself.
func (o *Outbox) Verify(ctx context.Context, lease Lease) error {
	var rows int64
	found := o.db.Read(ctx).Model(&models.Outbox{}).
		Where("id = ? AND status = ? AND lease_owner = ? AND lease_expires_at > "+o.db.NowSQL(), lease.OutboxID, models.OutboxLeased, lease.Token).
		Count(&rows)
	return leaseFence(rows, found.Error)
}

func leaseFence(rows int64, err error) error {
	if err != nil {
		return fmt.Errorf("check the lease: %w", err)
	}
	if rows != 1 {
		return ErrLeaseLost
	}
	return nil
}
