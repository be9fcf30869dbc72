package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/version"
)

// parse makes a command of its payload.
func parse(operation settings.Operation, payload map[string]any) (settings.Command, error) {
	raw, err := json.Marshal(payload)
	if err != nil {
		return settings.Command{}, fmt.Errorf("encode the command: %w", err)
	}
	command, err := settings.Parse(operation, raw)
	if err != nil {
		return settings.Command{}, invalid(err)
	}
	return command, nil
}

// sendWithin bounds the time from when a row is about to be written to the
// sending of its command. The control-audit lane asks for the receipt when the
// row is outbox.ControlRequestGrace old, and a command that still came after
// that would be applied without a fact; one that is sent is given up, and its
// assertion has ended, some 65 s later.
const sendWithin = time.Minute

// change is changeWhere for the release that the command was made for.
func (d *Desk) change(ctx context.Context, by By, of release, command settings.Command) (json.RawMessage, error) {
	return d.changeWhere(ctx, by, command, func(now release) error {
		if now.generation != of.generation || now.worker.ScriptName != of.worker.ScriptName {
			return errChanging
		}
		return nil
	})
}

// changeLive is changeWhere for whatever release is live.
func (d *Desk) changeLive(ctx context.Context, by By, command settings.Command) (json.RawMessage, error) {
	err := d.p.Provider()
	if err != nil {
		return nil, version.ErrProviderInvalid.Because(err)
	}
	return d.changeWhere(ctx, by, command, everyRelease.of)
}

// changeWhere records a command to the live release, unless fits refuses it,
// sends it once, and settles its row by the answer. It gives the result of an
// applied mutation. The client's going away ends nothing once the row is
// committed.
func (d *Desk) changeWhere(ctx context.Context, by By, command settings.Command, fits func(release) error) (json.RawMessage, error) {
	began := d.now()
	row, of, err := d.record(ctx, by, command, fits)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)     // bounded by the channel and the database
	if d.now().Sub(began) > sendWithin { // a slow commit, or a process that stood still
		d.p.Metrics.count(command.Operation(), notSent)
		d.refuse(ctx, row, errNotCommitted.Code)
		return nil, errNotCommitted
	}
	result, err := d.p.Channel.Call(ctx, of.command(by, command.Operation(), row.ID, command.Payload()))
	return d.settle(ctx, row, command, result, err)
}

// record commits the row of a command that is about to be sent to the release
// that is the live one under the Worker's lock, and gives both.
func (d *Desk) record(ctx context.Context, by By, command settings.Command, fits func(release) error) (models.Outbox, release, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return models.Outbox{}, release{}, fmt.Errorf("mutation id: %w", err)
	}
	var row models.Outbox
	var now release
	err = d.p.DB.Tx(ctx, func(tx *database.Tx) error {
		worker, err := version.WorkerOf(tx.Locked(), by.Tenant)
		if err != nil {
			return err
		}
		now, err = serving(tx.DB, by.Tenant, worker)
		if err != nil {
			return err
		}
		err = fits(now)
		if err != nil {
			return err
		}
		row, err = d.p.Outbox.EnqueueControlAudit(tx, outbox.ControlIntent{
			ID: id.String(), Tenant: by.Tenant, Worker: worker, ReleaseGeneration: now.generation, Command: command,
			Actor: outbox.ControlActor{Type: by.Actor.Type, ID: by.Actor.ID, Method: by.Actor.Method, RequestID: by.Actor.RequestID},
		})
		return err
	})
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = d.confirm(ctx, row.ID, unknown)
	}
	return row, now, err
}

// confirm reads a row back after a lost acknowledgement of its commit. It asks
// for the row's lock, so that a commit which is still on its way is waited for.
// A row that may be there without a command that was sent is no harm: the
// Worker has no receipt of it.
func (d *Desk) confirm(ctx context.Context, id string, cause error) error {
	var n int64
	err := d.p.DB.Tx(context.WithoutCancel(ctx), func(tx *database.Tx) error {
		return tx.Locked().Model(&models.Outbox{}).Where("id = ?", id).Count(&n).Error
	})
	if err != nil || n == 0 {
		return errNotCommitted.Because(errors.Join(cause, err))
	}
	return nil
}

// settle ends the row when the answer tells what happened, and leaves it to
// the control-audit lane when it does not.
func (d *Desk) settle(ctx context.Context, row models.Outbox, command settings.Command, result json.RawMessage, cause error) (json.RawMessage, error) {
	operation := settings.Operation(command.Operation())
	noOp, found := judge(operation, command.Stored(), result, cause)
	d.p.Metrics.count(command.Operation(), found.outcome)
	switch found.outcome {
	case unknown:
		d.p.Log.WarnContext(ctx, "outcome of a change left to the control-audit lane", "outbox_id", row.ID, "operation", operation, "error", found.answer)
		return nil, found.answer
	case refusedBy, notSent:
		d.refuse(ctx, row, found.code)
		return nil, found.answer
	case applied:
	}
	err := d.p.DB.Tx(ctx, func(tx *database.Tx) error { return settings.Complete(tx, row, noOp) })
	d.left(ctx, row, err)
	return result, nil
}

// verdict is what an answer to a mutation says. The code is the row's, the
// answer the caller's, when the mutation was not applied.
type verdict struct {
	outcome outcome
	code    string
	answer  error
}

// judge reads the answer to a mutation, and whether it found nothing to do. It
// is pure.
func judge(operation settings.Operation, stored, result json.RawMessage, cause error) (bool, verdict) {
	var no *control.RefusedError
	var unreached *control.UnreachableError
	switch {
	case errors.As(cause, &no):
		return false, verdict{refusedBy, no.Code, refused(no)}
	case errors.As(cause, &unreached) && unreached.NotSent:
		return false, verdict{notSent, errUnreachable.Code, errUnreachable.Because(cause)}
	case cause != nil:
		return false, verdict{unknown, "", errUnknown.Because(cause)}
	case settings.Conflicts(result):
		return false, verdict{refusedBy, "revision_stale", stale(operation)}
	}
	noOp, err := settings.CheckResult(operation, stored, result)
	if err != nil {
		return false, verdict{unknown, "", errUnknown.Because(fmt.Errorf("unusable answer: %w", err))}
	}
	return noOp, verdict{outcome: applied}
}

// refuse ends the row of a command that was not applied.
func (d *Desk) refuse(ctx context.Context, row models.Outbox, code string) {
	err := d.p.DB.Tx(ctx, func(tx *database.Tx) error { return outbox.RefuseControl(tx, row, code, "") })
	d.left(ctx, row, err)
}

// left tells of a row that could not be ended: what the Worker did is known,
// and the lane will find out the same.
func (d *Desk) left(ctx context.Context, row models.Outbox, err error) {
	if err != nil {
		d.p.Log.WarnContext(ctx, "control row left to the control-audit lane", "outbox_id", row.ID, "error", err)
	}
}
