package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/version"
)

// release is the Worker with the release that serves it now.
type release struct {
	worker     models.Worker
	version    models.Version
	generation string
	policy     builder.Policy
}

// feature is what only some releases have, with the refusal of the others.
type feature struct {
	since    builder.Policy
	unlessOf error
}

// The features (D8).
var (
	everyRelease    = feature{since: builder.V2_5}
	secretFeature   = feature{builder.V2_6, errSecretsUnsupported}
	settingsFeature = feature{builder.V2_8, errSettingsUnsupported}
	accountFeature  = feature{builder.V2_8, errAccountsUnsupported}
)

// of is the refusal of a release that does not have the feature.
func (f feature) of(r release) error {
	if !r.policy.AtLeast(f.since) {
		return f.unlessOf
	}
	return nil
}

// releaseOf finds the tenant's live release and checks that it has the feature.
func (d *Desk) releaseOf(ctx context.Context, tenant models.Tenant, needs feature) (release, error) {
	err := d.p.Provider()
	if err != nil {
		return release{}, version.ErrProviderInvalid.Because(err)
	}
	worker, err := version.WorkerOf(d.p.DB.Read(ctx), tenant)
	if err != nil {
		return release{}, err
	}
	found, err := serving(d.p.DB.Read(ctx), tenant, worker)
	if err == nil {
		err = needs.of(found)
	}
	return found, err
}

// serving is the Worker's release as the rows say at this moment (S1-208).
func serving(query *gorm.DB, tenant models.Tenant, worker models.Worker) (release, error) {
	switch {
	case worker.MigrationNamespace != "":
		return release{}, errMigrating
	case worker.CurrentVersionID == "":
		return release{}, errNoRelease
	}
	live, err := version.Of(query, tenant, worker.CurrentVersionID)
	if errors.Is(err, version.ErrNoVersion) || (err == nil && live.State != models.VersionDeployed) {
		return release{}, version.ErrReleaseUnavailable.Because(errors.New("the live release's row is missing or not deployed"))
	}
	if err != nil {
		return release{}, err
	}
	policy, err := version.Policy(live)
	if err != nil {
		return release{}, version.ErrReleaseUnavailable.Because(err)
	}
	return release{worker: worker, version: live, generation: live.ReleaseGeneration, policy: policy}, nil
}

// read sends a command that changes nothing.
func (d *Desk) read(ctx context.Context, of release, by By, operation string) (json.RawMessage, error) {
	result, err := d.p.Channel.Call(ctx, of.command(by, operation, "", nil))
	if err != nil {
		return nil, readFailed(err)
	}
	return result, nil
}

func (r release) command(by By, operation, mutationID string, payload any) control.Command {
	return control.Command{
		Script: r.worker.ScriptName, Generation: r.generation, Subject: by.Actor.ID, Operation: operation,
		MutationID: mutationID, Payload: payload, RequestID: by.Actor.RequestID,
	}
}

// unusable is the answer to a state that the Worker gave in another form.
func unusable(err error) error { return errUnreachable.Because(fmt.Errorf("unusable answer: %w", err)) }
