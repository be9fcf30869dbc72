package deploy

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/version"
)

// TakeBack withdraws the fences of a dead owner whose uploads did not happen,
// so that they are uploaded again instead of ending uncertain, and returns how
// many it withdrew.
//
// It is for one situation only: the caller knows that the owner's process is
// gone and that nothing which it sent can still arrive, as the development
// system does, whose folder lock proves that the previous process died with
// its embedded host. What the provider then holds is final: another release
// proves that this one was never applied (S2-013). Anywhere else a write may
// still be on its way, and only the GET-only run may look (S2-214).
func (t *Task) TakeBack(ctx context.Context, owner string) (int, error) {
	target, err := t.p.Provider()
	if err != nil {
		return 0, err
	}
	var rows []models.Outbox
	prefix := owner + ":"
	err = t.p.DB.Read(ctx).Where("operation = ? AND status = ? AND SUBSTR(lease_owner, 1, ?) = ? AND dispatch_namespace IN ?",
		models.OperationDeploy, models.OutboxLeased, utf8.RuneCountInString(prefix), prefix, t.p.Outbox.Scope().Namespaces()).Find(&rows).Error
	if err != nil {
		return 0, fmt.Errorf("read the dead owner's deployments: %w", err)
	}
	withdrawn := 0
	for _, row := range rows {
		taken, err := t.takeBack(ctx, target, row)
		if err != nil {
			return withdrawn, fmt.Errorf("take back deployment %s: %w", row.ID, err)
		}
		if taken {
			withdrawn++
		}
	}
	return withdrawn, nil
}

func (t *Task) takeBack(ctx context.Context, target provider.Provider, row models.Outbox) (bool, error) {
	tenant := models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID}
	worker, err := version.WorkerOf(t.p.DB.Read(ctx), tenant)
	if errors.Is(err, version.ErrNoWorker) {
		return false, nil // the sweep settles it
	}
	if err != nil {
		return false, err
	}
	v, err := version.Of(t.p.DB.Read(ctx), tenant, row.VersionID)
	if err != nil {
		return false, err
	}
	if v.State != models.VersionDeploying {
		return false, nil
	}
	err = target.ReadBack(ctx, releaseOf(row, worker, v))
	var mismatch *provider.MismatchError
	if !errors.As(err, &mismatch) && !errors.Is(err, provider.ErrNotFound) {
		return false, nil // applied, or not readable now: the GET-only run decides
	}
	err = t.p.DB.Tx(ctx, func(tx *database.Tx) error {
		err := outbox.Return(tx, outbox.Lease{OutboxID: row.ID, Token: row.LeaseOwner}, row.Attempts, "")
		if err != nil {
			return err
		}
		err = version.SetWorker(tx, worker.ID, map[string]any{"status": version.SettledStatus(worker)})
		if err != nil {
			return err
		}
		return version.Move(tx, v.ID, models.VersionDeploying, models.VersionDeployPending, version.Evidence{})
	})
	return err == nil, err
}
