// Package deploy is the deployment task: the one place that changes what a
// provider serves. It takes a committed intent through lease, verification,
// fence, upload, read-back and readiness to one settlement, and never reports
// what it has not seen (S1 "deploy task", S2 "what the task does").
package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/transports"
)

// maxAttempts is _MAX_DEPLOY_ATTEMPTS = 2 of S2: how many leases may find the
// version before the fence (S2-204).
const maxAttempts = 2

// maxNotDueWait bounds the wait for a row that a sweep has just stamped; it is
// the sweep's longest cool-down (S1-292).
const maxNotDueWait = 300 * time.Second

// finishTimeout bounds what is done for the row's sake after the work's own
// context has ended: a settlement, the release of a claim.
const finishTimeout = 30 * time.Second

// Prober asks a release, through the signed control channel, for its access
// policy. nil means that this very generation answered with a policy.
type Prober interface {
	Probe(ctx context.Context, scriptName, generation string) error
}

// Params is what a Task is made of.
type Params struct {
	DB     *database.DB
	Outbox *outbox.Outbox
	Redis  redis.UniversalClient
	Mirror *ticket.Mirror
	// Provider resolves the provider anew for each run, so that a setting that
	// has become invalid is noticed (S1-061).
	Provider func() (provider.Provider, error)
	// Store is the artifact store; nil when it is not configured.
	Store  artifact.Store
	Prober Prober
	Purger Purger
	// Owner names this process in lease tokens.
	Owner string
	// BatchJobID and BatchAttempt are AWS Batch's identity of this run.
	BatchJobID   string
	BatchAttempt int
	Metrics      *Metrics
	Log          *slog.Logger
	// Trace, when set by a test, is told each stage as it begins.
	Trace func(stage string)
}

// Task runs deployments. It is safe for concurrent use.
type Task struct{ p Params }

// New checks p.
func New(p Params) (*Task, error) {
	if p.DB == nil || p.Outbox == nil || p.Redis == nil || p.Mirror == nil || p.Provider == nil ||
		p.Prober == nil || p.Purger == nil || p.Owner == "" || p.Metrics == nil || p.Log == nil {
		return nil, errors.New("deploy task: every part is required")
	}
	return &Task{p: p}, nil
}

// The results of a run that ask the transport for another delivery.
var (
	// ErrInFlight says that another delivery works on the row (S1-265).
	ErrInFlight = errors.New("another delivery works on this deployment")
	// ErrRetry says that the row went back to pending, or stayed so.
	ErrRetry = errors.New("the deployment will be tried again")
	// ErrFenced is the ErrRetry of a run that met a closed gate (S1-067). Its
	// text is the specification's, word for word.
	ErrFenced error = retryLater("Edge Workers execution is fenced")
)

// retryLater is an ErrRetry with a text of its own.
type retryLater string

func (e retryLater) Error() string { return string(e) }

// Is makes every retryLater an ErrRetry.
func (e retryLater) Is(target error) bool { return target == ErrRetry }

// Handle is the transport's handler: it validates the message and runs it.
func (t *Task) Handle(ctx context.Context, message transports.Message) error {
	err := message.Validate()
	if err != nil {
		return err
	}
	a := message.Args
	return t.Run(ctx, a[0], a[1], a[2], a[3])
}

// Run is run_edge_worker_deployment(outbox_id, company_id, department_id,
// message_id) of S1. It validates its four arguments again, whatever the
// sender has checked (S1-054). nil acknowledges the delivery.
func (t *Task) Run(ctx context.Context, outboxID, companyID, departmentID, messageID string) error {
	err := transports.Deploy(outboxID, companyID, departmentID, messageID).Validate()
	if err != nil {
		return err
	}
	r := &run{
		Task: t, started: time.Now(), stageStarted: time.Now(),
		request: outbox.LeaseRequest{
			OutboxID: outboxID, Tenant: models.Tenant{CompanyID: companyID, DepartmentID: departmentID}, MessageID: messageID,
			Owner: t.p.Owner, BatchJobID: t.p.BatchJobID, BatchAttempt: t.p.BatchAttempt,
		},
		log: t.p.Log.With("outbox_id", outboxID, "company_id", companyID, "department_id", departmentID),
	}
	return r.deliver(ctx)
}

// run is one delivery.
type run struct {
	*Task
	request outbox.LeaseRequest
	log     *slog.Logger

	lease   outbox.Lease
	worker  models.Worker
	version models.Version
	release provider.Release
	settled verdict // what this run has written, if it has

	started, stageStarted time.Time
	stageName             string
}

// deliver claims the delivery, does the work and leaves the claim as the
// durable state demands: a done mark over a terminal row, else nothing
// (S1-136, S1-137).
func (r *run) deliver(ctx context.Context) error {
	r.stage("delivery_claim")
	defer r.stage("")
	held, terminal, err := r.claim(ctx)
	if err != nil || terminal {
		return err
	}
	if held == nil { // Redis is not usable: the lease alone decides (S1-056)
		return r.work(ctx)
	}
	_, stop := outbox.Keep(ctx, outbox.Beat{
		Every: claim.DeliveryBeat, TTL: claim.DeliveryTTL, Renew: held.Renew, Lost: claim.ErrLost,
	})
	defer r.finishClaim(ctx, held)
	defer stop()
	return r.work(ctx)
}

// claim takes the advisory delivery claim. A terminal row ends the delivery;
// a done mark over any other row is deleted and the claim taken again
// (S1-059, S1-060).
func (r *run) claim(ctx context.Context) (*claim.Claim, bool, error) {
	terminal, err := r.isTerminal(ctx)
	if err != nil || terminal {
		return nil, terminal, err
	}
	// gofail: var deliveryClaimBefore string
	// if err := failpoint.Act(deliveryClaimBefore); err != nil { return nil, false, err }
	held, err := claim.Delivery(ctx, r.p.Redis, r.request.OutboxID)
	// gofail: var deliveryClaimAfter string
	// if err == nil { err = failpoint.Act(deliveryClaimAfter) }
	if errors.Is(err, claim.ErrDone) {
		err = claim.ForgetDone(ctx, r.p.Redis, r.request.OutboxID)
		if err == nil {
			held, err = claim.Delivery(ctx, r.p.Redis, r.request.OutboxID)
		}
	}
	switch {
	case err == nil:
		return held, false, nil
	case errors.Is(err, claim.ErrHeld):
		return nil, false, ErrInFlight
	}
	r.log.WarnContext(ctx, "delivery claim unavailable; the lease alone decides", "error", err)
	return nil, false, nil
}

func (r *run) isTerminal(ctx context.Context) (bool, error) {
	var rows []models.Outbox
	err := r.request.Tenant.Own(r.p.DB.Read(ctx)).Select("status").
		Where("id = ? AND operation = ?", r.request.OutboxID, models.OperationDeploy).Find(&rows).Error
	if err != nil {
		return false, fmt.Errorf("read the deployment's state: %w", err)
	}
	return len(rows) == 0 || rows[0].Status.Released() || rows[0].Status == models.OutboxUncertain, nil
}

func (r *run) finishClaim(ctx context.Context, held *claim.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	released, err := r.released(ctx)
	if err == nil && released {
		err = r.done(ctx, held)
	} else {
		err = errors.Join(err, held.Release(ctx))
	}
	if err != nil && !errors.Is(err, claim.ErrLost) {
		r.log.WarnContext(ctx, "delivery claim left to its time-out", "error", err)
	}
}

// released reports whether the row is terminal: from this run's own settlement,
// or else from the database.
func (r *run) released(ctx context.Context) (bool, error) {
	if r.settled != "" {
		return r.settled == completed || r.settled == failed, nil
	}
	var rows []models.Outbox
	err := r.p.DB.Read(ctx).Select("status").Where("id = ?", r.request.OutboxID).Find(&rows).Error
	return err == nil && len(rows) == 1 && rows[0].Status.Released(), err
}

// done leaves the mark that spares a doubled delivery its work.
func (r *run) done(ctx context.Context, held *claim.Claim) error {
	// gofail: var claimDoneBefore string
	// if err := failpoint.Act(claimDoneBefore); err != nil { return err }
	err := held.Done(ctx)
	// gofail: var claimDoneAfter string
	// if err == nil { err = failpoint.Act(claimDoneAfter) }
	return err
}

// stage ends the running stage's measurement and begins the next one.
func (r *run) stage(name string) {
	now := time.Now()
	if r.stageName != "" {
		r.p.Metrics.stage(r.stageName, now.Sub(r.stageStarted))
	}
	r.stageName, r.stageStarted = name, now
	if name != "" && r.p.Trace != nil {
		r.p.Trace(name)
	}
}
