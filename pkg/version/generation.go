package version

import (
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
)

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
