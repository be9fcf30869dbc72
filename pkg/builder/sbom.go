package builder

import (
	"bytes"
	"fmt"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

const (
	sbomFormat  = "CycloneDX"
	sbomVersion = "1.6"
)

// inventory is what an SBOM lists.
type inventory struct {
	components   []cdx.Component
	dependencies []cdx.Dependency
}

// add takes a component and what it depends on; no dependency is an empty list,
// which means none, and not a missing one, which means unknown.
func (i *inventory) add(component cdx.Component, uses []string) {
	i.components = append(i.components, component)
	i.depends(component.BOMRef, uses)
}

func (i *inventory) depends(ref string, uses []string) {
	i.dependencies = append(i.dependencies, cdx.Dependency{Ref: ref, Dependencies: &uses})
}

// sbom writes the CycloneDX document: the project, its npm packages, the runtime
// and what the runtime contains. It has no time and no serial number, so that
// equal input gives equal bytes. It returns the number of components, too.
func sbom(p *project.Project, tree *npm.Tree, policy Policy, runtimeDigest string) ([]byte, int, error) {
	projectRef := "project:" + p.Digest
	all := &inventory{}
	all.depends(projectRef, append([]string{runtimeRef}, packageRefs(tree.Lock.Uses(""))...))
	err := all.addRuntime(policy, runtimeDigest)
	if err != nil {
		return nil, 0, err
	}
	all.addPackages(tree)
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
	bom.Components = &all.components
	bom.Dependencies = &all.dependencies
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).Encode(bom)
	if err != nil {
		return nil, 0, fmt.Errorf("write the SBOM: %w", err)
	}
	return out.Bytes(), len(all.components), nil
}

const runtimeRef = "edge-worker-runtime"

// addRuntime lists the runtime and the libraries inside it.
func (i *inventory) addRuntime(policy Policy, digest string) error {
	libraries, err := runtime.Libraries()
	if err != nil {
		return fmt.Errorf("list the runtime's libraries: %w", err)
	}
	var refs []string
	for _, library := range libraries {
		refs = append(refs, library.PackageURL)
	}
	i.add(cdx.Component{
		BOMRef:      runtimeRef,
		Type:        cdx.ComponentTypeFramework,
		Name:        "teamsync-edge-worker-runtime",
		Version:     digest,
		Description: string(policy),
		Hashes:      hashes(cdx.HashAlgoSHA256, canonical.SHA256([]byte(runtime.Module()))),
		Licenses:    licences([]string{"Apache-2.0"}),
	}, refs)
	for _, library := range libraries {
		i.components = append(i.components, cdx.Component{
			BOMRef:     library.PackageURL,
			Type:       cdx.ComponentTypeLibrary,
			Name:       library.Name,
			Version:    library.Version,
			PackageURL: library.PackageURL,
			Hashes:     hashes(cdx.HashAlgoSHA512, library.SHA512),
			Licenses:   licences([]string{library.License}),
		})
	}
	return nil
}

// addPackages lists every installed package, one component for each place: two
// copies of one package are two, because they may use others.
func (i *inventory) addPackages(tree *npm.Tree) {
	for _, entry := range tree.Lock.Packages {
		i.add(cdx.Component{
			BOMRef:     packageRef(entry.Path),
			Type:       cdx.ComponentTypeLibrary,
			Name:       entry.Name,
			Version:    entry.Version,
			PackageURL: entry.PackageURL(),
			Hashes:     hashes(cdx.HashAlgoSHA512, entry.Integrity.Hex()),
			Licenses:   licences(tree.Licences(entry.Path)),
		}, packageRefs(tree.Lock.Uses(entry.Path)))
	}
}

func packageRef(path string) string { return "npm:" + path }

func packageRefs(paths []string) []string {
	refs := make([]string, len(paths))
	for i, path := range paths {
		refs[i] = packageRef(path)
	}
	return slices.Clip(refs)
}

func hashes(algorithm cdx.HashAlgorithm, value string) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: algorithm, Value: value}}
}
