package live

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
)

// lockTimeout bounds Redis.
const lockTimeout = 3 * time.Second

// Turns gives one request at a time of a department the right to deploy or to
// change what a deployment takes over or removes: operation settings, secrets
// and service accounts (S2-030 to S2-037).
type Turns struct {
	DB    *database.DB
	Redis redis.UniversalClient
	Log   *slog.Logger
}

// Take takes the department's settings lock and then checks that no deployment
// is in flight. Whoever gets a turn calls end when it is over.
func (t Turns) Take(ctx context.Context, tenant models.Tenant) (func(), error) {
	lock, err := t.lock(ctx, tenant)
	if err != nil {
		return nil, err
	}
	end := func() { t.unlock(ctx, lock) }
	busy, err := outbox.TenantHasUnreleased(t.DB.Read(ctx), tenant)
	if err == nil && busy {
		err = errInFlight
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (t Turns) lock(ctx context.Context, tenant models.Tenant) (*claim.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := claim.Settings(ctx, t.Redis, tenant.CompanyID, tenant.DepartmentID)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, claim.ErrHeld), errors.Is(err, claim.ErrDone):
		return nil, errLockHeld
	}
	return nil, errLockUnavailable.Because(err)
}

func (t Turns) unlock(ctx context.Context, lock *claim.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	err := lock.Release(ctx)
	if err != nil {
		t.Log.WarnContext(ctx, "settings lock left to its time-out", "error", err)
	}
}
