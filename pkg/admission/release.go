package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/version"
)

// releaseRules decides by the live release what a deployment may do (S2-105):
// once a release of policy v2.8 or later is live, no older one comes back
// (S2-019). The identities of both releases must be known (S2-108).
func (d *Desk) releaseRules(ctx context.Context, in Request, worker models.Worker, target models.Version) error {
	next, err := releasePolicy(target)
	if err != nil {
		return errReleaseUnavailable.Because(fmt.Errorf("target release: %w", err))
	}
	if worker.CurrentVersionID == "" {
		return nil
	}
	live, err := version.Of(d.p.DB.Read(ctx), in.Tenant, worker.CurrentVersionID)
	if errors.Is(err, version.ErrNoVersion) {
		return errReleaseUnavailable.Because(errors.New("live release: its row is missing"))
	}
	if err != nil {
		return err
	}
	policy, err := releasePolicy(live)
	if err != nil {
		return errReleaseUnavailable.Because(fmt.Errorf("live release: %w", err))
	}
	if policy.AtLeast(builder.V2_8) && !next.AtLeast(builder.V2_8) {
		return errDowngrade
	}
	return nil
}

// releasePolicy is the builder policy of a release whose identity is whole.
func releasePolicy(v models.Version) (builder.Policy, error) {
	policy := builder.Policy(v.BuilderPolicy)
	if !policy.Known() {
		return "", fmt.Errorf("version %s has the unknown builder policy %q", v.ID, v.BuilderPolicy)
	}
	_, err := version.Generation(v)
	if err != nil {
		return "", err
	}
	if !canonical.IsSHA256(v.BundleDigest) {
		return "", fmt.Errorf("version %s has no bundle digest", v.ID)
	}
	return policy, nil
}
