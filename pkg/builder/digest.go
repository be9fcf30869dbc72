package builder

import (
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The domains of the digests that are identities. Project, bundle and SBOM are
// stored objects: theirs are plain SHA-256, so that a store or a person can
// check them without knowing us.
const (
	generationDomain = "teamsync-edge-worker-generation"
	manifestDomain   = "teamsync-edge-worker-manifest"
	lockDomain       = "teamsync-edge-worker-lock"
	dependencyDomain = "teamsync-edge-worker-dependencies"
	staticDataDomain = "teamsync-edge-worker-static-data"
	runtimeDomain    = "teamsync-edge-worker-runtime"
)

// Digests are the seven digests of a version, each 64 lower-case hex digits
// (S2-137, S1-085).
type Digests struct {
	Project    string // the exact archive
	Bundle     string // index.mjs
	Manifest   string // canonical worker.json, see ManifestDigest
	Lock       string // package-lock.json; of nothing when there is none
	Dependency string // the resolved packages
	SBOM       string // the SBOM document
	StaticData string // every file below static/, by path and content
}

// all returns the digests with the names that the receipt gives them.
func (d Digests) all() map[string]string {
	return map[string]string{
		"projectDigest":    d.Project,
		"bundleDigest":     d.Bundle,
		"manifestDigest":   d.Manifest,
		"lockDigest":       d.Lock,
		"dependencyDigest": d.Dependency,
		"sbomDigest":       d.SBOM,
		"staticDataDigest": d.StaticData,
	}
}

// Validate fails unless each of the seven has the form of a hex SHA-256.
func (d Digests) Validate() error {
	for name, value := range d.all() {
		if !canonical.IsSHA256(value) {
			return fmt.Errorf("%s is not 64 lower-case hex digits", name)
		}
	}
	return nil
}

// GenerationInput is what a release generation is made of. The bundle's digest
// is not part of it, because the bundle carries the generation (D8).
type GenerationInput struct {
	BuilderPolicy     Policy
	CompatibilityDate string
	ProjectDigest     string
	ManifestDigest    string
	LockDigest        string
	DependencyDigest  string
	StaticDataDigest  string
	RuntimeDigest     string
}

// Generation computes the release generation: the hex SHA-256 of
// "teamsync-edge-worker-generation", one NUL byte and the canonical JSON of the
// input. It fails for an unknown policy, an empty date or a malformed digest
// (S2-140, S1-088).
func Generation(in GenerationInput) (string, error) {
	if !in.BuilderPolicy.Known() {
		return "", fmt.Errorf("release generation: unknown builder policy %q", in.BuilderPolicy)
	}
	if in.CompatibilityDate == "" {
		return "", errors.New("release generation: no compatibility date")
	}
	fields := map[string]string{
		"projectDigest":    in.ProjectDigest,
		"manifestDigest":   in.ManifestDigest,
		"lockDigest":       in.LockDigest,
		"dependencyDigest": in.DependencyDigest,
		"staticDataDigest": in.StaticDataDigest,
		"runtimeDigest":    in.RuntimeDigest,
	}
	for name, value := range fields {
		if !canonical.IsSHA256(value) {
			return "", fmt.Errorf("release generation: %s is not 64 lower-case hex digits", name)
		}
	}
	fields["builderPolicy"] = string(in.BuilderPolicy)
	fields["compatibilityDate"] = in.CompatibilityDate
	return canonical.JSONDigest(generationDomain, fields)
}

// ManifestDigest returns the domain-separated digest of a manifest. The text
// may be any spelling of the same JSON: it is brought to canonical form first.
func ManifestDigest(manifestJSON []byte) (string, error) {
	text, err := canonical.Transform(manifestJSON)
	if err != nil {
		return "", fmt.Errorf("manifest digest: %w", err)
	}
	return canonical.Digest(manifestDomain, text), nil
}
