// Package retirement takes the scripts of Workers out of service whose
// department was deleted or whose company is gone (D18). First a tombstone
// takes a script's place, which answers 410 and leaves its stored data alone;
// a week later the script is deleted with its data. Each of the two is audited
// exactly once, and the two facts are all that it remembers.
//
// The intent is the committed deletion, which is never taken back. Whether an
// effect happened is read at the provider before it is tried, so an answer that
// was lost is found in the next round.
package retirement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
)

// Constants of the retirement; no environment variable changes them (S1-336).
const (
	// MaxARound is how many scripts a round changes (S1-338).
	MaxARound = 3
	// Keep is how long a tombstone stands before its script is deleted (D18).
	Keep = 7 * 24 * time.Hour
	// restAfterFailure is how long a script that could not be changed waits, so
	// that it does not keep the others out of the rounds.
	restAfterFailure = 5 * time.Minute
	// compatibilityDate is the tombstone's. It uses nothing that depends on it.
	compatibilityDate = "2026-11-01"
)

// The facts of a retirement.
const (
	ActionRetired = reconcile.ActionRetired
	ActionRemoved = "department.worker_removed"
	// ReasonNeverDeployed says that there was nothing at the provider to retire.
	ReasonNeverDeployed = "never_deployed"
)

// Scripts is what a retirement needs of the provider.
type Scripts interface {
	Upload(ctx context.Context, release provider.Release) error
	ReadBack(ctx context.Context, release provider.Release) error
	// Exists reports whether the namespace has the script.
	Exists(ctx context.Context, namespace, script string) (bool, error)
	// Delete removes the script with its stored data. One that is not there is
	// no error.
	Delete(ctx context.Context, namespace, script string) error
}

// Params is what a Lane is made of. Gate may be nil.
type Params struct {
	DB     *database.DB
	Outbox *outbox.Outbox
	// Scripts resolves the provider anew for each round.
	Scripts func() (Scripts, error)
	// Gate, when not nil, tells whether scripts may change now.
	Gate func(context.Context) (bool, error)
	// Tombstone is the module that takes a script's place.
	Tombstone []byte
	Log       *slog.Logger
}

// Lane retires scripts. It is a lane of the 15-second loop and serves one round
// at a time.
type Lane struct {
	p        Params
	scan     scan
	resting  map[string]time.Time // Worker id → until when
	pageSize int
	now      func() time.Time
}

// New checks p and returns the lane.
func New(p Params) (*Lane, error) {
	if p.DB == nil || p.Outbox == nil || p.Scripts == nil || len(p.Tombstone) == 0 || p.Log == nil {
		return nil, errors.New("retirement: every part is required")
	}
	return &Lane{p: p, resting: map[string]time.Time{}, pageSize: pageSize, now: time.Now}, nil
}

// Name is the lane's name in logs and metrics.
func (l *Lane) Name() string { return "retirement" }

// What a round did to a script, in results and metrics.
const (
	retired = "retired" // the tombstone stands
	removed = "removed" // a week later: the script is gone
	waiting = "waiting" // a deployment of it is still on its way
	failed  = "failed"  // to be tried again
)

// RunOnce looks at one page of what may be retired and changes at most three
// scripts. None is begun once the budget is used up; one that was begun is
// ended (S1-337, S1-338).
func (l *Lane) RunOnce(ctx context.Context, budget time.Duration) (reconcile.Result, error) {
	result, began := reconcile.Result{}, l.now()
	if l.p.Gate != nil {
		open, err := l.p.Gate(ctx)
		if err != nil || !open {
			return result, err
		}
	}
	scripts, err := l.p.Scripts()
	if err != nil {
		return result, err
	}
	due, err := l.due(ctx)
	if err != nil {
		return result, err
	}
	var failures []error
	for _, c := range due {
		if l.now().Sub(began) >= budget || result[retired]+result[removed]+result[failed] >= MaxARound || ctx.Err() != nil {
			break
		}
		ours, err := l.place(ctx, &c)
		if err != nil {
			return result, errors.Join(append(failures, err)...)
		}
		if !ours {
			continue
		}
		what, err := l.one(ctx, scripts, c)
		result[what]++
		if err != nil {
			l.resting[c.WorkerID] = l.now().Add(restAfterFailure)
			failures = append(failures, fmt.Errorf("retire %s: %w", c.ScriptName, err))
		}
	}
	return result, errors.Join(failures...)
}

// one takes the next step of a script.
func (l *Lane) one(ctx context.Context, scripts Scripts, c candidate) (string, error) {
	busy, err := l.busy(ctx, c)
	if err != nil {
		return failed, err
	}
	if busy {
		return waiting, nil
	}
	if c.step == stepRemove {
		return l.remove(ctx, scripts, c)
	}
	return l.retire(ctx, scripts, c)
}

// retire puts the tombstone up, unless it stands already, and records it.
func (l *Lane) retire(ctx context.Context, scripts Scripts, c candidate) (string, error) {
	if !c.deployed {
		return retired, l.record(ctx, c, ActionRetired, ReasonNeverDeployed)
	}
	release := provider.Release{
		Namespace: c.Namespace, ScriptName: c.ScriptName, CompatibilityDate: compatibilityDate,
		Bundle: l.p.Tombstone, BundleDigest: canonical.SHA256(l.p.Tombstone),
	}
	err := l.stand(ctx, scripts, release)
	if err != nil {
		return failed, err
	}
	err = l.record(ctx, c, ActionRetired, "")
	if err != nil {
		return failed, err
	}
	l.p.Log.InfoContext(ctx, "Worker retired", "script", c.ScriptName, "company", c.CompanyID, "department", c.DepartmentID)
	return retired, nil
}

// stand makes the tombstone stand: what the provider shows decides, before and
// after the upload. Only a release that is provably another one is replaced.
func (l *Lane) stand(ctx context.Context, scripts Scripts, release provider.Release) error {
	err := scripts.ReadBack(ctx, release)
	if err == nil {
		return nil
	}
	_, another := errors.AsType[*provider.MismatchError](err)
	if !another && !errors.Is(err, provider.ErrNotFound) {
		return err
	}
	err = scripts.Upload(ctx, release)
	_, unknown := errors.AsType[*provider.UncertainError](err)
	if err != nil && !unknown {
		return err
	}
	shown := scripts.ReadBack(ctx, release)
	if shown != nil {
		return errors.Join(err, shown)
	}
	return nil
}

// remove deletes a script whose tombstone has stood long enough. A script that
// is there afterwards is none that was removed.
func (l *Lane) remove(ctx context.Context, scripts Scripts, c candidate) (string, error) {
	err := scripts.Delete(ctx, c.Namespace, c.ScriptName)
	there, unread := scripts.Exists(ctx, c.Namespace, c.ScriptName)
	if unread != nil {
		return failed, errors.Join(err, unread)
	}
	if there {
		return failed, errors.Join(err, errors.New("the provider still has the script"))
	}
	err = l.record(ctx, c, ActionRemoved, "")
	if err != nil {
		return failed, err
	}
	l.p.Log.InfoContext(ctx, "Worker's script removed", "script", c.ScriptName, "company", c.CompanyID, "department", c.DepartmentID)
	return removed, nil
}

// record writes the fact once, whichever replica and however often (S1-339).
func (l *Lane) record(ctx context.Context, c candidate, action, reason string) error {
	return l.p.DB.Tx(ctx, func(tx *database.Tx) error {
		return audit.Write(tx, audit.Fact{
			ID: factID(action, c.WorkerID), Tenant: models.Tenant{CompanyID: c.CompanyID, DepartmentID: c.DepartmentID},
			Actor: audit.System("edge-worker-retirement"), Action: action, ResourceType: "edge_worker", ResourceID: c.WorkerID,
			Result: audit.Succeeded, ReasonCode: reason,
		})
	})
}

func factID(action, workerID string) string { return audit.ID(action, workerID) }
