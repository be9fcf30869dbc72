package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Host is the edge host's backup fence. Its calls may be repeated; after an
// error Fence tells what came of one.
type Host interface {
	Fence(ctx context.Context) (provider.Fence, error)
	// BeginFence refuses an id that has ended, and any while another fence is up.
	BeginFence(ctx context.Context, id string) (provider.Fence, error)
	EndFence(ctx context.Context, id string) (provider.Fence, error)
}

// Reader reads what the edge host holds of a release; provider.Provider is one.
type Reader interface {
	ReadBack(ctx context.Context, release provider.Release) error
}

// Params is what a Keeper is made of.
type Params struct {
	DB *database.DB
	// Scope is the environment's, onprem:<12 hex>, the row's primary key (S3-48).
	Scope string
	// Host and Reader are nil while the provider's settings are wrong.
	Host   Host
	Reader Reader
	Log    *slog.Logger
}

// Keeper changes the row of one on-prem scope (S3-49). It is safe for concurrent
// use, and any number of processes may have one.
type Keeper struct{ p Params }

// New checks p.
func New(p Params) (*Keeper, error) {
	if p.DB == nil || p.Scope == "" || p.Log == nil {
		return nil, errors.New("maintenance: database, scope and log are required")
	}
	return &Keeper{p: p}, nil
}

// The refusals of changes.
var (
	// ErrNotSupported is the answer of an environment without an edge host.
	ErrNotSupported = fault.Coded(fault.Conflict, "maintenance_not_supported",
		"Only an on-premises environment has maintenance gates; there is nothing to do here")
	errRowMissing = fault.Coded(fault.Conflict, "maintenance_row_missing",
		"The row of edge_worker_maintenance is missing, so every deployment is refused; restart the API: every process creates it when it starts")
	errHostUnavailable = fault.Coded(fault.Unavailable, "edge_host_unavailable",
		"The edge host did not answer; look at its log and at EDGE_WORKERS_EDGE_HOST_URL, then repeat the request")
	errFenceEnding = fault.Coded(fault.Conflict, "maintenance_fence_ending",
		"The end of the last backup fence is not confirmed yet; repeat DELETE /platform/maintenance/fence until it is, then begin a new one")
	errRestoring = fault.Coded(fault.Conflict, "maintenance_restore_pending",
		"A restore is being checked; end it with DELETE /platform/maintenance/restore before you begin a backup fence")
	errResyncing = fault.Coded(fault.Conflict, "maintenance_resync_active",
		"A resync is under way; end it with DELETE /platform/maintenance/resync before you begin a backup fence")
	errBusy = fault.Coded(fault.Conflict, "maintenance_busy",
		"The maintenance state changes too often just now; read it and repeat the request")
)

// Prepare creates the scope's row, idle and without a fence, when there is none,
// and reports whether it did. Every process runs it when it starts, because a
// new release's deployer may be there before its API; a row that disappears
// later fails closed (S3-55, S3-56).
func (k *Keeper) Prepare(ctx context.Context) (bool, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	err := k.p.DB.Read(ctx).Create(&models.Maintenance{Scope: k.p.Scope, State: models.MaintenanceIdle, CreatedAt: now, UpdatedAt: now}).Error
	if database.IsDuplicate(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create the maintenance row: %w", err)
	}
	k.p.Log.InfoContext(ctx, "maintenance row created", "scope", k.p.Scope)
	return true, nil
}

// row reads the scope's row; errRowMissing when there is none.
func (k *Keeper) row(ctx context.Context) (models.Maintenance, error) {
	var rows []models.Maintenance
	err := k.p.DB.Read(ctx).Where("scope = ?", k.p.Scope).Limit(1).Find(&rows).Error
	if err != nil {
		return models.Maintenance{}, fmt.Errorf("read the maintenance row: %w", err)
	}
	if len(rows) == 0 {
		return models.Maintenance{}, errRowMissing
	}
	return rows[0], nil
}

// Status is the row as an operator sees it.
type Status struct {
	Scope          string
	Gate           Gate
	Resyncing      bool
	ResyncEpoch    int64
	RestorePending bool
	// FenceID is the id of the backup fence, empty without one.
	FenceID string
	// FenceEnding says that the fence's end was asked for and is not confirmed.
	FenceEnding bool
}

func statusOf(row models.Maintenance) Status {
	id, ending := fenceOf(row)
	return Status{
		Scope: row.Scope, Gate: decide(&row), Resyncing: row.State == models.MaintenanceActive, ResyncEpoch: row.ResyncEpoch,
		RestorePending: row.RestorePending, FenceID: id, FenceEnding: ending,
	}
}

// Status reads the row. A missing one is a closed gate and nothing else.
func (k *Keeper) Status(ctx context.Context) (Status, error) {
	row, err := k.row(ctx)
	if errors.Is(err, errRowMissing) {
		return Status{Scope: k.p.Scope, Gate: decide(nil)}, nil
	}
	return statusOf(row), err
}

// step is one change of the row with the facts that it is.
type step struct {
	set     map[string]any
	actions []string
	reason  string
}

// maxSteps bounds how often a change is planned anew because the row was not
// any more what it was planned from.
const maxSteps = 5

// change plans a step from the row and makes it, or finds that nothing is left
// to do (nil). It returns the row that stands then. A lost acknowledgement of the
// commit is settled by planning again: a step that was made is not planned twice.
func (k *Keeper) change(ctx context.Context, actor audit.Actor, plan func(models.Maintenance) (*step, error)) (models.Maintenance, error) {
	for range maxSteps {
		row, err := k.row(ctx)
		if err != nil {
			return models.Maintenance{}, err
		}
		next, err := plan(row)
		if err != nil || next == nil {
			return row, err
		}
		err = k.apply(ctx, actor, row, *next)
		var unknown *database.CommitUnknownError
		if err != nil && !errors.Is(err, models.ErrStaleTransition) && !errors.As(err, &unknown) {
			return models.Maintenance{}, err
		}
	}
	return models.Maintenance{}, errBusy
}

// apply is the one UPDATE of the row: a compare-and-set by all that the writer
// believes of it, with its facts in the same transaction.
func (k *Keeper) apply(ctx context.Context, actor audit.Actor, row models.Maintenance, s step) error {
	return k.p.DB.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		set := map[string]any{"updated_at": now}
		if !now.After(row.UpdatedAt) { // no two states of the row have one time
			set["updated_at"] = row.UpdatedAt.Add(time.Millisecond)
		}
		for column, value := range s.set {
			set[column] = value
		}
		changed := tx.Model(&models.Maintenance{}).
			Where("scope = ? AND state = ? AND resync_epoch = ? AND fence_id = ? AND restore_pending = ? AND updated_at = ?",
				row.Scope, row.State, row.ResyncEpoch, row.FenceID, row.RestorePending, row.UpdatedAt).
			UpdateColumns(set)
		err = database.Exactly(changed, "change the maintenance row")
		if err != nil {
			return err
		}
		for _, action := range s.actions {
			err = audit.Write(tx, audit.Fact{
				ID:    audit.ID(action, row.Scope, row.UpdatedAt.UTC().Format(time.RFC3339Nano)),
				Actor: actor, Action: action, ResourceType: "edge_worker_maintenance", ResourceID: row.Scope,
				Result: audit.Succeeded, ReasonCode: s.reason,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
