package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// Receipts asks live Workers for receipts and acknowledges them. There is
// nothing in it that could change a Worker: a mutation is never sent again
// (S1-163).
type Receipts interface {
	Get(ctx context.Context, q control.ReceiptQuery) (json.RawMessage, error)
	Ack(ctx context.Context, q control.ReceiptQuery) (json.RawMessage, error)
}

// ControlAuditParams is what a ControlAuditor is made of.
type ControlAuditParams struct {
	DB       *database.DB
	Outbox   *outbox.Outbox
	Receipts Receipts
	// Owner names the process in lease tokens.
	Owner string
	Log   *slog.Logger
}

// ControlAuditor is the lane of commands whose answer was lost. The recovery
// pass finds out by the Worker's receipt what became of each and writes the
// audit fact; the acknowledgement pass lets the Worker forget receipts that
// nobody needs any more (S1 "control-plane audit reconciler").
type ControlAuditor struct{ p ControlAuditParams }

// NewControlAuditor checks p and returns the lane.
func NewControlAuditor(p ControlAuditParams) (*ControlAuditor, error) {
	if p.DB == nil || p.Outbox == nil || p.Receipts == nil || p.Owner == "" || p.Log == nil {
		return nil, errors.New("control-audit lane: every part is required")
	}
	return &ControlAuditor{p: p}, nil
}

// Name is the lane's name in logs and metrics.
func (c *ControlAuditor) Name() string { return "control" }

// What became of a row, in results and metrics.
const (
	controlClaimed   = "claimed"
	controlCompleted = "completed" // the receipt is there; the audit fact is written
	controlFailed    = "failed"    // there is no receipt, or nowhere to ask for it
	controlRetired   = "retired"   // its Worker is retired
	controlRetry     = "retry"     // to be tried again after a pause
	controlReleased  = "released"  // not begun in time; nothing was done for it
	controlTaken     = "taken"     // somebody else has it
	controlInvalid   = "invalid"   // its payload cannot be used

	ackClaimed = "ack_claimed"
	ackDone    = "acked"
	ackFailed  = "ack_failed" // nobody can be told any more
	ackRetired = "ack_retired"
	ackRetry   = "ack_retry"
	ackRelease = "ack_released"
	ackTaken   = "ack_taken"
)

const (
	// controlParallel is the Workers that are asked at once: one that hangs
	// takes 40 s and must not use up the leases of the rest.
	controlParallel = 8
	// controlStart is how long after a claim its rows are begun: what is begun
	// then still ends within the lease.
	controlStart = outbox.ControlLeaseTTL / 2
)

// roundLine is the log line of each round; its words are fixed (S1-278, S1-279).
const roundLine = "Edge Worker control audit: claimed=%d completed=%d failed=%d retry=%d retired=%d ack_claimed=%d acked=%d ack_failed=%d ack_retry=%d ack_retired=%d"

// RunOnce does the recovery pass and then the acknowledgement pass, each with
// full batches one after the other until one is not full or its half of the
// budget is used up. An error of one pass does not keep the other from running.
func (c *ControlAuditor) RunOnce(ctx context.Context, budget time.Duration) (Result, error) {
	result := Result{}
	err := errors.Join(c.pass(ctx, budget/2, result, c.recoverBatch), c.pass(ctx, budget/2, result, c.ackBatch))
	//nolint:sloglint // the counters are part of the message
	c.p.Log.InfoContext(ctx, fmt.Sprintf(roundLine,
		result[controlClaimed], result[controlCompleted], result[controlFailed]+result[controlInvalid], result[controlRetry], result[controlRetired],
		result[ackClaimed], result[ackDone], result[ackFailed], result[ackRetry], result[ackRetired]))
	return result, err
}

// pass runs batches; batch tells how many rows it claimed.
func (c *ControlAuditor) pass(ctx context.Context, budget time.Duration, result Result, batch func(context.Context, Result) (int, error)) error {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < budget; {
		claimed, err := batch(ctx, result)
		if err != nil || claimed < outbox.ControlBatch {
			return err
		}
	}
	return nil
}

// inParallel runs do for n rows, some at once, and counts what it returns.
func inParallel(n int, result Result, do func(i int) string) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(controlParallel)
	for i := range n {
		group.Go(func() error {
			what := do(i)
			mu.Lock()
			defer mu.Unlock()
			result[what]++
			return nil
		})
	}
	_ = group.Wait() // do has no error
}

func (c *ControlAuditor) recoverBatch(ctx context.Context, result Result) (int, error) {
	leases, err := c.p.Outbox.ClaimControlAudits(ctx, c.p.Owner, outbox.ControlBatch)
	if err != nil {
		return 0, err
	}
	if len(leases) > 0 {
		result[controlClaimed] += len(leases)
	}
	inParallel(len(leases), result, func(i int) string { return c.recover(ctx, leases[i]) })
	return len(leases), nil
}

// recover brings one row to its end or puts it back.
func (c *ControlAuditor) recover(ctx context.Context, lease outbox.Lease) string {
	log := c.p.Log.With("outbox_id", lease.OutboxID, "worker_id", lease.Row.WorkerID, "attempt", lease.Attempts)
	late := time.Since(lease.Asked) > controlStart
	what, err := controlReleased, error(nil)
	if !late && ctx.Err() == nil {
		what, err = c.ask(ctx, lease, log)
	}
	if err == nil && what != controlReleased {
		return what
	}
	if errors.Is(err, outbox.ErrLeaseLost) {
		log.WarnContext(ctx, "control row left to its new owner")
		return controlTaken
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err == nil {
		err = c.p.Outbox.ReleaseControl(ctx, lease)
		if err != nil {
			log.WarnContext(ctx, "control row not released", "error", err)
		}
		return controlReleased
	}
	unsaved := c.p.Outbox.RetryControl(ctx, lease, outbox.CodeReceiptUnavailable, receiptText)
	log.WarnContext(ctx, "control receipt unavailable; a later round tries again", "error", err, "unsaved", unsaved)
	return controlRetry
}

// Texts that are stored with rows; causes stay in logs.
const (
	receiptText    = "the control receipt could not be used"
	notFoundText   = "the Worker has no receipt of the command"
	legacyText     = "the Worker's serving location is not the row's"
	payloadText    = "the row's payload is not valid"
	ackText        = "the Worker did not acknowledge"
	retiredText    = "Worker retired before its control receipt was read" // S1-198
	ackRetiredText = "provider receipt retired with its Worker"           // S1-202
	retiredLogLine = "Edge Worker control receipt settled: its Worker is retired"
)

// ask settles the row by its receipt. An error means that it could not be
// used: the row is tried again.
func (c *ControlAuditor) ask(ctx context.Context, lease outbox.Lease, log *slog.Logger) (string, error) {
	retired, err := isRetired(func() *gorm.DB { return c.p.DB.Read(ctx) }, lease.Row)
	if err != nil {
		return "", err
	}
	if retired { // S1-192, S1-195 to S1-199
		err := c.settle(ctx, lease, models.OutboxCancelled, outbox.CodeWorkerRetired, retiredText)
		if err == nil {
			log.InfoContext(ctx, retiredLogLine)
		}
		return controlRetired, err
	}
	expected, err := settings.Expected(lease.Row)
	if err != nil {
		log.ErrorContext(ctx, "control row isolated: its payload is not valid", "error", err)
		return controlInvalid, c.settle(ctx, lease, models.OutboxFailed, outbox.CodeControlPayload, payloadText)
	}
	payload, err := outbox.DecodeControl(lease.Row)
	if err != nil {
		return "", err
	}
	query, err := c.target(ctx, lease.Row, payload)
	if errors.Is(err, errLegacyTarget) {
		return controlFailed, c.settle(ctx, lease, models.OutboxFailed, outbox.CodeLegacyTarget, legacyText)
	}
	if err != nil {
		return "", err
	}
	answer, err := c.p.Receipts.Get(ctx, query)
	if err != nil {
		return "", err
	}
	receipt, err := settings.ReadReceipt(expected, answer)
	if err != nil {
		return "", err
	}
	if !receipt.Found { // S1-219
		return controlFailed, c.settle(ctx, lease, models.OutboxFailed, outbox.CodeReceiptNotFound, notFoundText)
	}
	return controlCompleted, c.complete(ctx, lease, receipt.NoOp, log)
}

// settle ends a row that leaves no fact.
func (c *ControlAuditor) settle(ctx context.Context, lease outbox.Lease, to models.OutboxStatus, code, text string) error {
	return c.p.DB.Tx(ctx, func(tx *database.Tx) error { return outbox.SettleControl(tx, lease, to, code, text) })
}

// complete ends the row and writes its fact in one transaction (S1-217,
// S1-218). Writing it again finds the first one; other facts under the row's
// id are refused, and the row stays open for somebody to look at (S1-166).
func (c *ControlAuditor) complete(ctx context.Context, lease outbox.Lease, noOp bool, log *slog.Logger) error {
	fact, err := settings.Fact(lease.Row, noOp)
	if err != nil {
		return err
	}
	err = c.p.DB.Tx(ctx, func(tx *database.Tx) error {
		err := outbox.SettleControl(tx, lease, models.OutboxCompleted, "", "")
		if err != nil {
			return err
		}
		return audit.Write(tx, fact)
	})
	if errors.Is(err, audit.ErrDrift) {
		log.ErrorContext(ctx, "control row not settled: its audit fact differs from the one that exists")
	}
	return err
}
