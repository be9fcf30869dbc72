package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
)

// CleanupParams is what a Cleaner is made of.
type CleanupParams struct {
	DB     *database.DB
	Outbox *outbox.Outbox
	// Store resolves the artifact store anew for each batch. An error fails the
	// whole batch, at the price of one attempt for each row (S1-155, S1-156).
	Store func() (artifact.Store, error)
	// Owner names the process in lease tokens.
	Owner string
	Log   *slog.Logger
}

// Cleaner is the lane of stored objects that no version came to own: it takes
// up due cleanup intents and deletes what nobody references (S0 "reconciler").
type Cleaner struct{ p CleanupParams }

// NewCleaner checks p and returns the lane.
func NewCleaner(p CleanupParams) (*Cleaner, error) {
	if p.DB == nil || p.Outbox == nil || p.Store == nil || p.Owner == "" || p.Log == nil {
		return nil, errors.New("cleanup lane: every part is required")
	}
	return &Cleaner{p: p}, nil
}

// Name is the lane's name in logs and metrics.
func (c *Cleaner) Name() string { return "artifacts" }

// What became of an intent, in results and metrics.
const (
	cleanupCompleted = "completed" // nothing of it is stored any more
	cleanupCancelled = "cancelled" // a version owns both objects
	cleanupHeld      = "held"      // deleted; looked at once more after the grace
	cleanupInvalid   = "invalid"   // its payload cannot be used
	cleanupRetry     = "retry"     // to be tried again after a pause
)

// RunOnce takes full batches, each at once after the one before, until one is
// not full, the budget is used up or the store is out of reach. It fails when
// the store is: an outage must be seen.
func (c *Cleaner) RunOnce(ctx context.Context, budget time.Duration) (Result, error) {
	result := Result{}
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < budget; {
		leases, err := c.p.Outbox.ClaimCleanups(ctx, c.p.Owner, outbox.CleanupBatch)
		if err != nil {
			return result, err
		}
		err = c.batch(ctx, leases, result)
		if err != nil || len(leases) < outbox.CleanupBatch {
			return result, err
		}
	}
	return result, nil
}

// errLate says that a batch was too slow for its leases.
var errLate = errors.New("the sweep ran out of its lease")

// batch works on one claim. Once the store has failed, the rest of the batch
// fails with it instead of waiting for its time-outs one by one (S0-87).
func (c *Cleaner) batch(ctx context.Context, leases []outbox.Lease, result Result) error {
	if len(leases) == 0 {
		return nil
	}
	store, outage := c.p.Store()
	for _, lease := range leases {
		result["claimed"]++
		if outage == nil && time.Since(lease.Asked) > outbox.CleanupLeaseTTL/2 {
			outage = errLate
		}
		what, err := cleanupRetry, outage
		if outage == nil {
			what, err = c.one(ctx, store, lease)
		}
		if errors.Is(err, artifact.ErrUnavailable) {
			outage = err
		}
		result[c.end(ctx, lease, what, err)]++
	}
	return outage
}

// one settles an intent. Nothing can make a version of it while it is leased,
// nor later: a claimed intent is not adoptable. So what is not referenced now
// never will be.
func (c *Cleaner) one(ctx context.Context, store artifact.Store, lease outbox.Lease) (string, error) {
	payload, err := outbox.DecodeCleanup(lease.Row)
	if err == nil {
		err = ownKeys(lease.Tenant, payload)
	}
	if err != nil {
		return cleanupInvalid, errors.Join(err, c.p.Outbox.SettleCleanup(ctx, lease, models.OutboxFailed, "", outbox.CodeCleanupPayload))
	}
	owners, err := version.Owners(c.p.DB.Read(ctx), lease.Tenant, payload.Keys())
	if err != nil {
		return cleanupRetry, err
	}
	if len(owners) == len(payload.Items) { // also when two versions own one each: nothing is deleted (S0-81)
		return cleanupCancelled, c.p.Outbox.SettleCleanup(ctx, lease, models.OutboxCancelled, owners[payload.Project().ObjectKey], "")
	}
	for _, item := range payload.Items {
		if owners[item.ObjectKey] != "" {
			continue
		}
		err := c.remove(ctx, store, lease.Tenant, item)
		if err != nil { // the group is tried again as a whole (S1-152, S1-153)
			return cleanupRetry, err
		}
	}
	if lease.Wait > 0 {
		return cleanupHeld, c.p.Outbox.HoldCleanup(ctx, lease)
	}
	return cleanupCompleted, c.p.Outbox.SettleCleanup(ctx, lease, models.OutboxCompleted, "", "")
}

func (c *Cleaner) remove(ctx context.Context, store artifact.Store, tenant models.Tenant, item outbox.CleanupItem) error {
	// gofail: var cleanupDeleteBefore string
	// if err := failpoint.Act(cleanupDeleteBefore); err != nil { return err }
	err := store.Delete(ctx, artifact.Tenant(tenant), artifact.Kind(item.Kind), item.ObjectKey)
	// gofail: var cleanupDeleteAfter string
	// if err == nil { err = failpoint.Act(cleanupDeleteAfter) }
	if err != nil {
		return fmt.Errorf("delete the stored %s: %w", item.Kind, err)
	}
	return nil
}

// ownKeys refuses a payload that names another tenant's object, before any
// call to the store (S0-45).
func ownKeys(tenant models.Tenant, payload outbox.CleanupPayload) error {
	for _, item := range payload.Items {
		err := artifact.Owned(artifact.Tenant(tenant), artifact.Kind(item.Kind), item.ObjectKey)
		if err != nil {
			return fmt.Errorf("the %s item: %w", item.Kind, err)
		}
	}
	return nil
}

// end puts a failed intent back and says in the log what happened.
func (c *Cleaner) end(ctx context.Context, lease outbox.Lease, what string, err error) string {
	if err == nil {
		return what
	}
	log := c.p.Log.With("outbox_id", lease.OutboxID, "attempt", lease.Attempts, "error", err)
	switch {
	case errors.Is(err, outbox.ErrLeaseLost):
		log.WarnContext(ctx, "cleanup left to its new owner")
		return "taken"
	case what == cleanupInvalid:
		log.ErrorContext(ctx, "cleanup intent isolated: its payload is not valid")
		return what
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	err = c.p.Outbox.RetryCleanup(ctx, lease, outbox.CodeCleanupFailed, cleanupText)
	log.WarnContext(ctx, "cleanup failed; a later round tries again", "unsaved", err)
	return cleanupRetry
}

// giveBackTimeout bounds what is done for a row's sake after a shutdown.
const giveBackTimeout = 10 * time.Second

// cleanupText is stored with an intent that waits for its next attempt; causes
// stay in logs.
const cleanupText = "the objects could not be deleted"
