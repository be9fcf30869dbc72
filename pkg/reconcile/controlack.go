package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/outbox"
)

func (c *ControlAuditor) ackBatch(ctx context.Context, result Result) (int, error) {
	asked := time.Now()
	rows, err := c.p.Outbox.ClaimControlReceiptAcks(ctx, outbox.ControlBatch)
	if err != nil {
		return 0, err
	}
	if len(rows) > 0 {
		result[ackClaimed] += len(rows)
	}
	inParallel(len(rows), result, func(i int) string { return c.acknowledge(ctx, rows[i], asked) })
	return len(rows), nil
}

// acknowledge takes one receipt off the Worker's hands, or puts the row back
// into the queue. The row stays completed whatever happens.
func (c *ControlAuditor) acknowledge(ctx context.Context, row models.Outbox, asked time.Time) string {
	log := c.p.Log.With("outbox_id", row.ID, "worker_id", row.WorkerID, "attempt", row.Attempts)
	what, err := ackRelease, error(nil)
	if time.Since(asked) <= controlStart && ctx.Err() == nil {
		what, err = c.tell(ctx, row, log)
	}
	if err == nil && what != ackRelease {
		return what
	}
	if errors.Is(err, models.ErrStaleTransition) {
		log.WarnContext(ctx, "control receipt left to its new owner")
		return ackTaken
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err == nil {
		err = c.p.Outbox.ReleaseAck(ctx, row)
		if err != nil {
			log.WarnContext(ctx, "control receipt not released", "error", err)
		}
		return ackRelease
	}
	unsaved := c.p.Outbox.RetryAck(ctx, row, outbox.CodeReceiptAck, ackText) // S1-231
	log.WarnContext(ctx, "control receipt not acknowledged; a later round tries again", "error", err, "unsaved", unsaved)
	return ackRetry
}

// tell acknowledges one receipt, or finds that nobody is left to be told.
func (c *ControlAuditor) tell(ctx context.Context, row models.Outbox, log *slog.Logger) (string, error) {
	retired, err := isRetired(func() *gorm.DB { return c.p.DB.Read(ctx) }, row)
	if err != nil {
		return "", err
	}
	if retired { // S1-192, S1-200 to S1-205, S1-233
		err := c.p.Outbox.EndAck(ctx, row, outbox.CodeWorkerRetired, ackRetiredText)
		if err == nil {
			log.InfoContext(ctx, retiredLogLine)
		}
		return ackRetired, err
	}
	payload, err := outbox.DecodeControl(row)
	if err != nil {
		log.ErrorContext(ctx, "control receipt not acknowledged: the row's payload is not valid", "error", err)
		return ackFailed, c.p.Outbox.EndAck(ctx, row, outbox.CodeControlPayload, payloadText)
	}
	query, err := c.target(ctx, row, payload)
	if errors.Is(err, errLegacyTarget) { // S1-234 to S1-236
		return ackFailed, c.p.Outbox.EndAck(ctx, row, outbox.CodeLegacyTarget, legacyText)
	}
	if err != nil {
		return "", err
	}
	answer, err := c.p.Receipts.Ack(ctx, query)
	if err == nil {
		err = control.CheckAcknowledged(answer)
	}
	if err != nil {
		return "", err
	}
	return ackDone, c.p.Outbox.EndAck(ctx, row, "", "")
}
