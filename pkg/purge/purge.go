// Package purge removes every secret of a Worker through its live release, as
// a deployment of a release that knows no secrets demands (S1-115 to S1-120).
package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
)

// asks is how often a command that changes nothing is sent before its answer
// counts as lost. A mutation is sent once.
const asks = 2

// Purger implements deploy.Purger over the signed control channel. It is safe
// for concurrent use.
type Purger struct {
	client   *control.Client
	receipts *control.Receipts
	subject  string
	log      *slog.Logger
}

// New returns a purger whose assertions have the given subject.
func New(client *control.Client, subject string, log *slog.Logger) *Purger {
	return &Purger{client: client, receipts: control.NewReceipts(client, subject), subject: subject, log: log}
}

// PurgeSecrets removes every secret: with one secrets.purge from a release of
// v2.7 or newer (S1-118), with one secrets.delete for each listed name from one
// of v2.6 (S1-119). nil means that a receipt confirmed each of these commands
// (S1-120) and, with v2.6, that no name was left. deploy.ErrPurgeUnconfirmed
// says that the release refused, answered what cannot be used, or has no
// receipt; any other error that nobody answered.
//
// The list of a v2.6 release says only what to delete, never whether to purge:
// an empty one is a purge too (S1-126, S2-111).
func (p *Purger) PurgeSecrets(ctx context.Context, target deploy.Purge) error {
	if target.Policy.AtLeast(builder.V2_7) {
		return p.mutate(ctx, target, control.SecretsPurge, map[string]string{}, control.CheckPurged)
	}
	names, err := p.names(ctx, target)
	if err != nil {
		return err
	}
	for _, name := range names {
		check := func(result json.RawMessage) error { return control.CheckDeleted(result, name) }
		err := p.mutate(ctx, target, control.SecretsDelete, map[string]string{"name": name}, check)
		if err != nil {
			return err
		}
	}
	// Deleting name by name is not one step: a secret that was put meanwhile
	// is not among the names.
	left, err := p.names(ctx, target)
	if err != nil {
		return err
	}
	if len(left) != 0 {
		return unconfirmed(fmt.Errorf("%d secrets were put during the purge", len(left)))
	}
	return nil
}

func (p *Purger) names(ctx context.Context, target deploy.Purge) ([]string, error) {
	result, err := read(ctx, func() (json.RawMessage, error) {
		return p.client.Call(ctx, p.command(target, control.SecretsList, nil))
	})
	if err != nil {
		return nil, classified(err)
	}
	names, err := control.DecodeSecretNames(result)
	if err != nil {
		return nil, unconfirmed(err)
	}
	return names, nil
}

func (p *Purger) command(target deploy.Purge, operation string, payload any) control.Command {
	return control.Command{Script: target.ScriptName, Generation: target.Generation, Subject: p.subject, Operation: operation, Payload: payload}
}

// mutate sends a mutation once and asks for its receipt, whatever became of
// the answer: an answer may be lost although the mutation was applied, and one
// that is not the Worker's may look like success. The id is fresh, because a
// Worker answers a known one with what it answered then and changes nothing:
// a purge in a second attempt would leave what was put after the first.
func (p *Purger) mutate(ctx context.Context, target deploy.Purge, operation string, payload map[string]string, check func(json.RawMessage) error) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("mutation id: %w", err)
	}
	digest, err := control.CommandDigest(operation, payload)
	if err != nil {
		return err
	}
	command := p.command(target, operation, payload)
	command.MutationID = id.String()
	answer, sent := p.client.Call(ctx, command)
	if sent == nil {
		err := check(answer)
		if err != nil {
			return unconfirmed(fmt.Errorf("%s: %w", operation, err))
		}
	} else if !open(sent) {
		return classified(fmt.Errorf("%s: %w", operation, sent))
	}
	query := control.ReceiptQuery{Script: target.ScriptName, Generation: target.Generation, MutationID: command.MutationID, CommandDigest: digest}
	err = p.confirm(ctx, operation, query, check)
	if err != nil {
		return p.unsettled(operation, sent, err)
	}
	p.acknowledge(ctx, operation, query)
	return nil
}

// errNoReceipt says that the Worker has no receipt of the mutation.
var errNoReceipt = errors.New("the Worker has no receipt")

// unsettled names a mutation that no receipt confirmed. When its answer did
// not come either, nobody answered: that is the gateway's error (S1-130).
func (p *Purger) unsettled(operation string, sent, err error) error {
	var lost *control.UnreachableError
	if errors.Is(err, errNoReceipt) && errors.As(sent, &lost) {
		return fmt.Errorf("%s: %w: %w", operation, err, sent)
	}
	if errors.Is(err, errNoReceipt) {
		err = unconfirmed(err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// confirm asks for the receipt and checks it.
func (p *Purger) confirm(ctx context.Context, operation string, query control.ReceiptQuery, check func(json.RawMessage) error) error {
	result, err := read(ctx, func() (json.RawMessage, error) { return p.receipts.Get(ctx, query) })
	if err != nil {
		return classified(err)
	}
	receipt, err := control.DecodeReceipt(result, operation, query)
	if err != nil {
		return unconfirmed(err)
	}
	if !receipt.Found {
		return errNoReceipt
	}
	err = check(receipt.Result)
	if err != nil {
		return unconfirmed(fmt.Errorf("receipt: %w", err))
	}
	return nil
}

// acknowledge lets the Worker forget a receipt that was read. It is best
// effort: a receipt that stays costs some bytes and says nothing secret.
func (p *Purger) acknowledge(ctx context.Context, operation string, query control.ReceiptQuery) {
	result, err := read(ctx, func() (json.RawMessage, error) { return p.receipts.Ack(ctx, query) })
	if err == nil {
		err = control.CheckAcknowledged(result)
	}
	if err != nil {
		p.log.WarnContext(ctx, "receipt of a secret purge not acknowledged; the Worker keeps it", "script", query.Script, "operation", operation, "error", err)
	}
}

// read sends a command that may be repeated.
func read(ctx context.Context, send func() (json.RawMessage, error)) (json.RawMessage, error) {
	var result json.RawMessage
	var err error
	for range asks {
		result, err = send()
		var lost *control.UnreachableError
		if err == nil || ctx.Err() != nil || !errors.As(err, &lost) {
			break
		}
	}
	return result, err
}

// open reports whether a mutation with this error may have been applied.
func open(err error) bool {
	var lost *control.UnreachableError
	var malformed *control.MalformedError
	return errors.As(err, &lost) || errors.As(err, &malformed)
}

func unconfirmed(err error) error {
	return fmt.Errorf("%w: %w", deploy.ErrPurgeUnconfirmed, err)
}

// classified tells what somebody answered from what nobody did.
func classified(err error) error {
	var refused *control.RefusedError
	var malformed *control.MalformedError
	if errors.As(err, &refused) || errors.As(err, &malformed) {
		return unconfirmed(err)
	}
	return err
}
