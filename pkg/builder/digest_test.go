package builder

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

func vector() GenerationInput {
	return GenerationInput{
		BuilderPolicy: V2_8, CompatibilityDate: "2026-11-01",
		ProjectDigest: strings.Repeat("1", 64), ManifestDigest: strings.Repeat("2", 64), LockDigest: strings.Repeat("3", 64),
		DependencyDigest: strings.Repeat("4", 64), StaticDataDigest: strings.Repeat("5", 64), RuntimeDigest: strings.Repeat("6", 64),
	}
}

// Fixed vectors, computed with another implementation of SHA-256 over the
// written-out canonical JSON. They must never change: stored versions carry
// these values (S2-140, S1-088).
func TestGenerationVectors(t *testing.T) {
	t.Parallel()
	old := vector()
	old.BuilderPolicy = V2_5
	for _, c := range []struct {
		in   GenerationInput
		want string
	}{
		{vector(), "42f65757905bb9e22c1496f9a02e71be7007faba35bd6ffc6606d10976112577"},
		{old, "54585ad1b0f7a1b7d972d911a25d5ffc544a4d9ba090b692a521f48f3388e838"},
	} {
		got, err := Generation(c.in)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v", c.in.BuilderPolicy, got, err)
		}
	}
}

func TestGenerationDependsOnEveryField(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	add := func(change func(*GenerationInput)) {
		in := vector()
		change(&in)
		got, err := Generation(in)
		if err != nil {
			t.Fatal(err)
		}
		seen[got] = true
	}
	other := strings.Repeat("a", 64)
	add(func(*GenerationInput) {})
	add(func(g *GenerationInput) { g.BuilderPolicy = V2_6 })
	add(func(g *GenerationInput) { g.CompatibilityDate = "2026-11-02" })
	add(func(g *GenerationInput) { g.ProjectDigest = other })
	add(func(g *GenerationInput) { g.ManifestDigest = other })
	add(func(g *GenerationInput) { g.LockDigest = other })
	add(func(g *GenerationInput) { g.DependencyDigest = other })
	add(func(g *GenerationInput) { g.StaticDataDigest = other })
	add(func(g *GenerationInput) { g.RuntimeDigest = other })
	if len(seen) != 9 {
		t.Errorf("%d generations for 9 inputs", len(seen))
	}
}

func TestGenerationRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*GenerationInput){
		"policy":     func(g *GenerationInput) { g.BuilderPolicy = "department-worker-project-v3" },
		"date":       func(g *GenerationInput) { g.CompatibilityDate = "" },
		"project":    func(g *GenerationInput) { g.ProjectDigest = "" },
		"manifest":   func(g *GenerationInput) { g.ManifestDigest = strings.Repeat("A", 64) },
		"lock":       func(g *GenerationInput) { g.LockDigest = strings.Repeat("1", 63) },
		"dependency": func(g *GenerationInput) { g.DependencyDigest = strings.Repeat("1", 65) },
		"static":     func(g *GenerationInput) { g.StaticDataDigest = strings.Repeat("1", 63) + "\n" },
		"runtime":    func(g *GenerationInput) { g.RuntimeDigest = "x" },
	} {
		in := vector()
		change(&in)
		_, err := Generation(in)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDigestVectors(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	for name, pair := range map[string][2]string{
		"lock of nothing": {out.Digests.Lock, "ceffab021d47316a581d1918bb13c084abcd889836219eee13499376d427e3fd"},
		"no packages":     {out.Digests.Dependency, "528cf4264401b627250f39cc45e0e42ed84fe81cce1cb7dbe221fedad812694b"},
		"no static data":  {out.Digests.StaticData, "21dbcd24a234d694e7d8e6f36a3010fa577d772cc41d324b855fc379fd81f3bb"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s", name, pair[0])
		}
	}
	more := mustBuild(t, projectOf(t, sourcesOf(map[string]string{
		"static/a.json": `{"x":1}`, "static/deep/ü.txt": "hi", "package-lock.json": "{\"lockfileVersion\":3}\n",
	})))
	if got := more.Digests.StaticData; got != "48e02520bdc00db019765ca06cbe63e963e43c180ae7dca9fc290a833947ea5f" {
		t.Errorf("static data: %s", got)
	}
	if got := more.Digests.Lock; got != "d9b06683d7040646190861b799271004c627417c9dd1c7ba1ee8b6690a5c3c09" {
		t.Errorf("lock: %s", got)
	}
}

// S2-135, S1-083: the manifest's digest is over its meaning, not its spelling.
func TestManifestDigest(t *testing.T) {
	t.Parallel()
	const want = "a44fd3c5ba6eb11488cc375373b495fbae641a66a3de4bf5d2305fe2ecd97f55"
	for _, text := range []string{`{"a":[true,null,"ü"],"b":1}`, "{ \"b\": 1.0,\n\"a\": [true, null, \"\\u00fc\"] }"} {
		got, err := ManifestDigest([]byte(text))
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	other, err := ManifestDigest([]byte(`{"a":[true,null,"u"],"b":1}`))
	if err != nil || other == want {
		t.Errorf("another manifest: %s, %v", other, err)
	}
	_, err = ManifestDigest([]byte(`{`))
	if err == nil {
		t.Error("no JSON is accepted")
	}
}

func TestOutputAgreesWithItself(t *testing.T) {
	t.Parallel()
	p := projectOf(t, sourcesOf(nil))
	out := mustBuild(t, p)
	manifest, err := ManifestDigest(out.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"project":  {out.Digests.Project, canonical.SHA256(p.Archive)},
		"bundle":   {out.Digests.Bundle, canonical.SHA256(out.Bundle)},
		"sbom":     {out.Digests.SBOM, canonical.SHA256(out.SBOM)},
		"manifest": {out.Digests.Manifest, manifest},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s digest %s, want %s", name, pair[0], pair[1])
		}
	}
	err = out.Digests.Validate()
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(out.Bundle), out.ReleaseGeneration) || !strings.Contains(string(out.Bundle), scriptName) {
		t.Error("the bundle does not carry its generation and name")
	}
	if out.Entry != "src/index.ts" || out.Language != "typescript" || out.CompatibilityDate != "2026-11-01" || out.BuilderPolicy != Current {
		t.Errorf("output %+v", out)
	}
}

func TestRuntimeDigestCoversTheKeys(t *testing.T) {
	t.Parallel()
	digest := func(keys ...ed25519.PublicKey) string {
		b, err := New(Params{PublicKeys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return b.RuntimeDigest()
	}
	c, n := publicKeyOf("c"), publicKeyOf("n")
	if digest(c) == digest(n) || digest(c) == digest(c, n) {
		t.Error("two sets of keys have one runtime digest")
	}
	if again := digest(c); again != digest(c) || !canonical.IsSHA256(again) {
		t.Error("the runtime digest is not stable")
	}
}

func TestPolicyOrder(t *testing.T) {
	t.Parallel()
	all := Policies()
	for i, p := range all {
		for j, floor := range all {
			if p.AtLeast(floor) != (i >= j) {
				t.Errorf("%s.AtLeast(%s) is %v", p, floor, p.AtLeast(floor))
			}
		}
	}
	for _, unknown := range []Policy{"", "department-worker-project-v2.9", "department-worker-project-v2.10"} {
		if unknown.AtLeast(V2_5) || unknown.Known() || V2_8.AtLeast(unknown) || unknown.AtLeast(unknown) {
			t.Errorf("the unknown policy %q unlocks something", unknown)
		}
	}
	if Current != "department-worker-project-v2.8" {
		t.Errorf("new builds use %s", Current)
	}
}
