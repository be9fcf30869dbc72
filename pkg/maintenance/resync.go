package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// BeginResync closes the gate for a comparison of database and edge host, in a
// new epoch. A resync that is under way goes on.
func (k *Keeper) BeginResync(ctx context.Context, actor audit.Actor) (Status, error) {
	row, err := k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		if row.State == models.MaintenanceActive {
			return nil, nil
		}
		return &step{
			set:     map[string]any{"state": models.MaintenanceActive, "resync_epoch": row.ResyncEpoch + 1},
			actions: []string{"maintenance.resync_begun"},
		}, nil
	})
	return statusOf(row), err
}

// EndResync opens the gate again, unless something else keeps it closed.
func (k *Keeper) EndResync(ctx context.Context, actor audit.Actor) (Status, error) {
	row, err := k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		if row.State == models.MaintenanceIdle {
			return nil, nil
		}
		return &step{set: map[string]any{"state": models.MaintenanceIdle}, actions: []string{"maintenance.resync_ended"}}, nil
	})
	return statusOf(row), err
}

// BeginRestore closes the gate until somebody has checked that database and edge
// host agree after a restore.
func (k *Keeper) BeginRestore(ctx context.Context, actor audit.Actor) (Status, error) {
	row, err := k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		if row.RestorePending {
			return nil, nil
		}
		return &step{set: map[string]any{"restore_pending": true}, actions: []string{"maintenance.restore_begun"}}, nil
	})
	return statusOf(row), err
}

// EndRestore opens the gate again, unless something else keeps it closed. A
// fence that one side knows and the other does not is ended with it: it belongs
// to a backup that the restore has overtaken.
func (k *Keeper) EndRestore(ctx context.Context, actor audit.Actor) (Status, error) {
	row, err := k.change(ctx, actor, func(row models.Maintenance) (*step, error) {
		if !row.RestorePending {
			return nil, nil
		}
		host, err := k.hostFence(ctx)
		if err != nil {
			return nil, errHostUnavailable.Because(err)
		}
		return endOfRestore(row, host), nil
	})
	if err != nil {
		return Status{}, err
	}
	if _, ending := fenceOf(row); ending {
		row, _ = k.finish(ctx, actor, row)
	}
	return statusOf(row), nil
}

func endOfRestore(row models.Maintenance, host provider.Fence) *step {
	s := &step{set: map[string]any{"restore_pending": false}, actions: []string{"maintenance.restore_ended"}}
	switch {
	case Confirm(row.FenceID, host) != Disagree: // the fence goes on
	case host.Active != "":
		s.set["fence_id"] = endingPrefix + host.Active
	default:
		s.set["fence_id"] = ""
		s.actions = append(s.actions, "maintenance.fence_ended")
	}
	return s
}

// Bounds of one page of differences: its Workers, and the time after which it
// ends with what it has, so that an edge host that hangs holds no request.
const (
	MaxPage  = 50
	pageTime = 20 * time.Second
)

// Difference is a Worker whose deployed version the edge host does not hold, or
// of which it could not be seen.
type Difference struct {
	Tenant     models.Tenant
	WorkerID   string
	ScriptName string
	VersionID  string
	// Unreadable says that the read failed; else the edge host holds something else.
	Unreadable bool
	Detail     string
}

// Page is a part of the comparison.
type Page struct {
	Items   []Difference
	Checked int
	// Next is the id of the last Worker that was checked, empty after the last page.
	Next string
}

// deployed is a Worker with what its current version must be at the edge host.
type deployed struct {
	models.Worker
	BundleDigest      string
	CompatibilityDate string
}

const deployedQuery = `SELECT w.*, v.bundle_digest, v.compatibility_date FROM edge_workers w
	JOIN edge_worker_versions v ON v.id = w.current_version_id AND v.worker_id = w.id AND v.company_id = w.company_id AND v.department_id = w.department_id
	WHERE w.serving_namespace = ? AND w.id > ? ORDER BY w.id LIMIT ?`

// Differences reads the next deployed Workers of the scope back from the edge
// host, in the order of their ids, and changes nothing on either side.
func (k *Keeper) Differences(ctx context.Context, after string) (Page, error) {
	if k.p.Reader == nil {
		return Page{}, errHostUnavailable
	}
	var workers []deployed
	err := k.p.DB.Read(ctx).Raw(deployedQuery, k.p.Scope, after, MaxPage).Scan(&workers).Error
	if err != nil {
		return Page{}, fmt.Errorf("read the deployed Workers: %w", err)
	}
	page := Page{}
	for began := time.Now(); page.Checked < len(workers) && ctx.Err() == nil && (page.Checked == 0 || time.Since(began) < pageTime); page.Checked++ {
		w := workers[page.Checked]
		found := k.compare(ctx, w)
		if found != nil {
			page.Items = append(page.Items, *found)
		}
		page.Next = w.ID
	}
	if page.Checked == len(workers) && len(workers) < MaxPage {
		page.Next = ""
	}
	return page, ctx.Err()
}

// compare is nil for a Worker that is as it should be.
func (k *Keeper) compare(ctx context.Context, w deployed) *Difference {
	err := k.p.Reader.ReadBack(ctx, provider.Release{
		Namespace: w.ServingNamespace, ScriptName: w.ScriptName, CompatibilityDate: w.CompatibilityDate, BundleDigest: w.BundleDigest,
	})
	if err == nil {
		return nil
	}
	d := &Difference{
		Tenant:   models.Tenant{CompanyID: w.CompanyID, DepartmentID: w.DepartmentID},
		WorkerID: w.ID, ScriptName: w.ScriptName, VersionID: w.CurrentVersionID, Unreadable: true, Detail: "the edge host did not tell",
	}
	var differs *provider.MismatchError
	switch {
	case errors.As(err, &differs):
		d.Unreadable, d.Detail = false, differs.Detail
	case errors.Is(err, provider.ErrNotFound):
		d.Unreadable, d.Detail = false, "the script does not exist"
	default:
		k.p.Log.WarnContext(ctx, "a Worker could not be read back", "worker_id", w.ID, "error", err)
	}
	return d
}
