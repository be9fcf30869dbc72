package builder

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/project"
)

// packagesOf makes packages of the registry for real ones.
func packagesOf(t testing.TB, p npm.Params) *npm.Packages {
	t.Helper()
	packages, err := npm.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func builderWith(t testing.TB, packages *npm.Packages) *Builder {
	t.Helper()
	// The race detector on a busy machine takes many times as long.
	b, err := New(Params{PublicKeys: []ed25519.PublicKey{publicKeyOf("c")}, Packages: packages, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// realProject uses published packages with many transitive ones.
func realProject(t testing.TB) *project.Project {
	t.Helper()
	return packed(t, "testdata/real")
}

// Real packages build to the same bytes with a cold cache, a warm memory, a warm
// folder, and a folder of another machine (D8).
func TestRealPackagesBuildReproducibly(t *testing.T) {
	t.Parallel()
	p := realProject(t)
	registry := npmtest.Real(t)
	one, two := t.TempDir(), t.TempDir()
	here := builderWith(t, packagesOf(t, npm.Params{Registry: registry, CacheDir: one}))
	builders := []*Builder{
		here, // cold
		here, // warm in memory
		builderWith(t, packagesOf(t, npm.Params{Registry: registry, CacheDir: one})), // warm on disk
		builderWith(t, packagesOf(t, npm.Params{Registry: registry, CacheDir: two})), // another machine
	}
	var first *Output
	for i, b := range builders {
		var counts []int
		out, err := b.Build(t.Context(), Input{Project: p, ScriptName: scriptName, Progress: func(done, total int) {
			counts = append(counts, done)
			if done > total || total < 20 {
				t.Errorf("progress %d of %d", done, total)
			}
		}})
		if err != nil {
			t.Fatalf("build %d: %v", i, err)
		}
		if !slices.IsSorted(counts) || len(counts) < 20 {
			t.Errorf("progress %v", counts)
		}
		if first == nil {
			first = out
			checkRealSBOM(t, out.SBOM)
			t.Logf("%d packages, bundle of %d bytes, SBOM of %d bytes", len(counts), len(out.Bundle), len(out.SBOM))
		}
		if out.Digests != first.Digests || out.ReleaseGeneration != first.ReleaseGeneration || !bytes.Equal(out.Bundle, first.Bundle) {
			t.Errorf("build %d differs: %+v, first %+v", i, out.Digests, first.Digests)
		}
	}
}
