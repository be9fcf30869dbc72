package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/version"
)

// releaseRules decides by the live release what a deployment may do (S2-105):
// once a release of policy v2.8 or later is live, no older one comes back
// (S2-019), and only over such a one may settings be given. The identities of
// both releases must be known (S2-108).
func (d *Desk) releaseRules(ctx context.Context, in Request, worker models.Worker, target models.Version) error {
	next, err := version.Policy(target)
	if err != nil {
		return version.ErrReleaseUnavailable.Because(fmt.Errorf("target release: %w", err))
	}
	now, err := d.liveRelease(ctx, in.Tenant, worker)
	if err != nil {
		return err
	}
	if now != nil && builder.Policy(now.BuilderPolicy).AtLeast(builder.V2_8) && !next.AtLeast(builder.V2_8) {
		return errDowngrade
	}
	if in.Settings == nil {
		return nil
	}
	return live.Supports(now, target)
}

// liveRelease is the Worker's current version, nil before its first deployment.
func (d *Desk) liveRelease(ctx context.Context, tenant models.Tenant, worker models.Worker) (*models.Version, error) {
	if worker.CurrentVersionID == "" {
		return nil, nil
	}
	v, err := version.Of(d.p.DB.Read(ctx), tenant, worker.CurrentVersionID)
	if errors.Is(err, version.ErrNoVersion) {
		return nil, version.ErrReleaseUnavailable.Because(errors.New("live release: its row is missing"))
	}
	if err != nil {
		return nil, err
	}
	_, err = version.Policy(v)
	if err != nil {
		return nil, version.ErrReleaseUnavailable.Because(fmt.Errorf("live release: %w", err))
	}
	return &v, nil
}
