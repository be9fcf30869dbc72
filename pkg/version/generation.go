package version

import (
	"encoding/json"
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// ErrReleaseUnavailable says that the identity of a release that must be known
// cannot be derived (S2-108).
var ErrReleaseUnavailable = fault.New(fault.Unavailable, "Deployed department Worker release is unavailable")

// Generation derives a version's release generation from its parts anew. It
// fails when the row records another one: then the release's identity is not
// known (S1-208, S2-108).
func Generation(v models.Version) (string, error) {
	generation, err := builder.Generation(builder.GenerationInput{
		BuilderPolicy: builder.Policy(v.BuilderPolicy), CompatibilityDate: v.CompatibilityDate,
		ProjectDigest: v.ProjectDigest, ManifestDigest: v.ManifestDigest, LockDigest: v.LockDigest,
		DependencyDigest: v.DependencyDigest, StaticDataDigest: v.StaticDataDigest, RuntimeDigest: v.RuntimeDigest,
	})
	if err != nil {
		return "", fmt.Errorf("version %s: %w", v.ID, err)
	}
	if generation != v.ReleaseGeneration {
		return "", fmt.Errorf("version %s: its release generation is not that of its parts", v.ID)
	}
	return generation, nil
}

// Policy is the builder policy of a version whose identity as a release is
// whole: it decides what the release understands (S2-105).
func Policy(v models.Version) (builder.Policy, error) {
	policy := builder.Policy(v.BuilderPolicy)
	if !policy.Known() {
		return "", fmt.Errorf("version %s has the unknown builder policy %q", v.ID, v.BuilderPolicy)
	}
	_, err := Generation(v)
	if err != nil {
		return "", err
	}
	if !canonical.IsSHA256(v.BundleDigest) {
		return "", fmt.Errorf("version %s has no bundle digest", v.ID)
	}
	return policy, nil
}

// Manifest reads the manifest that the version was submitted with.
func Manifest(v models.Version) (project.Manifest, error) {
	var manifest project.Manifest
	if v.Manifest == nil {
		return manifest, fmt.Errorf("version %s has no manifest", v.ID)
	}
	err := json.Unmarshal([]byte(*v.Manifest), &manifest)
	if err != nil {
		return manifest, fmt.Errorf("manifest of version %s: %w", v.ID, err)
	}
	return manifest, nil
}

// Operations lists the ids of the version's operations, in the manifest's
// order.
func Operations(v models.Version) ([]string, error) {
	manifest, err := Manifest(v)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(manifest.Operations))
	for i, o := range manifest.Operations {
		ids[i] = o.ID
	}
	return ids, nil
}
