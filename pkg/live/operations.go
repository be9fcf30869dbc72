package live

import (
	"context"
	"errors"
	"slices"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/version"
)

// OperationKey is the settings with the key that an operation was given; the
// key is shown this once.
type OperationKey struct {
	Table settings.Table
	Key   string
}

// Operations reads the operation settings of the live release: a row for each
// operation of its manifest. Revision 0 says that none were ever set.
func (d *Desk) Operations(ctx context.Context, by By) (settings.Table, error) {
	of, err := d.releaseOf(ctx, by.Tenant, settingsFeature)
	if err != nil {
		return settings.Table{}, err
	}
	table, _, err := d.tables(ctx, of, by)
	if err != nil {
		return settings.Table{}, err
	}
	return whole(table, of.version)
}

// tables reads the live table and the staged one, each nil when there is none.
func (d *Desk) tables(ctx context.Context, of release, by By) (*settings.Table, *settings.Table, error) {
	result, err := d.read(ctx, of, by, "operation_settings.get")
	if err != nil {
		return nil, nil, err
	}
	live, staged, err := settings.ReadTables(result)
	if err == nil && live != nil && (live.State != "reconciled" || live.ReleaseGeneration != of.generation) {
		err = errors.New("the live table is of another release")
	}
	if err != nil {
		return nil, nil, unusable(err)
	}
	return live, staged, nil
}

// whole fills in the rows of operations that none were set for.
func whole(table *settings.Table, of models.Version) (settings.Table, error) {
	out := settings.Table{State: "reconciled", ReleaseGeneration: of.ReleaseGeneration}
	if table != nil {
		out = *table
	}
	ids, err := version.Operations(of)
	if err != nil {
		return settings.Table{}, err
	}
	rows := map[string]settings.Row{}
	for _, id := range ids {
		row, isSet := out.Operations[id]
		if !isSet {
			row = settings.Inherit()
		}
		rows[id] = row
	}
	out.Operations = rows
	return out, nil
}

// ReplaceOperations sets the whole table of the live release: the request has
// a row for each of its operations, so that none is changed by being left out.
// An operation keeps its key.
func (d *Desk) ReplaceOperations(ctx context.Context, by By, in settings.TableRequest) (settings.Table, error) {
	of, end, err := d.turn(ctx, by, settingsFeature)
	if err != nil {
		return settings.Table{}, err
	}
	defer end()
	ids, err := version.Operations(of.version)
	if err != nil {
		return settings.Table{}, err
	}
	err = complete(in, ids)
	if err != nil {
		return settings.Table{}, err
	}
	table, _, err := d.tables(ctx, of, by)
	if err != nil {
		return settings.Table{}, err
	}
	now := settings.Table{}
	if table != nil {
		now = *table
	}
	if in.BaseRevision != now.Revision {
		return settings.Table{}, errSettingsStale
	}
	err = d.knownAccounts(ctx, of, by, in, "body")
	if err != nil {
		return settings.Table{}, err
	}
	wanted := in.Over(now, ids)
	command, err := parse(settings.OperationSettingsReplace, map[string]any{
		"baseRevision": in.BaseRevision, "releaseGeneration": of.generation,
		"defaultServiceAccountId": wanted.DefaultServiceAccountID, "operations": wanted.Operations,
	})
	if err != nil {
		return settings.Table{}, err
	}
	done, _, err := d.changeOperations(ctx, by, of, command)
	return done, err
}

// RotateOperationKey gives one operation a key of its own, or a new one.
func (d *Desk) RotateOperationKey(ctx context.Context, by By, base int64, operationID string) (OperationKey, error) {
	key, err := newKey()
	if err != nil {
		return OperationKey{}, err
	}
	table, _, err := d.changeKey(ctx, by, operationID, settings.OperationKeyRotate, map[string]any{
		"baseRevision": base, "operationId": operationID, "keyDigest": key.digest, "lastFour": key.lastFour,
	})
	if err != nil {
		return OperationKey{}, err
	}
	return OperationKey{Table: table, Key: key.text}, nil
}

// RevokeOperationKey takes an operation's own key away and tells whether there
// was one.
func (d *Desk) RevokeOperationKey(ctx context.Context, by By, base int64, operationID string) (settings.Table, bool, error) {
	return d.changeKey(ctx, by, operationID, settings.OperationKeyRevoke, map[string]any{"baseRevision": base, "operationId": operationID})
}

func (d *Desk) changeKey(ctx context.Context, by By, operationID string, operation settings.Operation, payload map[string]any) (settings.Table, bool, error) {
	command, err := parse(operation, payload)
	if err != nil {
		return settings.Table{}, false, err
	}
	of, end, err := d.turn(ctx, by, settingsFeature)
	if err != nil {
		return settings.Table{}, false, err
	}
	defer end()
	ids, err := version.Operations(of.version)
	if err != nil {
		return settings.Table{}, false, err
	}
	if !slices.Contains(ids, operationID) {
		return settings.Table{}, false, errNoOperation
	}
	return d.changeOperations(ctx, by, of, command)
}

func (d *Desk) changeOperations(ctx context.Context, by By, of release, command settings.Command) (settings.Table, bool, error) {
	result, err := d.change(ctx, by, of, command)
	if err != nil {
		return settings.Table{}, false, err
	}
	done := readChange(result)
	left, err := settings.ReadTable(done.Current)
	if err != nil {
		return settings.Table{}, false, unusable(err)
	}
	table, err := whole(&left, of.version)
	return table, done.Revoked, err
}
