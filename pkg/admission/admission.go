// Package admission lets at most one deployment of a Worker in at a time: the
// route's steps and the outbox's steps of S2, each in the seed's order, with
// every message word for word.
package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/transports"
)

// Params is what a Desk is made of.
type Params struct {
	DB        *database.DB
	Outbox    *outbox.Outbox
	Redis     redis.UniversalClient
	Mirror    *ticket.Mirror
	Publisher transports.Publisher
	Stager    Stager
	// Provider tells whether the provider's settings are usable (S2-022).
	Provider func() error
	Log      *slog.Logger
}

// Stager puts the operation settings of a release that is to be deployed beside
// those of the live one; live.Desk is one. Its refusals are the answer.
type Stager interface {
	Stage(ctx context.Context, by live.By, worker models.Worker, target models.Version, request *settings.TableRequest) error
}

// Desk admits deployments.
type Desk struct{ p Params }

// New checks p.
func New(p Params) (*Desk, error) {
	if p.DB == nil || p.Outbox == nil || p.Redis == nil || p.Mirror == nil || p.Publisher == nil || p.Stager == nil || p.Provider == nil || p.Log == nil {
		return nil, errors.New("admission: every part is required")
	}
	return &Desk{p: p}, nil
}

// Request asks for the deployment of a version. BaseRevision is the Worker's
// latest revision as the caller saw it (S2-049).
type Request struct {
	Tenant       models.Tenant
	Actor        audit.Actor
	VersionID    string
	BaseRevision int64
	// Settings, when given, are those that the version goes live with (S2-089).
	Settings *settings.TableRequest
}

// settingsDigest is the request's settings digest, empty without settings
// (S2-084).
func (r Request) settingsDigest() string {
	if r.Settings == nil {
		return ""
	}
	return r.Settings.Digest
}

// mirrorTimeout bounds Redis; publishTimeout what follows the commit, which
// goes on when the client has gone away.
const (
	mirrorTimeout  = 3 * time.Second
	publishTimeout = 10 * time.Second
)

// Deploy runs the route's steps of S2 in their order (S2-021): provider check,
// exact retry, serving location, settings lock, in-flight check, release rules,
// staging of the operation settings, and then the outbox's steps. It returns a
// submitting ticket for a new deployment and the existing ticket for an exact
// retry.
func (d *Desk) Deploy(ctx context.Context, in Request) (ticket.Ticket, error) {
	err := d.p.Provider()
	if err != nil {
		return ticket.Ticket{}, version.ErrProviderInvalid.Because(err)
	}
	worker, err := version.WorkerOf(d.p.DB.Read(ctx), in.Tenant)
	if err != nil {
		return ticket.Ticket{}, err
	}
	target, err := version.Of(d.p.DB.Read(ctx), in.Tenant, in.VersionID)
	if err != nil {
		return ticket.Ticket{}, err
	}
	existing, found, err := d.exactRetry(ctx, worker, in)
	if err != nil || found {
		return existing, err
	}
	_, err = d.location(worker)
	if err != nil {
		return ticket.Ticket{}, errTargetUnverified.Because(err)
	}
	end, err := live.Turns{DB: d.p.DB, Redis: d.p.Redis, Log: d.p.Log}.Take(ctx, in.Tenant)
	if err != nil {
		return ticket.Ticket{}, err
	}
	defer end()
	err = d.stage(ctx, in, target)
	if err != nil {
		return ticket.Ticket{}, err
	}
	return d.admit(ctx, in)
}

// stage checks the release rules and stages the settings by the release that is
// live in the department's turn.
func (d *Desk) stage(ctx context.Context, in Request, target models.Version) error {
	worker, err := version.WorkerOf(d.p.DB.Read(ctx), in.Tenant)
	if err != nil {
		return err
	}
	err = d.releaseRules(ctx, in, worker, target)
	if err != nil {
		return err
	}
	return d.p.Stager.Stage(ctx, live.By{Tenant: in.Tenant, Actor: in.Actor}, worker, target, in.Settings)
}

// exactRetry looks for a ticket of the same version and base revision before
// anything is staged (S2-024 to S2-026, S2-085, S2-086, S2-088).
func (d *Desk) exactRetry(ctx context.Context, worker models.Worker, in Request) (ticket.Ticket, bool, error) {
	rows, err := outbox.Deploys(d.p.DB.Read(ctx), worker.ID, in.VersionID)
	if err != nil {
		return ticket.Ticket{}, false, err
	}
	for _, row := range rows {
		payload, err := outbox.DecodeDeploy(row)
		if err != nil || payload.BaseRevision != in.BaseRevision {
			continue
		}
		if row.DedupeKey != outbox.DedupeKey(worker.ID, in.VersionID, in.BaseRevision, in.settingsDigest()) {
			return ticket.Ticket{}, false, errDedupeMismatch
		}
		err = repeatable(row, worker)
		if err != nil {
			return ticket.Ticket{}, false, err
		}
		return ticket.Of(row), true, nil
	}
	return ticket.Ticket{}, false, nil
}

// repeatable refuses the retry of a superseded or uncertain deployment
// (S2-053, S2-054).
func repeatable(row models.Outbox, worker models.Worker) error {
	switch {
	case row.Status == models.OutboxCompleted && worker.CurrentVersionID != row.VersionID:
		return errSuperseded
	case row.Status == models.OutboxUncertain:
		return errUncertain
	}
	return nil
}

// location is where the Worker is served, or the environment's default when
// none is recorded yet (D19). A location that this environment cannot name or
// run cannot be verified.
func (d *Desk) location(worker models.Worker) (outbox.Location, error) {
	at := outbox.Location{Kind: worker.ServingKind, Namespace: worker.ServingNamespace}
	if at == (outbox.Location{}) {
		at = d.p.Outbox.Scope().Default()
	}
	if at.Namespace == "" || (at.Kind != outbox.ServingShared && at.Kind != outbox.ServingLegacy) {
		return outbox.Location{}, errors.New("the serving location is not one that can be named")
	}
	return at, nil
}

// admit commits the row and then publishes it. The row is durable whatever
// happens to the publication: the recovery sweep finds it (S2-079).
func (d *Desk) admit(ctx context.Context, in Request) (ticket.Ticket, error) {
	var row models.Outbox
	var fresh bool
	// gofail: var admitCommitBefore string
	// if err := failpoint.Act(admitCommitBefore); err != nil { return ticket.Ticket{}, err }
	err := d.p.DB.Tx(ctx, func(tx *database.Tx) error {
		var err error
		row, fresh, err = d.enqueue(tx, in)
		return err
	})
	// gofail: var admitCommitAfter string
	// if err == nil { err = failpoint.Act(admitCommitAfter) }
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = d.confirm(ctx, in, row, unknown)
	}
	if database.IsDuplicate(err) { // the schema's guard caught a race
		return ticket.Ticket{}, errActive
	}
	if err != nil {
		var known *fault.Error
		if errors.As(err, &known) {
			return ticket.Ticket{}, err
		}
		return ticket.Ticket{}, fmt.Errorf("admit the deployment: %w", err)
	}
	if !fresh {
		return ticket.Of(row), nil
	}
	return d.announce(ctx, row), nil
}

// announce publishes a row that was just committed and returns its ticket. A
// row behind a backup fence is announced to nobody: it waits for the fence's
// end, and its ticket says so (S2-074, S2-075).
func (d *Desk) announce(ctx context.Context, row models.Outbox) ticket.Ticket {
	view := ticket.Of(row)
	if row.LastErrorCode == outbox.CodeFenced {
		return view
	}
	d.publish(ctx, row)
	view.Status = ticket.Submitting
	return view
}

// confirm reads a row back by its fresh id after a lost acknowledgement. It asks
// for the row's lock, so that a commit which is still on its way is waited for.
func (d *Desk) confirm(ctx context.Context, in Request, row models.Outbox, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	_, err := d.committed(ctx, in.Tenant, row.TicketID)
	if errors.Is(err, outbox.ErrNoTicket) {
		return fmt.Errorf("the deployment was not committed: %w", cause)
	}
	if err != nil {
		return errOutcomeUnknown.Because(errors.Join(cause, err))
	}
	return nil
}

// committed reads a ticket under its lock; what became of that reading's own
// commit does not matter.
func (d *Desk) committed(ctx context.Context, tenant models.Tenant, ticketID string) (models.Outbox, error) {
	var row models.Outbox
	err := d.p.DB.Tx(ctx, func(tx *database.Tx) error {
		var err error
		row, err = outbox.Ticket(tx.Locked(), tenant, ticketID)
		return err
	})
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = nil
	}
	return row, err
}

func (d *Desk) publish(ctx context.Context, row models.Outbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	err := Publish(ctx, d.p.Mirror, d.p.Publisher, row)
	if err != nil {
		d.p.Log.WarnContext(ctx, "deployment left to the recovery sweep", "ticket_id", row.TicketID, "error", err)
	}
}

// Publish writes the required submitting status and then hands the row's
// message to the transport (S2-238, S2-261, S1-287, S1-288).
func Publish(ctx context.Context, mirror *ticket.Mirror, publisher transports.Publisher, row models.Outbox) error {
	payload, err := outbox.DecodeDeploy(row)
	if err != nil {
		return err
	}
	// gofail: var submittingMirrorBefore string
	// if err := failpoint.Act(submittingMirrorBefore); err != nil { return err }
	err = putSubmitting(ctx, mirror, row)
	// gofail: var submittingMirrorAfter string
	// if err == nil { err = failpoint.Act(submittingMirrorAfter) }
	if err != nil {
		return err
	}
	// gofail: var publishBefore string
	// if err := failpoint.Act(publishBefore); err != nil { return err }
	err = publisher.Publish(ctx, transports.Deploy(row.ID, row.CompanyID, row.DepartmentID, payload.MessageID))
	// gofail: var publishAfter string
	// if err == nil { err = failpoint.Act(publishAfter) }
	return err
}

// putSubmitting bounds the write: a stalled Redis must not hold a sweep.
func putSubmitting(ctx context.Context, mirror *ticket.Mirror, row models.Outbox) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	return mirror.Put(ctx, row, ticket.Submitting)
}
