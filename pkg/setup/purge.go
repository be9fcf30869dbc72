package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/version"
)

// PurgeSecrets removes every secret through the live release: secrets.purge
// with a release of v2.7 or newer, secrets.delete name by name with v2.6
// (S1-118, S1-119). A refusal is no confirmation.
func (s *serving) PurgeSecrets(ctx context.Context, p deploy.Purge) error {
	if s.client == nil {
		return version.ErrProviderInvalid
	}
	if p.Policy.AtLeast(builder.V2_7) {
		return s.confirmed(ctx, p, "secrets.purge", map[string]any{}, "")
	}
	result, err := s.command(ctx, p, "secrets.list", map[string]any{}, "")
	if err != nil {
		return err
	}
	var list struct {
		Names []string `json:"names"`
	}
	err = json.Unmarshal(result, &list)
	if err != nil || list.Names == nil {
		return fmt.Errorf("%w: the list of names is not usable", deploy.ErrPurgeUnconfirmed)
	}
	for _, name := range list.Names {
		err := s.confirmed(ctx, p, "secrets.delete", map[string]any{"name": name}, name)
		if err != nil {
			return err
		}
	}
	return nil
}

// confirmed sends a mutation and checks that its receipt shows no conflict.
// The mutation's id is the same when the same deployment purges again, so the
// Worker answers with the first receipt and changes nothing twice.
func (s *serving) confirmed(ctx context.Context, p deploy.Purge, operation string, payload map[string]any, about string) error {
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(p.OutboxID+"\x00"+operation+"\x00"+about)).String()
	result, err := s.command(ctx, p, operation, payload, id)
	if err != nil {
		return err
	}
	var receipt struct {
		Conflict *bool `json:"conflict"`
	}
	err = json.Unmarshal(result, &receipt)
	if err != nil || receipt.Conflict == nil || *receipt.Conflict {
		return fmt.Errorf("%w: %s", deploy.ErrPurgeUnconfirmed, operation)
	}
	return nil
}

func (s *serving) command(ctx context.Context, p deploy.Purge, operation string, payload map[string]any, mutationID string) (json.RawMessage, error) {
	result, err := s.client.Call(ctx, control.Command{
		Script: p.ScriptName, Generation: p.Generation, Subject: probeSubject, Operation: operation, MutationID: mutationID, Payload: payload,
	})
	var refused *control.RefusedError
	var malformed *control.MalformedError
	if errors.As(err, &refused) || errors.As(err, &malformed) {
		return nil, fmt.Errorf("%w: %w", deploy.ErrPurgeUnconfirmed, err)
	}
	return result, err
}
