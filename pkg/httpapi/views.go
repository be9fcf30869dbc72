package httpapi

import (
	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/version"
)

// orNull turns the rows' sentinel of an unset text into null (S3-69).
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func workerView(w models.Worker) gen.Worker {
	return gen.Worker{
		ID: w.ID, ScriptName: w.ScriptName, Status: gen.WorkerStatus(w.Status), LatestRevision: w.LatestRevision,
		CurrentVersionID: orNull(w.CurrentVersionID), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
}

func versionView(v models.Version) (gen.Version, error) {
	operations, err := operationViews(v)
	if err != nil {
		return gen.Version{}, err
	}
	return gen.Version{
		ID: v.ID, Revision: v.Revision, State: gen.VersionState(v.State), Language: gen.VersionLanguage(v.Language), Entry: v.Entry,
		CompatibilityDate: v.CompatibilityDate, BuilderPolicy: v.BuilderPolicy, ReleaseGeneration: v.ReleaseGeneration,
		ProjectDigest: v.ProjectDigest, BundleDigest: v.BundleDigest, ManifestDigest: v.ManifestDigest, LockDigest: v.LockDigest,
		DependencyDigest: v.DependencyDigest, SbomDigest: v.SBOMDigest, StaticDataDigest: v.StaticDataDigest,
		ProjectSize: v.ProjectSize, BundleSize: v.BundleSize, Operations: operations,
		ErrorCode: orNull(v.ErrorCode), ErrorMessage: v.ErrorMessage,
		CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, DeployedAt: v.DeployedAt,
	}, nil
}

func operationViews(v models.Version) ([]gen.Operation, error) {
	out := []gen.Operation{}
	if v.Manifest == nil {
		return out, nil
	}
	manifest, err := version.Manifest(v)
	if err != nil {
		return nil, err
	}
	for _, o := range manifest.Operations {
		out = append(out, gen.Operation{ID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary})
	}
	return out, nil
}
