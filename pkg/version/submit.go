// Package version accepts submissions and serves the revisions of a Worker.
//
// A submission leaves nothing behind that no row speaks of: the cleanup intent
// is committed before the first object is written, and the transaction that
// lands the version adopts it (S0 "intent first, object second").
package version

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/tenancy"
)

// The answers of S0 and of a commit whose outcome could not be read back.
var (
	ErrProviderInvalid = fault.New(fault.Unavailable, "Edge Worker provider is not configured")
	ErrNoStorage       = fault.New(fault.Unavailable, "Edge Worker artifact storage is unavailable")
	ErrOutcomeUnknown  = fault.Coded(fault.Unavailable, "submission_outcome_unknown",
		"The submission may have been accepted; list the versions before you submit again")
)

// finishTimeout bounds what follows the intent's commit: two uploads, one
// transaction and its read-back. It goes on when the client has gone away, and
// ends long before the intent's grace of 15 minutes.
const finishTimeout = 3 * time.Minute

// Params is what a Submitter is made of.
type Params struct {
	DB      *database.DB
	Outbox  *outbox.Outbox
	Builder *builder.Builder
	// Store is nil when the selected store is not configured (S0-20).
	Store artifact.Store
	// Provider tells whether the provider's settings are usable (S0-22).
	Provider func() error
	Log      *slog.Logger
}

// Submitter turns uploads into ready revisions.
type Submitter struct{ p Params }

// NewSubmitter checks p.
func NewSubmitter(p Params) (*Submitter, error) {
	if p.DB == nil || p.Outbox == nil || p.Builder == nil || p.Provider == nil || p.Log == nil {
		return nil, errors.New("submitter: database, outbox, builder, provider check and log are required")
	}
	return &Submitter{p: p}, nil
}

// Submission is one upload.
type Submission struct {
	Tenant  models.Tenant
	Actor   audit.Actor
	Archive io.Reader
	// Progress, when set, is told while npm packages are brought.
	Progress func(done, total int)
	// Policy is the builder policy; empty means the current one. No route sets
	// it: older releases exist for tests and migrations (D8).
	Policy builder.Policy
}

// Submit reads, builds, stores and commits a project as the next ready
// revision of the department's Worker (S2-002 to S2-004). A refused project is
// a fault that lists what is wrong, and leaves no row and no object.
func (s *Submitter) Submit(ctx context.Context, in Submission) (models.Version, error) {
	err := s.p.Provider()
	if err != nil {
		return models.Version{}, ErrProviderInvalid.Because(err)
	}
	if s.p.Store == nil {
		return models.Version{}, ErrNoStorage
	}
	alive, err := tenancy.Alive(s.p.DB.Read(ctx), in.Tenant)
	if err != nil {
		return models.Version{}, err
	}
	if !alive {
		return models.Version{}, tenancy.ErrNoDepartment
	}
	source, err := project.Read(in.Archive)
	if err != nil {
		return models.Version{}, err
	}
	built, err := s.p.Builder.Build(ctx, builder.Input{
		Project: source, ScriptName: models.ScriptName(in.Tenant.CompanyID, in.Tenant.DepartmentID), Policy: in.Policy,
		Progress: in.Progress,
	})
	if err != nil {
		return models.Version{}, err
	}
	landing, err := prepare(in, source, built)
	if err != nil {
		return models.Version{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	return s.land(ctx, landing)
}

// landing is a built submission on its way into the store and the database.
type landing struct {
	submission Submission
	objects    [2]artifact.Object
	intent     outbox.CleanupIntent
	version    models.Version
}

func prepare(in Submission, source *project.Project, built *builder.Output) (landing, error) {
	id := uuid.NewString()
	tenant := artifact.Tenant(in.Tenant)
	l := landing{submission: in, objects: [2]artifact.Object{
		{Tenant: tenant, Kind: artifact.Project, ArtifactID: id, Digest: built.Digests.Project, Content: source.Archive},
		{Tenant: tenant, Kind: artifact.Bundle, ArtifactID: id, Digest: built.Digests.Bundle, Content: built.Bundle},
	}}
	var keys [2]string
	for i, object := range l.objects {
		key, err := object.Key()
		if err != nil {
			return landing{}, fmt.Errorf("name the %s object: %w", object.Kind, err)
		}
		keys[i] = key
	}
	l.intent = outbox.CleanupIntent{
		Tenant: in.Tenant, ArtifactID: id, CreatedBy: in.Actor.ID,
		Project: outbox.CleanupItem{Kind: string(artifact.Project), ObjectKey: keys[0], Digest: built.Digests.Project},
		Bundle:  outbox.CleanupItem{Kind: string(artifact.Bundle), ObjectKey: keys[1], Digest: built.Digests.Bundle},
	}
	manifest, sbom, receipt := string(built.Manifest), string(built.SBOM), string(built.Receipt)
	l.version = models.Version{
		ID: uuid.NewString(), CompanyID: in.Tenant.CompanyID, DepartmentID: in.Tenant.DepartmentID, State: models.VersionReady,
		Language: string(built.Language), Entry: built.Entry, CompatibilityDate: built.CompatibilityDate, Manifest: &manifest,
		MainModule: provider.MainModule, ModuleType: artifact.Bundle.ContentType(), BundleSize: int64(len(built.Bundle)),
		ArtifactID: id, ProjectSize: int64(len(source.Archive)), ProjectObjectKey: keys[0], BundleObjectKey: keys[1],
		ProjectDigest: built.Digests.Project, BundleDigest: built.Digests.Bundle, ManifestDigest: built.Digests.Manifest,
		LockDigest: built.Digests.Lock, DependencyDigest: built.Digests.Dependency, SBOMDigest: built.Digests.SBOM,
		StaticDataDigest: built.Digests.StaticData, RuntimeDigest: built.RuntimeDigest,
		BuilderPolicy: string(built.BuilderPolicy), ReleaseGeneration: built.ReleaseGeneration,
		SBOM: &sbom, BuildReceipt: &receipt, CreatedBy: in.Actor.ID,
	}
	return l, nil
}

// land commits the intent, stores both objects and commits the version.
func (s *Submitter) land(ctx context.Context, l landing) (models.Version, error) {
	// gofail: var submitIntentBefore string
	// if err := failpoint.Act(submitIntentBefore); err != nil { return models.Version{}, err }
	err := s.p.Outbox.CreateCleanupIntent(ctx, l.intent)
	// gofail: var submitIntentAfter string
	// if err == nil { err = failpoint.Act(submitIntentAfter) }
	if err != nil {
		return models.Version{}, err
	}
	err = s.store(ctx, l)
	if err != nil {
		s.abandon(ctx, l)
		return models.Version{}, ErrNoStorage.Because(err)
	}
	version, err := s.commit(ctx, l)
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		return s.readBack(ctx, l, err)
	}
	if err != nil {
		s.abandon(ctx, l)
		return models.Version{}, fmt.Errorf("commit the version: %w", err)
	}
	return version, nil
}

func (s *Submitter) store(ctx context.Context, l landing) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range l.objects {
		group.Go(func() error { return s.put(ctx, object) })
	}
	return group.Wait()
}

func (s *Submitter) put(ctx context.Context, object artifact.Object) error {
	// gofail: var submitProjectBefore string
	// if err := failpoint.Of(object.Kind == artifact.Project, submitProjectBefore); err != nil { return err }

	// gofail: var submitBundleBefore string
	// if err := failpoint.Of(object.Kind == artifact.Bundle, submitBundleBefore); err != nil { return err }
	err := s.p.Store.Put(ctx, object)
	// gofail: var submitProjectAfter string
	// if err == nil { err = failpoint.Of(object.Kind == artifact.Project, submitProjectAfter) }

	// gofail: var submitBundleAfter string
	// if err == nil { err = failpoint.Of(object.Kind == artifact.Bundle, submitBundleAfter) }
	return err
}

// abandon makes the intent of a submission that did not commit due at once
// (S0-72). If that fails the intent falls due by itself after its grace.
func (s *Submitter) abandon(ctx context.Context, l landing) {
	err := s.p.Outbox.MakeCleanupDue(ctx, l.submission.Tenant, l.intent.ArtifactID, outbox.CodeNotCommitted)
	if err != nil {
		s.p.Log.WarnContext(ctx, "cleanup intent waits for its grace", "artifact_id", l.intent.ArtifactID, "error", err)
	}
}

// commit lands the version and adopts the intent in one transaction (S0-69).
func (s *Submitter) commit(ctx context.Context, l landing) (models.Version, error) {
	var version models.Version
	// gofail: var submitCommitBefore string
	// if err := failpoint.Act(submitCommitBefore); err != nil { return models.Version{}, err }
	err := s.p.DB.Tx(ctx, func(tx *database.Tx) error {
		err := outbox.AdoptCleanup(tx, l.intent, l.version.ID)
		if err != nil {
			return err
		}
		version, err = createSubmission(tx, l)
		return err
	})
	// gofail: var submitCommitAfter string
	// if err == nil { err = failpoint.Act(submitCommitAfter) }
	return version, err
}

// createSubmission writes the rows and never commits (S3-84).
func createSubmission(tx *database.Tx, l landing) (models.Version, error) {
	tenant := l.submission.Tenant
	alive, err := tenancy.Alive(tx.DB, tenant)
	if err != nil {
		return models.Version{}, err
	}
	if !alive {
		return models.Version{}, tenancy.ErrNoDepartment
	}
	worker, err := lockWorker(tx, tenant, l.submission.Actor.ID)
	if err != nil {
		return models.Version{}, err
	}
	version := l.version
	version.WorkerID, version.Revision = worker.ID, worker.LatestRevision+1
	version.CreatedAt, err = tx.Now()
	if err != nil {
		return models.Version{}, err
	}
	version.UpdatedAt = version.CreatedAt
	err = tx.Create(&version).Error
	if err != nil {
		return models.Version{}, fmt.Errorf("insert the version: %w", err)
	}
	err = SetWorker(tx, worker.ID, map[string]any{"latest_revision": version.Revision})
	if err != nil {
		return models.Version{}, err
	}
	return version, audit.Write(tx, audit.Fact{
		ID: audit.ID("version.submitted", version.ID), Tenant: tenant, Actor: l.submission.Actor, Action: "version.submitted",
		ResourceType: "edge_worker_version", ResourceID: version.ID, Result: audit.Succeeded, Digest: version.ProjectDigest,
	})
}

// lockWorker locks the department's Worker and makes it if this is the first
// submission. Concurrent first submissions meet at the unique index: one
// inserts, the others wait for it and find its row (S3-13).
func lockWorker(tx *database.Tx, tenant models.Tenant, actor string) (models.Worker, error) {
	worker, err := WorkerOf(tx.Locked(), tenant)
	if !errors.Is(err, ErrNoWorker) {
		return worker, err
	}
	now, err := tx.Now()
	if err != nil {
		return models.Worker{}, err
	}
	fresh := models.Worker{
		ID: uuid.NewString(), CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID,
		ScriptName: models.ScriptName(tenant.CompanyID, tenant.DepartmentID), Status: models.WorkerDraft,
		CreatedBy: actor, CreatedAt: now, UpdatedAt: now,
	}
	err = tx.Create(&fresh).Error
	if err != nil && !database.IsDuplicate(err) {
		return models.Worker{}, fmt.Errorf("insert the Worker: %w", err)
	}
	return WorkerOf(tx.Locked(), tenant)
}

// readBack decides after a lost commit acknowledgement: by the version's
// identity-pinned fields and by the intent's state (S0-70, S0-71). It locks the
// intent first: a commit that is still on its way holds that row and is waited
// for, so that "not committed" is final.
func (s *Submitter) readBack(ctx context.Context, l landing, cause error) (models.Version, error) {
	var rows []models.Version
	var intent models.Outbox
	err := s.p.DB.Tx(ctx, func(tx *database.Tx) error {
		var err error
		intent, err = outbox.FindCleanup(tx.Locked(), l.submission.Tenant, l.intent.ArtifactID)
		if err != nil {
			return err
		}
		rows = nil
		return l.submission.Tenant.Own(tx.DB).Where(l.pinned()).Limit(1).Find(&rows).Error
	})
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = nil // nothing was written
	}
	switch {
	case err != nil:
		return models.Version{}, ErrOutcomeUnknown.Because(errors.Join(cause, err))
	case len(rows) == 1 && intent.Status == models.OutboxCancelled:
		return rows[0], nil
	case len(rows) == 0 && intent.Status != models.OutboxCancelled:
		s.abandon(ctx, l)
		return models.Version{}, fmt.Errorf("the version was not committed: %w", cause)
	}
	return models.Version{}, ErrOutcomeUnknown.Because(fmt.Errorf("%w: version and intent disagree", cause))
}

// pinned are the fields by which a submission knows its own version. A map,
// because a struct's empty fields would not be compared.
func (l landing) pinned() map[string]any {
	v := l.version
	return map[string]any{
		"created_by": v.CreatedBy, "builder_policy": v.BuilderPolicy, "project_size": v.ProjectSize,
		"project_object_key": v.ProjectObjectKey, "bundle_object_key": v.BundleObjectKey,
		"project_digest": v.ProjectDigest, "bundle_digest": v.BundleDigest, "manifest_digest": v.ManifestDigest,
		"lock_digest": v.LockDigest, "dependency_digest": v.DependencyDigest, "sbom_digest": v.SBOMDigest,
		"static_data_digest": v.StaticDataDigest,
	}
}
