package deploy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
)

// work resolves the provider, takes the lease and runs the stages under its
// heartbeat. Whatever the stages return is settled once, by the ladder.
func (r *run) work(ctx context.Context) error {
	r.stage("provider_resolution")
	target, resolveErr := r.p.Provider()
	if errors.Is(resolveErr, provider.ErrUnavailable) { // S1-069: before the lease, so that the row stays as it is
		return fmt.Errorf("%w: %w", ErrRetry, resolveErr)
	}
	err := r.gate(ctx)
	if err != nil {
		return err
	}
	err = awaitOpen(ctx, target)
	if err != nil {
		return err
	}
	r.stage("lease")
	disposition, err := r.acquire(ctx)
	if err != nil {
		return err
	}
	switch disposition {
	case outbox.Terminal, outbox.WrongScope:
		return nil
	case outbox.InFlight, outbox.NotDue:
		return ErrInFlight
	case outbox.Acquired:
	}
	held, stop := r.p.Outbox.KeepLease(ctx, r.lease)
	defer stop()
	out := r.guarded(held, target, resolveErr)
	if errors.Is(context.Cause(held), outbox.ErrLeaseLost) {
		out = outcome{kind: stopped, cause: outbox.ErrLeaseLost}
	}
	return r.settle(ctx, out)
}

// gate defers the run while the environment's gate is closed: before the lease,
// so that nothing is settled (S1-068, S2-126, S2-127). What passes it in the
// moment in which a fence begins is deferred by the edge host itself (S2-223).
func (r *run) gate(ctx context.Context) error {
	gate, err := r.p.Outbox.PeekGate(ctx)
	if err != nil {
		return err
	}
	if gate != maintenance.Open {
		r.log.InfoContext(ctx, "deployment deferred", "gate", string(gate))
		return ErrFenced
	}
	return nil
}

// paced is a provider that tells for how long it goes on refusing everything
// for its rate limit.
type paced interface{ RetryIn() time.Duration }

// retryIn is how long the provider will go on refusing, 0 when it does not or
// cannot tell.
func retryIn(target provider.Provider) time.Duration {
	p, ok := target.(paced)
	if !ok {
		return 0
	}
	return p.RetryIn()
}

// awaitOpen waits until the provider takes requests again. Before the lease,
// because a lease under a block would only spend one of the two attempts (D14).
func awaitOpen(ctx context.Context, target provider.Provider) error {
	for left := retryIn(target); left > 0; left = retryIn(target) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
	return nil
}

// acquire is the lease loop: a row that a sweep has just stamped is waited
// for, everything else is answered at once.
func (r *run) acquire(ctx context.Context) (outbox.Disposition, error) {
	for waited := time.Duration(0); ; {
		lease, disposition, err := r.p.Outbox.LeaseDeployment(ctx, r.request)
		if err != nil {
			return "", err
		}
		if disposition != outbox.NotDue || waited >= maxNotDueWait {
			r.lease = lease
			return disposition, nil
		}
		waited += lease.Wait
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(lease.Wait):
		}
	}
}

// guarded runs the stages and turns a panic into an internal error, so that
// the row is settled and the heartbeats end (S1-135).
func (r *run) guarded(ctx context.Context, target provider.Provider, resolveErr error) outcome {
	var out outcome
	func() {
		defer func() {
			if p := recover(); p != nil {
				out = r.undecided(codeInternal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		out = r.stages(ctx, target, resolveErr)
	}()
	return out
}

// stages runs the task from the lease to the last probe and says what came of
// it. The context ends when the lease is lost.
func (r *run) stages(ctx context.Context, target provider.Provider, resolveErr error) outcome {
	if resolveErr != nil { // S2-124, S2-125
		r.stage("provider_invalid")
		return r.undecided(codeProviderInvalid, resolveErr)
	}
	if !r.lease.ReadOnly {
		r.stage("department_check")
		err := r.departmentAlive(ctx)
		if err != nil {
			return r.ladder(err)
		}
	}
	err := r.snapshot(ctx)
	if err != nil {
		return r.ladder(err)
	}
	if code := r.checkTarget(); code != "" {
		return r.undecided(code, errors.New("the Worker is not as it was when the deployment was admitted"))
	}
	if r.lease.ReadOnly {
		return r.reconcile(ctx, target)
	}
	err = r.prepare(ctx)
	if err != nil {
		return r.ladder(err)
	}
	r.stage("fence")
	err = r.fence(ctx)
	if err != nil {
		return r.ladder(err)
	}
	r.mirror(ctx, ticket.Deploying)
	err = r.purge(ctx)
	if err != nil {
		return r.ladder(err)
	}
	r.stage("upload")
	uploadErr := r.upload(ctx, target)
	if uploadErr != nil && !isUncertain(uploadErr) {
		return r.ladder(uploadErr)
	}
	r.release.Bundle = nil
	return r.confirm(ctx, target, uploadErr)
}

// upload is the one call that changes the provider. The lease is verified once
// more right before it: a process that slept since the fence must not write.
func (r *run) upload(ctx context.Context, target provider.Provider) error {
	err := r.p.Outbox.Verify(ctx, r.lease)
	if err != nil {
		return err
	}
	// gofail: var uploadBefore string
	// if err := failpoint.Act(uploadBefore); err != nil { return err }
	err = target.Upload(ctx, r.release)
	// gofail: var uploadAfter string
	// if err == nil { err = failpoint.Act(uploadAfter) }
	return err
}

// prepare is the last that may refuse the deployment while the provider is
// untouched.
func (r *run) prepare(ctx context.Context) error {
	if r.lease.Attempts > maxAttempts {
		return &provider.TerminalError{Code: r.exhaustedCode()}
	}
	r.stage("integrity")
	bundle, err := r.verifyIntegrity(ctx)
	if err != nil {
		return err
	}
	r.release = releaseOf(r.lease.Row, r.worker, r.version)
	r.release.Bundle = bundle
	return nil
}

// exhaustedCode keeps the reason of the last attempt when there is one.
func (r *run) exhaustedCode() string {
	if r.lease.Row.LastErrorCode != "" {
		return r.lease.Row.LastErrorCode
	}
	return codeInternal
}

// reconcile is the GET-only mode: an earlier run passed the fence, so this one
// only reads (S2-214).
func (r *run) reconcile(ctx context.Context, target provider.Provider) outcome {
	r.release = releaseOf(r.lease.Row, r.worker, r.version)
	r.mirror(ctx, ticket.Deploying)
	return r.confirm(ctx, target, &provider.UncertainError{Code: codeUploadUncertain})
}

// confirm is the way to every completed settlement: read-back, then the
// readiness gate (S2-196 to S2-198). uploadErr is nil after an acknowledged
// upload and uncertain otherwise.
func (r *run) confirm(ctx context.Context, target provider.Provider, uploadErr error) outcome {
	r.stage("read_back")
	err := r.showRelease(ctx, target)
	if err != nil && ctx.Err() != nil { // asked to stop: the next run reads again
		return outcome{kind: abandoned, cause: context.Cause(ctx)}
	}
	if err != nil {
		return afterReadBack(err, uploadErr)
	}
	r.stage("readiness")
	gate := readiness{
		probe:  r.probe,
		verify: func(ctx context.Context) error { return r.p.Outbox.Verify(ctx, r.lease) },
	}
	err = gate.wait(ctx)
	switch {
	case err == nil:
		return outcome{kind: completed}
	case errors.Is(err, outbox.ErrLeaseLost):
		return outcome{kind: stopped, cause: err}
	case errors.Is(err, errNotReady):
		return outcome{kind: uncertain, code: codeReadinessTimeout, cause: err}
	}
	return r.ladder(err)
}

func (r *run) probe(ctx context.Context) error {
	// gofail: var probeBefore string
	// if err := failpoint.Act(probeBefore); err != nil { return err }
	err := r.p.Prober.Probe(ctx, r.worker.ScriptName, r.version.ReleaseGeneration)
	// gofail: var probeAfter string
	// if err == nil { err = failpoint.Act(probeAfter) }
	return err
}

// snapshot reads the rows under locks in the order outbox → worker → version
// and pauses the Worker again when the version is found deploying (S1-080 to
// S1-082).
func (r *run) snapshot(ctx context.Context) error {
	r.stage("snapshot")
	// gofail: var snapshotBefore string
	// if err := failpoint.Act(snapshotBefore); err != nil { return err }
	err := r.readRows(ctx)
	// gofail: var snapshotAfter string
	// if err == nil { err = failpoint.Act(snapshotAfter) }
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = r.readRows(ctx) // it may be written twice: it says the same
	}
	return err
}

func (r *run) readRows(ctx context.Context) error {
	return r.p.DB.Tx(ctx, func(tx *database.Tx) error {
		held, err := r.hold(tx)
		if err != nil {
			return err
		}
		r.worker = held.Worker
		r.version, err = version.Of(tx.DB, r.request.Tenant, held.Version.ID) // locked above
		if err != nil || r.version.State != models.VersionDeploying || r.worker.Status == models.WorkerPaused {
			return err
		}
		return version.SetWorker(tx, r.worker.ID, map[string]any{"status": models.WorkerPaused})
	})
}

// errWorkerDeleted says that the row outlived its Worker (S3-80).
var errWorkerDeleted = errors.New("the Worker row no longer exists")

// hold verifies the lease and locks the deployment's rows.
func (r *run) hold(tx *database.Tx) (outbox.Held, error) {
	held, err := outbox.Hold(tx, r.lease)
	if err == nil && held.Version.ID == "" {
		err = errWorkerDeleted
	}
	return held, err
}

// departmentAlive refuses to upload for a deleted department: it would bring
// its Worker back to life. Cloud only, and never in the GET-only mode
// (S2-128 to S2-131).
func (r *run) departmentAlive(ctx context.Context) error {
	if !r.p.Outbox.Scope().Cloud() {
		return nil
	}
	alive, err := tenancy.Alive(r.p.DB.Read(ctx), r.request.Tenant)
	if err != nil {
		return err
	}
	if !alive {
		return &provider.TerminalError{Code: codeDepartmentDeleted}
	}
	return nil
}

// fence commits deploying and paused in one transaction, after it has verified
// the lease, the bundle's identity and deploy_pending again (S2-147 to
// S2-151). A lost acknowledgement is resolved by reading again (S1-097).
func (r *run) fence(ctx context.Context) error {
	// gofail: var fenceBefore string
	// if err := failpoint.Act(fenceBefore); err != nil { return err }
	err := r.p.DB.Tx(ctx, func(tx *database.Tx) error {
		held, err := r.hold(tx)
		if err != nil {
			return err
		}
		if !sameBundle(held.Version, r.version) {
			return fmt.Errorf("%w: the bundle's identity changed", errIntegrity)
		}
		err = version.Move(tx, held.Version.ID, models.VersionDeployPending, models.VersionDeploying, version.Evidence{})
		if err != nil {
			return err
		}
		return version.SetWorker(tx, held.Worker.ID, map[string]any{"status": models.WorkerPaused})
	})
	// gofail: var fenceAfter string
	// if err == nil { err = failpoint.Act(fenceAfter) }
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = r.fenceStands(ctx, unknown)
	}
	if err != nil {
		return fmt.Errorf("commit the fence: %w", err)
	}
	r.version.State = models.VersionDeploying
	return nil
}

// fenceStands reads whether the fence was committed while the lease is ours.
func (r *run) fenceStands(ctx context.Context, cause error) error {
	return r.p.DB.Tx(ctx, func(tx *database.Tx) error {
		held, err := r.hold(tx)
		if err != nil {
			return err
		}
		if held.Version.State != models.VersionDeploying {
			return cause
		}
		return nil
	})
}

func sameBundle(a, b models.Version) bool {
	return a.BundleDigest == b.BundleDigest && a.BundleObjectKey == b.BundleObjectKey && a.BundleSize == b.BundleSize &&
		a.ReleaseGeneration == b.ReleaseGeneration && a.CompatibilityDate == b.CompatibilityDate && a.MainModule == b.MainModule
}

// releaseOf is what the row's namespace is to hold.
func releaseOf(row models.Outbox, worker models.Worker, v models.Version) provider.Release {
	return provider.Release{
		Namespace: row.DispatchNamespace, ScriptName: worker.ScriptName,
		CompatibilityDate: v.CompatibilityDate, BundleDigest: v.BundleDigest,
	}
}

// mirror writes the finer status for pollers; it decides nothing.
func (r *run) mirror(ctx context.Context, status ticket.Status) {
	err := r.putMirror(ctx, status)
	if err != nil {
		r.log.WarnContext(ctx, "ticket status not mirrored", "error", err)
	}
}

func (r *run) putMirror(ctx context.Context, status ticket.Status) error {
	// gofail: var deployingMirrorBefore string
	// if err := failpoint.Act(deployingMirrorBefore); err != nil { return err }
	err := r.p.Mirror.Put(ctx, r.lease.Row, status)
	// gofail: var deployingMirrorAfter string
	// if err == nil { err = failpoint.Act(deployingMirrorAfter) }
	return err
}
