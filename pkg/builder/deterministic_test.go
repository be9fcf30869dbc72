package builder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

// orders is the example project.
func orders(t testing.TB) *project.Project {
	t.Helper()
	return packed(t, "../../examples/orders")
}

// packed is the project in a folder.
func packed(t testing.TB, folder string) *project.Project {
	t.Helper()
	archive, err := project.Pack(folder)
	if err != nil {
		t.Fatal(err)
	}
	p, err := project.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEqualInputGivesEqualBytes(t *testing.T) {
	t.Parallel()
	p := orders(t)
	b := newBuilder(t)
	outs := make([]*Output, 4)
	var group sync.WaitGroup
	for i := range outs {
		group.Go(func() {
			out, err := b.Build(t.Context(), Input{Project: p, ScriptName: scriptName})
			if err != nil {
				t.Error(err)
				return
			}
			outs[i] = out
		})
	}
	group.Wait()
	for _, out := range outs[1:] {
		if out == nil || !bytes.Equal(out.Bundle, outs[0].Bundle) || !bytes.Equal(out.SBOM, outs[0].SBOM) || !bytes.Equal(out.Receipt, outs[0].Receipt) {
			t.Fatal("equal input gave different bytes")
		}
	}
}

// The order of an archive's entries is part of the archive and its digest, and
// of nothing else.
func TestArchiveOrder(t *testing.T) {
	t.Parallel()
	files := sourcesOf(map[string]string{"static/a.txt": "a", "static/b.txt": "b", "src/c.ts": "export {};"})
	a := mustBuild(t, projectOf(t, files, "worker.json", "src/index.ts", "src/c.ts", "static/a.txt", "static/b.txt"))
	b := mustBuild(t, projectOf(t, files, "static/b.txt", "static/a.txt", "src/c.ts", "src/index.ts", "worker.json"))
	if a.Digests.Project == b.Digests.Project || a.ReleaseGeneration == b.ReleaseGeneration {
		t.Error("two archives have one digest")
	}
	if a.Digests.StaticData != b.Digests.StaticData || a.Digests.Manifest != b.Digests.Manifest {
		t.Error("the order of the entries changed a digest of the content")
	}
	replaced := bytes.ReplaceAll(b.Bundle, []byte(b.ReleaseGeneration), []byte(a.ReleaseGeneration))
	if !bytes.Equal(replaced, a.Bundle) {
		t.Error("the order of the entries changed the bundle")
	}
}

func TestScriptNameIsOnlyInTheBundle(t *testing.T) {
	t.Parallel()
	p := projectOf(t, sourcesOf(nil))
	a := mustBuild(t, p)
	b, err := newBuilder(t).Build(t.Context(), Input{Project: p, ScriptName: strings.Replace(scriptName, "0", "1", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if a.Digests.Bundle == b.Digests.Bundle || a.ReleaseGeneration != b.ReleaseGeneration {
		t.Error("the script name is not where it belongs")
	}
}

func TestSBOM(t *testing.T) {
	t.Parallel()
	p := projectOf(t, sourcesOf(nil))
	out := mustBuild(t, p)
	var bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Metadata                             struct {
			Timestamp string
			Component struct{ Name, Type, Version string }
		}
		Components []struct {
			Name, Version, PURL string
			Licenses            []struct{ License struct{ ID string } }
			Hashes              []struct{ Alg, Content string }
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	err := json.Unmarshal(out.SBOM, &bom)
	if err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.6" || bom.SerialNumber != "" || bom.Metadata.Timestamp != "" {
		t.Errorf("head %s %s %q %q", bom.BOMFormat, bom.SpecVersion, bom.SerialNumber, bom.Metadata.Timestamp)
	}
	if c := bom.Metadata.Component; c.Name != "n" || c.Type != "application" || c.Version != p.Digest {
		t.Errorf("project %+v", c)
	}
	if len(bom.Components) != 2 || len(bom.Dependencies) != 2 {
		t.Fatalf("%d components, %d dependencies", len(bom.Components), len(bom.Dependencies))
	}
	own, library := bom.Components[0], bom.Components[1]
	if own.Version != out.RuntimeDigest || own.Licenses[0].License.ID != "Apache-2.0" || own.Hashes[0].Content != canonical.SHA256([]byte(runtime.Module())) {
		t.Errorf("runtime %+v", own)
	}
	if library.PURL != "pkg:npm/%40cfworker/json-schema@"+library.Version || library.Licenses[0].License.ID != "MIT" {
		t.Errorf("library %+v", library)
	}
	var receipt struct {
		SBOM       map[string]any
		StaticData map[string]any
	}
	err = json.Unmarshal(out.Receipt, &receipt)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(receipt.SBOM); got != fmt.Sprintf("map[bytes:%d components:2 format:CycloneDX specVersion:1.6]", len(out.SBOM)) {
		t.Errorf("sbom in the receipt: %s", got)
	}
	if got := fmt.Sprint(receipt.StaticData); got != "map[bytes:0 files:0]" {
		t.Errorf("static data in the receipt: %s", got)
	}
}

// Nothing but the two contract exports leaves a bundle, and the runtime comes
// first: it is evaluated before any module of the author.
func TestBundleForm(t *testing.T) {
	t.Parallel()
	bundle := string(mustBuild(t, orders(t)).Bundle)
	end := bundle[strings.LastIndex(bundle, "export {"):]
	if strings.Join(strings.Fields(end[:strings.Index(end, "}")+1]), " ") != "export { TeamSyncDepartmentStorage, index_default as default }" {
		t.Errorf("exports: %s", end)
	}
	if strings.Count(bundle, "\nexport ") != 1 {
		t.Error("there is more than one export statement")
	}
	lockdown, author := strings.Index(bundle, "\nlockdown();"), strings.Index(bundle, "// project:src/")
	if lockdown < 0 || author < lockdown {
		t.Errorf("the runtime ends at %d, the author begins at %d", lockdown, author)
	}
	for line := range strings.Lines(bundle) {
		if strings.HasPrefix(line, "import ") && !strings.Contains(line, `from "cloudflare:workers"`) {
			t.Errorf("import: %s", line)
		}
	}
	if !strings.Contains(bundle, "MIT License") {
		t.Error("the licence of the library is not in the bundle")
	}
}

func BenchmarkBuild(b *testing.B) {
	p := orders(b)
	builder := newBuilder(b)
	for b.Loop() {
		_, err := builder.Build(b.Context(), Input{Project: p, ScriptName: scriptName})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBundler is the bundler alone on the same files, to compare with.
func BenchmarkBundler(b *testing.B) {
	p := orders(b)
	files := &sources{project: p, entry: fmt.Sprintf(entryTemplate, `"./src/index.ts"`, `"{}"`)}
	for b.Loop() {
		result := api.Build(api.BuildOptions{
			AbsWorkingDir: "/project", EntryPoints: []string{"index.mjs"}, Bundle: true, Format: api.FormatESModule,
			TsconfigRaw: "{}", LogLevel: api.LogLevelSilent, Plugins: []api.Plugin{files.plugin()},
		})
		if len(result.Errors) > 0 {
			b.Fatal(result.Errors)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	archive := orders(b).Archive
	for b.Loop() {
		_, err := project.Read(bytes.NewReader(archive))
		if err != nil {
			b.Fatal(err)
		}
	}
}
