package version

import (
	"context"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// ErrArtifactUnavailable is the answer for an archive that cannot be served
// (S0-21, D19).
var ErrArtifactUnavailable = fault.Coded(fault.Unavailable, "edge_worker_artifact_unavailable", "Edge Worker artifact is unavailable")

// Source reads the exact archive of one of the tenant's versions and compares
// it with the row before it returns a byte (S0-55 to S0-57). A row whose key
// is not under the tenant's own prefix is refused before any store call
// (S0-58). store is nil when it is not configured.
func Source(ctx context.Context, db *database.DB, store artifact.Store, tenant models.Tenant, id string) (models.Version, []byte, error) {
	v, err := Of(db.Read(ctx), tenant, id)
	if err != nil {
		return models.Version{}, nil, err
	}
	if store == nil {
		return models.Version{}, nil, ErrArtifactUnavailable.Because(errors.New("the store is not configured"))
	}
	archive, err := store.Get(ctx, artifact.Tenant(tenant), artifact.Project, v.ProjectObjectKey, 0)
	if err == nil {
		err = artifact.Verify(archive, v.ProjectSize, v.ProjectDigest)
	}
	if err != nil {
		return models.Version{}, nil, ErrArtifactUnavailable.Because(fmt.Errorf("version %s: %w", v.ID, err))
	}
	return v, archive, nil
}
