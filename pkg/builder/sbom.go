package builder

import (
	"bytes"
	"fmt"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

const (
	sbomFormat  = "CycloneDX"
	sbomVersion = "1.6"
)

// sbom writes the CycloneDX document: the project, the runtime and what the
// runtime contains. It has no time and no serial number, so that equal input
// gives equal bytes. It returns the number of components, too.
func sbom(p *project.Project, policy Policy, runtimeDigest string) ([]byte, int, error) {
	libraries, err := runtime.Libraries()
	if err != nil {
		return nil, 0, fmt.Errorf("list the runtime's libraries: %w", err)
	}
	const runtimeRef = "edge-worker-runtime"
	projectRef := "project:" + p.Digest
	components := []cdx.Component{{
		BOMRef:      runtimeRef,
		Type:        cdx.ComponentTypeFramework,
		Name:        "teamsync-edge-worker-runtime",
		Version:     runtimeDigest,
		Description: string(policy),
		Hashes:      hashes(cdx.HashAlgoSHA256, canonical.SHA256([]byte(runtime.Module()))),
		Licenses:    licences("Apache-2.0"),
	}}
	var refs []string
	for _, library := range libraries {
		components = append(components, cdx.Component{
			BOMRef:     library.PackageURL,
			Type:       cdx.ComponentTypeLibrary,
			Name:       library.Name,
			Version:    library.Version,
			PackageURL: library.PackageURL,
			Hashes:     hashes(cdx.HashAlgoSHA512, library.SHA512),
			Licenses:   licences(library.License),
		})
		refs = append(refs, library.PackageURL)
	}
	// A new document is of the newest version. It is set down to ours by hand:
	// the encoder's conversion copies the document by reflection, at a tenth of
	// a build's time, and nothing in it is newer.
	bom := cdx.NewBOM()
	bom.SpecVersion = cdx.SpecVersion1_6
	bom.JSONSchema = "http://cyclonedx.org/schema/bom-1.6.schema.json"
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef:  projectRef,
		Type:    cdx.ComponentTypeApplication,
		Name:    p.Manifest.Name,
		Version: p.Digest,
		Hashes:  hashes(cdx.HashAlgoSHA256, p.Digest),
	}}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{
		{Ref: projectRef, Dependencies: &[]string{runtimeRef}},
		{Ref: runtimeRef, Dependencies: &refs},
	}
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).Encode(bom)
	if err != nil {
		return nil, 0, fmt.Errorf("write the SBOM: %w", err)
	}
	return out.Bytes(), len(components), nil
}

func hashes(algorithm cdx.HashAlgorithm, value string) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: algorithm, Value: value}}
}

func licences(id string) *cdx.Licenses {
	return &cdx.Licenses{{License: &cdx.License{ID: id}}}
}
