package deploy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// errIntegrity is the class of evidence that does not verify.
var errIntegrity = errors.New("the version's evidence does not verify")

// verifyIntegrity checks the whole evidence before the fence: state, manifest,
// module tuple, seven digests, receipt, generation, and both stored objects by
// size and SHA-256 (S2-134 to S2-144). It returns the stored bundle: nothing
// is ever built again (S2-145).
func (r *run) verifyIntegrity(ctx context.Context) ([]byte, error) {
	if r.version.State != models.VersionDeployPending {
		return nil, fmt.Errorf("%w: the version is %s", models.ErrStaleTransition, r.version.State)
	}
	err := verifyRow(r.version)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIntegrity, err)
	}
	if r.p.Store == nil {
		return nil, fmt.Errorf("%w: the store is not configured", artifact.ErrUnavailable)
	}
	v := r.version
	var bundle []byte
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := r.readObject(ctx, artifact.Project, v.ProjectObjectKey, v.ProjectSize, v.ProjectDigest)
		return err
	})
	group.Go(func() error {
		var err error
		bundle, err = r.readObject(ctx, artifact.Bundle, v.BundleObjectKey, v.BundleSize, v.BundleDigest)
		return err
	})
	err = group.Wait()
	if err != nil {
		return nil, err
	}
	return bundle, nil
}

// readObject reads one stored object within its kind's bound and compares it
// with the row. An unreachable store is told apart from wrong content.
func (r *run) readObject(ctx context.Context, kind artifact.Kind, key string, size int64, digest string) ([]byte, error) {
	// gofail: var artifactReadBefore string
	// if err := failpoint.Act(artifactReadBefore); err != nil { return nil, err }
	content, err := r.p.Store.Get(ctx, artifact.Tenant(r.request.Tenant), kind, key, 0)
	// gofail: var artifactReadAfter string
	// if err == nil { err = failpoint.Act(artifactReadAfter) }
	if err != nil && (errors.Is(err, artifact.ErrUnavailable) || ctx.Err() != nil) {
		return nil, fmt.Errorf("read the stored %s: %w", kind, err)
	}
	if err == nil {
		err = artifact.Verify(content, size, digest)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stored %s: %w", errIntegrity, kind, err)
	}
	return content, nil
}

// verifyRow checks what the row says of itself.
func verifyRow(v models.Version) error {
	if v.Manifest == nil || v.BuildReceipt == nil || v.SBOM == nil {
		return errors.New("a document is missing") // S3-10
	}
	digest, err := builder.ManifestDigest([]byte(*v.Manifest))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if digest != v.ManifestDigest {
		return errors.New("the manifest is not the one that was built")
	}
	if v.MainModule != provider.MainModule || v.ModuleType != artifact.Bundle.ContentType() || v.BundleSize < 1 || v.BundleSize > artifact.Bundle.MaxSize() {
		return errors.New("the module tuple is not the one that was built")
	}
	return builder.VerifyReceipt([]byte(*v.BuildReceipt), builder.ReceiptFields{
		BuilderPolicy: builder.Policy(v.BuilderPolicy), CompatibilityDate: v.CompatibilityDate,
		RuntimeDigest: v.RuntimeDigest, ReleaseGeneration: v.ReleaseGeneration,
		Digests: builder.Digests{
			Project: v.ProjectDigest, Bundle: v.BundleDigest, Manifest: v.ManifestDigest, Lock: v.LockDigest,
			Dependency: v.DependencyDigest, SBOM: v.SBOMDigest, StaticData: v.StaticDataDigest,
		},
	})
}
