package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/version"
)

// Purge is what a Purger is asked to do: remove every secret of a Worker
// through its live release.
type Purge struct {
	ScriptName string
	Generation string         // of the live release, never of the target (S2-110)
	Policy     builder.Policy // of the live release; it decides the command (S1-118, S1-119)
}

// Purger removes secrets through the signed control channel. nil means that a
// receipt confirmed every command (S1-120). ErrPurgeUnconfirmed says that one
// was refused or not confirmed; any other error is the gateway's.
type Purger interface {
	PurgeSecrets(ctx context.Context, p Purge) error
}

// ErrPurgeUnconfirmed says that the live release did not confirm the purge.
var ErrPurgeUnconfirmed = errors.New("the purge of the secrets was not confirmed")

// purge removes the secrets that the live release may hold before a release
// without secrets takes its place: target older than v2.6 over live v2.6 or
// newer (S1-115, S2-109). It asks nobody whether there are any (S1-124 to
// S1-126). It stands between fence and upload (S2-112), and its failures are
// terminal because the provider is untouched (S2-153 to S2-155).
func (r *run) purge(ctx context.Context) error {
	if builder.Policy(r.version.BuilderPolicy).AtLeast(builder.V2_6) || r.worker.CurrentVersionID == "" {
		return nil
	}
	live, err := version.Of(r.p.DB.Read(ctx), r.request.Tenant, r.worker.CurrentVersionID)
	if err != nil {
		return fmt.Errorf("read the live release: %w", err)
	}
	policy := builder.Policy(live.BuilderPolicy)
	if !policy.AtLeast(builder.V2_6) {
		return nil
	}
	r.stage("secret_purge")
	err = r.p.Purger.PurgeSecrets(ctx, Purge{
		ScriptName: r.worker.ScriptName, Generation: live.ReleaseGeneration, Policy: policy,
	})
	switch {
	case errors.Is(err, ErrPurgeUnconfirmed):
		return &provider.TerminalError{Code: codeIntegrity, Cause: err}
	case err != nil && ctx.Err() == nil:
		return &provider.TerminalError{Code: codeInternal, Cause: fmt.Errorf("purge the secrets: %w", err)}
	case err != nil:
		return err
	}
	return r.recordPurge(ctx, live)
}

// recordPurge checks that Worker and live release are still the ones that were
// purged and writes the fact (S1-121 to S1-123, S1-127, S1-128).
func (r *run) recordPurge(ctx context.Context, live models.Version) error {
	record := func(tx *database.Tx) error {
		held, err := r.hold(tx)
		if err != nil {
			return err
		}
		now, err := version.Of(tx.DB, r.request.Tenant, live.ID)
		if err != nil {
			return err
		}
		if held.Worker.CurrentVersionID != live.ID || held.Worker.ScriptName != r.worker.ScriptName || now.State != models.VersionDeployed || !sameBundle(now, live) {
			return &provider.TerminalError{Code: codeIntegrity, Cause: errors.New("the live release changed during the purge")}
		}
		return audit.Write(tx, audit.Fact{
			ID: audit.ID("secrets.purged_before_legacy_deploy", r.lease.OutboxID), Tenant: r.request.Tenant,
			Actor: audit.System("edge-worker-deploy"), Action: "secrets.purged_before_legacy_deploy",
			ResourceType: "edge_worker", ResourceID: held.Worker.ID, Result: audit.Succeeded, Digest: live.ReleaseGeneration,
		})
	}
	err := r.p.DB.Tx(ctx, record)
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = r.p.DB.Tx(ctx, record) // the fact's id makes it one fact
	}
	return err
}
