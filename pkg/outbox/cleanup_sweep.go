package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Cleanup constants of S0 and S1, in code on purpose.
const (
	// CleanupLeaseTTL is how long claimed intents are one sweep's (S0-76).
	CleanupLeaseTTL = 300 * time.Second
	// CleanupBatch is the intents of one claim (S0-75).
	CleanupBatch = 50
)

// Codes of cleanup intents that a sweep could not settle as done.
const (
	// CodeCleanupPayload is that of an intent whose payload cannot be used (S1-144).
	CodeCleanupPayload = "cleanup_payload_invalid"
	// CodeCleanupFailed is that of an intent whose objects could not be deleted.
	CodeCleanupFailed = "artifact_cleanup_failed"
)

// ClaimCleanups leases due intents of the environment's scope, and intents
// whose last lease has ended, each with one attempt more (S0-73 to S0-76).
// limit is clamped to 1–100 (D19). Rows that others hold are passed over. The
// leases share one fresh token. A lease's Wait is what is left of the intent's
// grace, negative when it has passed.
//
// A claimed intent can never be adopted again, whatever becomes of the sweep:
// see AdoptCleanup.
func (o *Outbox) ClaimCleanups(ctx context.Context, owner string, limit int) ([]Lease, error) {
	if len(o.scope.Namespaces()) == 0 { // S1-042
		return nil, nil
	}
	token := owner + ":" + uuid.NewString()
	limit = min(max(limit, 1), 100)
	var leases []Lease
	// gofail: var cleanupClaimBefore string
	// if err := failpoint.Act(cleanupClaimBefore); err != nil { return nil, err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		leases, err = o.claimDue(tx, models.OperationArtifactCleanup, token, limit, CleanupLeaseTTL)
		for i := range leases {
			leases[i].Wait = CleanupGrace - now.Sub(leases[i].Row.CreatedAt)
		}
		return err
	})
	// gofail: var cleanupClaimAfter string
	// if err == nil { err = failpoint.Act(cleanupClaimAfter) }
	if err != nil {
		return nil, fmt.Errorf("claim cleanup intents: %w", err)
	}
	return leases, nil
}

// SettleCleanup ends a leased intent: completed when its objects are gone,
// cancelled with the owning version when they are referenced, failed when its
// payload cannot be used. The update is fenced by the lease's token (S1-154);
// a lost lease is ErrLeaseLost. Payload and code stay as evidence (S0-88).
func (o *Outbox) SettleCleanup(ctx context.Context, lease Lease, to models.OutboxStatus, versionID, code string) error {
	err := mayEnd(to)
	if err != nil {
		return err
	}
	if code == "" {
		code = lease.Row.LastErrorCode
	}
	return o.endCleanup(ctx, lease, func(time.Time) map[string]any {
		return map[string]any{"status": to, "version_id": versionID, "last_error_code": code, "last_error": nil}
	})
}

// RetryCleanup puts a leased intent back after a failure. It falls due after
// 15 s × 2^(attempts − 1), at most an hour (S0-85, S0-86).
func (o *Outbox) RetryCleanup(ctx context.Context, lease Lease, code, text string) error {
	return o.endCleanup(ctx, lease, func(now time.Time) map[string]any {
		return map[string]any{
			"status": models.OutboxPending, "next_attempt_at": ceil(now.Add(backOff(lease.Attempts))),
			"last_error_code": code, "last_error": nullable(text),
		}
	})
}

// HoldCleanup puts a leased intent back until its grace has passed: an object
// whose writer never had an answer may still arrive.
func (o *Outbox) HoldCleanup(ctx context.Context, lease Lease) error {
	return o.endCleanup(ctx, lease, func(time.Time) map[string]any {
		return map[string]any{"status": models.OutboxPending, "next_attempt_at": ceil(lease.Row.CreatedAt.Add(CleanupGrace))}
	})
}

// endCleanup is one UPDATE that is fenced by the lease; change gets the
// database's now.
func (o *Outbox) endCleanup(ctx context.Context, lease Lease, change func(now time.Time) map[string]any) error {
	// gofail: var cleanupSettleBefore string
	// if err := failpoint.Act(cleanupSettleBefore); err != nil { return err }
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		return endLease(tx, lease, change(now))
	})
	// gofail: var cleanupSettleAfter string
	// if err == nil { err = failpoint.Act(cleanupSettleAfter) }
	if err != nil {
		return fmt.Errorf("end the cleanup intent's lease: %w", err)
	}
	return nil
}
