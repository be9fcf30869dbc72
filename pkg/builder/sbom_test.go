package builder

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
)

// document is an SBOM as those who read JSON see it.
type document struct {
	Schema       string `json:"$schema"`
	BOMFormat    string
	SpecVersion  string
	Version      int
	Metadata     struct{ Component component }
	Components   []component
	Dependencies []relation
}

type relation struct {
	Ref       string
	DependsOn []string
}

type component struct {
	BOMRef   string `json:"bom-ref"`
	Type     string
	Name     string
	Version  string
	PURL     string
	Hashes   []struct{ Alg, Content string }
	Licenses []struct {
		License    *struct{ ID, Name string }
		Expression string
	}
}

func readSBOM(t *testing.T, text []byte) document {
	t.Helper()
	var d document
	err := json.Unmarshal(text, &d)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d document) find(t *testing.T, ref string) (component, []string) {
	t.Helper()
	at := slices.IndexFunc(d.Components, func(c component) bool { return c.BOMRef == ref })
	if at < 0 {
		t.Fatalf("there is no component %s", ref)
	}
	for _, r := range d.Dependencies {
		if r.Ref == ref {
			return d.Components[at], r.DependsOn
		}
	}
	return d.Components[at], nil
}

// purl is what the Package URL specification makes of an npm package.
var purl = regexp.MustCompile(`^pkg:npm/(%40[A-Za-z0-9._~-]+/)?[A-Za-z0-9._~-]+@[0-9A-Za-z.-]+$`)

// valid checks what the CycloneDX 1.6 specification demands of the parts that
// are used here: the required fields, unique references, no reference to
// nothing, hashes of the right length, a licence either by id, by name or as the
// only expression.
func (d document) valid(t *testing.T) {
	t.Helper()
	if d.BOMFormat != "CycloneDX" || d.SpecVersion != "1.6" || d.Version < 1 || d.Schema != "http://cyclonedx.org/schema/bom-1.6.schema.json" {
		t.Errorf("head %+v", d)
	}
	refs := map[string]bool{}
	for _, c := range append([]component{d.Metadata.Component}, d.Components...) {
		if c.BOMRef == "" || refs[c.BOMRef] || c.Name == "" || !slices.Contains([]string{"application", "framework", "library"}, c.Type) {
			t.Errorf("component %+v", c)
		}
		refs[c.BOMRef] = true
		if c.PURL != "" && !purl.MatchString(c.PURL) {
			t.Errorf("purl %s", c.PURL)
		}
		for _, h := range c.Hashes {
			raw, err := hex.DecodeString(h.Content)
			if length := map[string]int{"SHA-256": 32, "SHA-512": 64}[h.Alg]; err != nil || len(raw) != length {
				t.Errorf("%s: hash %+v", c.Name, h)
			}
		}
		for _, l := range c.Licenses {
			if (l.License == nil) == (l.Expression == "") || l.Expression != "" && len(c.Licenses) > 1 ||
				l.License != nil && (l.License.ID == "") == (l.License.Name == "") {
				t.Errorf("%s: licence %+v", c.Name, l)
			}
		}
	}
	seen := map[string]bool{}
	for _, r := range d.Dependencies {
		if !refs[r.Ref] || seen[r.Ref] {
			t.Errorf("dependencies of %s", r.Ref)
		}
		seen[r.Ref] = true
		on := map[string]bool{}
		for _, ref := range r.DependsOn {
			if !refs[ref] || on[ref] {
				t.Errorf("%s depends on %s", r.Ref, ref)
			}
			on[ref] = true
		}
	}
}

// Every installed package is in the SBOM, with where it is from, what it is and
// what it uses.
func TestSBOMOfPackages(t *testing.T) {
	t.Parallel()
	make := func(name, version, manifest string) npmtest.Package {
		return npmtest.Make(name, version, map[string]string{"package.json": manifest, "index.js": "export default 1"})
	}
	a := make("@scope/a", "1.0.0", `{"license":"MIT"}`)
	b, old := make("b", "2.0.0-rc.1", `{"license":"(MIT OR Apache-2.0)"}`), make("b", "1.0.0", `{"license":"SEE LICENSE IN LICENSE"}`)
	c := make("real", "3.0.0", `{"licenses":[{"type":"BSD-3-Clause"},{"type":"Homemade"}]}`)
	none := make("none", "1.0.0", `{}`)
	registry, files := using(t, "import a from '@scope/a';\nexport default { a: () => a };")
	registry.Add(a, b, old, c, none)
	files["package.json"] = `{"dependencies":{"@scope/a":"1","b":"2","alias":"npm:real@3"}}`
	files["package-lock.json"] = npmtest.Lock(map[string]npmtest.Fields{
		"":                                     {"dependencies": npmtest.Fields{"@scope/a": "1", "b": "2", "alias": "npm:real@3"}},
		"node_modules/@scope/a":                npmtest.Installed(a, npmtest.Fields{"dependencies": npmtest.Fields{"b": "1", "none": "1"}}),
		"node_modules/@scope/a/node_modules/b": npmtest.Installed(old, npmtest.Fields{"peerDependencies": npmtest.Fields{"@scope/a": "*", "absent": "*"}}),
		"node_modules/b":                       npmtest.Installed(b, nil),
		"node_modules/alias":                   npmtest.Installed(c, npmtest.Fields{"name": "real"}),
		"node_modules/none":                    npmtest.Installed(none, nil),
	})
	builder := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL}))
	out, err := builder.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
	if err != nil {
		t.Fatal(err)
	}
	d := readSBOM(t, out.SBOM)
	d.valid(t)
	validSchema(t, out.SBOM)
	for _, want := range []struct {
		path, purl, licence string
		uses                []string
		made                npmtest.Package
	}{
		{"node_modules/@scope/a", "pkg:npm/%40scope/a@1.0.0", "id MIT", []string{"npm:node_modules/@scope/a/node_modules/b", "npm:node_modules/none"}, a},
		{"node_modules/@scope/a/node_modules/b", "pkg:npm/b@1.0.0", "name SEE LICENSE IN LICENSE", []string{"npm:node_modules/@scope/a"}, old},
		{"node_modules/b", "pkg:npm/b@2.0.0-rc.1", "expression (MIT OR Apache-2.0)", nil, b},
		{"node_modules/alias", "pkg:npm/real@3.0.0", "id BSD-3-Clause name Homemade", nil, c},
		{"node_modules/none", "pkg:npm/none@1.0.0", "", nil, none},
	} {
		got, uses := d.find(t, "npm:"+want.path)
		var licence []string
		for _, l := range got.Licenses {
			switch {
			case l.Expression != "":
				licence = append(licence, "expression "+l.Expression)
			case l.License.ID != "":
				licence = append(licence, "id "+l.License.ID)
			default:
				licence = append(licence, "name "+l.License.Name)
			}
		}
		if got.PURL != want.purl || got.Name != want.made.Name || got.Version != want.made.Version || strings.Join(licence, " ") != want.licence ||
			!slices.Equal(uses, want.uses) || integrityOf(t, got) != want.made.Integrity() {
			t.Errorf("got %+v using %q, want %+v", got, uses, want)
		}
	}
	at := slices.IndexFunc(d.Dependencies, func(r relation) bool { return r.Ref == d.Metadata.Component.BOMRef })
	if got := d.Dependencies[at].DependsOn; !slices.Equal(got, []string{"edge-worker-runtime", "npm:node_modules/@scope/a", "npm:node_modules/alias", "npm:node_modules/b"}) {
		t.Errorf("the project uses %q", got)
	}
	var receipt struct{ SBOM struct{ Components int } }
	if err := json.Unmarshal(out.Receipt, &receipt); err != nil || receipt.SBOM.Components != len(d.Components) || len(d.Components) != 7 {
		t.Errorf("%d components, the receipt says %d: %v", len(d.Components), receipt.SBOM.Components, err)
	}
	if _, err := readStrictly(out.SBOM); err != nil {
		t.Error(err)
	}
}

// integrityOf is the SHA-512 of a component as lock files spell it.
func integrityOf(t *testing.T, c component) string {
	t.Helper()
	if len(c.Hashes) != 1 || c.Hashes[0].Alg != "SHA-512" {
		t.Fatalf("hashes %+v", c.Hashes)
	}
	raw, err := hex.DecodeString(c.Hashes[0].Content)
	if err != nil || len(raw) != len(npm.Integrity{}) {
		t.Fatalf("hash %s: %v", c.Hashes[0].Content, err)
	}
	return npm.Integrity(raw).String()
}

// readStrictly reads an SBOM with the library that wrote it.
func readStrictly(text []byte) (*cdx.BOM, error) {
	bom := &cdx.BOM{}
	err := cdx.NewBOMDecoder(strings.NewReader(string(text)), cdx.BOMFileFormatJSON).Decode(bom)
	if err == nil && bom.SpecVersion != cdx.SpecVersion1_6 {
		err = fmt.Errorf("version %v", bom.SpecVersion)
	}
	return bom, err
}

// checkRealSBOM checks the SBOM of the real packages.
func checkRealSBOM(t *testing.T, sbom []byte) {
	t.Helper()
	d := readSBOM(t, sbom)
	d.valid(t)
	validSchema(t, sbom)
	for _, c := range d.Components {
		if c.Type == "library" && len(c.Licenses) == 0 {
			t.Errorf("%s has no licence", c.PURL)
		}
	}
	hono, _ := d.find(t, "npm:node_modules/hono")
	if hono.Licenses[0].License.ID != "MIT" || hono.Version != "4.13.19" {
		t.Errorf("hono %+v", hono)
	}
}

func TestLicenceChoices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"MIT": "id", "Apache-2.0": "id", "mit": "name", "UNLICENSED": "name", "MIT OR ISC": "expression", "(MIT AND (ISC OR 0BSD))": "expression",
		"MIT OR": "name", "MIT ISC": "name", "OR": "name", "MIT OR Homemade": "name", "MIT WITH x": "name",
	} {
		got := (*licences([]string{text}))[0]
		kind := "expression"
		if got.License != nil {
			kind = map[bool]string{true: "id", false: "name"}[got.License.ID != ""]
		}
		if kind != want {
			t.Errorf("%q is given as %s", text, kind)
		}
	}
	if licences(nil) != nil {
		t.Error("no licence is given as one")
	}
}
