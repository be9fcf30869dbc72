package builder

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// pkg makes a package of files that are given as name, text, …
func pkg(name string, files ...string) npmtest.Package {
	all := map[string]string{}
	for i := 0; i < len(files); i += 2 {
		all[files[i]] = files[i+1]
	}
	return npmtest.Make(name, "1.0.0", all)
}

// using is a project with an entry that depends on packages, and a registry that
// has them.
func using(t testing.TB, entry string, packages ...npmtest.Package) (*npmtest.Registry, map[string]string) {
	t.Helper()
	registry := npmtest.New(t)
	registry.Add(packages...)
	files := sourcesOf(map[string]string{"src/index.ts": entry})
	maps.Copy(files, npmtest.Project(packages...))
	return registry, files
}

// buildUsing builds such a project.
func buildUsing(t testing.TB, entry string, packages ...npmtest.Package) (*Output, error) {
	t.Helper()
	registry, files := using(t, entry, packages...)
	b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL}))
	return b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
}

const uses = "import x from \"x\";\nexport default { a: () => x };\n"

// What a package asks for and may not have, each with the package, the import
// and the place.
func TestPackagesRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		x    npmtest.Package
		want []string
	}{
		"good": {pkg("x", "index.js", "export default 1"), nil},
		"a Node module": {pkg("x", "index.js", "import fs from 'fs';\nexport default fs"), []string{
			`import_unresolved [node_modules/x/index.js 1 16]: x imports "fs": "fs" cannot be imported (not installed): Node modules are not available to a project`}},
		"a Node module by its scheme": {pkg("x", "index.js", "export * from 'node:crypto';\nexport default 1"), []string{
			`import_unresolved [node_modules/x/index.js 1 15]: x imports "node:crypto": "node:crypto" cannot be imported (not installed): Node modules are not available to a project`}},
		"a Node module by require": {pkg("x", "index.js", "module.exports = require('fs')"), []string{
			`import_unresolved [node_modules/x/index.js 1 26]: node_modules/x/index.js imports "fs", which is not installed and no module of the platform`}},
		"the platform": {pkg("x", "index.js", "import { env } from 'cloudflare:workers';\nexport default env"), []string{
			`import_unresolved [node_modules/x/index.js 1 21]: x imports "cloudflare:workers": "cloudflare:workers" cannot be imported: it is no package`}},
		"the platform by require in a try block": {pkg("x", "index.js", "try { module.exports = require('cloudflare:workers') } catch {}"), []string{
			`import_unresolved [node_modules/x/index.js 1 32]: x imports "cloudflare:workers": "cloudflare:workers" cannot be imported: it is no package`}},
		"the platform by import() with a handler": {pkg("x", "index.js", "export default import('cloudflare:workers').catch(() => 1)"), []string{
			`import_unresolved [node_modules/x/index.js 1 23]: x imports "cloudflare:workers": "cloudflare:workers" cannot be imported: it is no package`}},
		"a Node module by import() with a handler": {pkg("x", "index.js", "export default import('node:fs').catch(() => 1)"), []string{
			`import_unresolved [node_modules/x/index.js 1 23]: x imports "node:fs": "node:fs" cannot be imported (not installed): Node modules are not available to a project`}},
		"import() of something computed": {pkg("x", "index.js", "export default (n) => import('cloudflare:' + n)"), []string{
			`dynamic_code_unsupported [node_modules/x/index.js 1 23]: what is imported is computed: only imports of a text in quotes are supported`}},
		"the runtime": {pkg("x", "index.js", "import 'teamsync:runtime';\nexport default 1"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "teamsync:runtime": "teamsync:runtime" cannot be imported: it is no package`}},
		"a native addon": {pkg("x", "index.js", "module.exports = require('./build/x.node')", "build/x.node", "\x7fELF"), []string{
			`import_unresolved [node_modules/x/index.js 1 26]: x imports "./build/x.node": "build/x.node" of x@1.0.0 cannot be imported: only .js, .mjs, .cjs and .json files of packages can`}},
		"a style sheet": {pkg("x", "index.js", "import './x.css';\nexport default 1", "x.css", "a{}"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "./x.css": "x.css" of x@1.0.0 cannot be imported: only .js, .mjs, .cjs and .json files of packages can`}},
		"wasm": {pkg("x", "index.js", "import './x.wasm';\nexport default 1", "x.wasm", "\x00asm"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "./x.wasm": "x.wasm" of x@1.0.0 cannot be imported: only .js, .mjs, .cjs and .json files of packages can`}},
		"a package that is not installed": {pkg("x", "index.js", "import 'y';\nexport default 1"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "y": the package "y" is not installed: add it to package.json and run npm install`}},
		"the project's own file": {pkg("x", "index.js", "import '../../src/index.ts';\nexport default 1"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "../../src/index.ts": "../../src/index.ts" is outside x@1.0.0`}},
		"a file of the disk": {pkg("x", "index.js", "import '/etc/passwd';\nexport default 1"), []string{
			`import_unresolved [node_modules/x/index.js 1 8]: x imports "/etc/passwd": "/etc/passwd" cannot be imported: it is no package`}},
		"no entry": {pkg("x", "package.json", `{"main":"dist/x.js"}`), []string{
			`import_unresolved [src/index.ts 1 15]: the entry of x@1.0.0 is missing: it has no "dist/x.js"`}},
		"no such export": {pkg("x", "package.json", `{"exports":{"./y":"./y.js"}}`, "y.js", ""), []string{
			`import_unresolved [src/index.ts 1 15]: x@1.0.0 does not export "." for a Worker`}},
		"no default export": {pkg("x", "index.js", "export const y = 1"), []string{
			`source_invalid [src/index.ts 1 8]: No matching export in "node_modules/x/index.js" for import "default"`}},
		"no default export of a module by its type": {pkg("x", "package.json", `{"type":"module"}`, "index.js", "export const y = 1"), []string{
			`source_invalid [src/index.ts 1 8]: No matching export in "node_modules/x/index.js" for import "default"`}},
		"a syntax error": {pkg("x", "lib/index.js", "\n  let x = ;", "package.json", `{"main":"lib","type":"module"}`), []string{
			`source_invalid [node_modules/x/lib/index.js 2 11]: Unexpected ";"`}},
		"JSX": {pkg("x", "index.js", "export default <a/>"), []string{
			`source_invalid [node_modules/x/index.js 1 16]: The JSX syntax extension is not currently enabled`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := buildUsing(t, uses, c.x)
			if c.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			projecttest.Same(t, projecttest.Problems(t, err), c.want...)
		})
	}
}

// Author code may not use CommonJS, import() or eval because packages may.
func TestPackagesDoNotLoosenTheProject(t *testing.T) {
	t.Parallel()
	x := pkg("x", "index.js", "module.exports = 1")
	for entry, want := range map[string]string{
		"const x = require('x');\nexport default { x };":   "import_unresolved [src/index.ts 1 19]: only import statements are supported",
		"const x = import('x');\nexport default { x };":    "dynamic_code_unsupported [src/index.ts 1 18]: import() is not supported: use an import statement",
		"import x from 'x';\neval('1');\nexport default x": "dynamic_code_unsupported [src/index.ts 2 1]: Using direct eval with a bundler is not recommended and may cause problems",
		"import '../node_modules/x/index.js';":             `import_unresolved [src/index.ts 1 8]: the project has no file for "../node_modules/x/index.js"`,
		"import 'npm:x';":                                  `import_unresolved [src/index.ts 1 8]: "npm:x" cannot be imported: npm modules are not available to a project`,
	} {
		_, err := buildUsing(t, entry, x)
		projecttest.Same(t, projecttest.Problems(t, err), want)
	}
}

// bundleOf builds and gives the text behind the runtime.
func bundleOf(t *testing.T, entry string, packages ...npmtest.Package) string {
	t.Helper()
	out, err := buildUsing(t, entry, packages...)
	if err != nil {
		t.Fatal(projecttest.Problems(t, err))
	}
	return string(out.Bundle)
}

// What may go wrong only at run time, where the code expects it, is let through.
func TestPackagesThatTry(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a Node module in a try block":     "try { exports.fs = require('fs') } catch {}",
		"a package in a try block":         "let e; try { e = require('encoding') } catch {} module.exports = e",
		"require that is a parameter":      "module.exports = ((require) => require)((n) => n)",
		"a call of a parameter":            "(function (require) { module.exports = require('./' + 'later.js') })((n) => n)",
		"a check for require":              "module.exports = typeof require === 'function' && require",
		"words in a comment":               "// import(x) and require(y) of `x`\nmodule.exports = () => import('./later.js')",
		"require by another name":          "const r = require; module.exports = (n) => r(n)",
		"eval":                             "module.exports = (s) => eval(s)",
		"code made from text":              "module.exports = () => Function('return this')()",
		"import() of a file":               "module.exports = () => import('./later.js')",
		"the author's module":              "module.exports = require('@teamsync/edge-worker').OperationError",
		"a file that is no module":         "globalThis.x = 1",
		"data":                             "module.exports = require('./data')",
		"a script's first line and a mark": "#!/usr/bin/env node\nmodule.exports = 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bundle := bundleOf(t, uses, pkg("x", "index.js", text, "later.js", "export default 'later'", "data.json", `{"a":1}`))
			for line := range strings.Lines(bundle) {
				if strings.HasPrefix(line, "import ") && !strings.Contains(line, `from "cloudflare:workers"`) {
					t.Errorf("the bundle imports: %s", line)
				}
			}
		})
	}
}

func TestPackagesAreBundled(t *testing.T) {
	t.Parallel()
	has := func(bundle, text string, want bool) {
		t.Helper()
		if strings.Contains(bundle, text) != want {
			t.Errorf("%q is in the bundle: %v", text, !want)
		}
	}
	t.Run("production", func(t *testing.T) {
		bundle := bundleOf(t, uses, pkg("x", "index.js",
			"if (process.env.NODE_ENV !== 'production') module.exports = require('./dev'); else module.exports = require('./prod')",
			"dev.js", "module.exports = 'is-dev'", "prod.js", "module.exports = 'is-prod'"))
		has(bundle, "is-prod", true)
		has(bundle, "is-dev", false)
	})
	t.Run("side effects", func(t *testing.T) {
		files := []string{"index.js", "export { one } from './one.js'; export { two } from './two.js'", "one.js", "console.log('is-one'); export const one = 1", "two.js", "console.log('is-two'); export const two = 2"}
		entry := "import { one } from 'x';\nexport default { a: () => one };"
		bundle := bundleOf(t, entry, pkg("x", append(files, "package.json", `{"sideEffects":false}`)...))
		has(bundle, "is-one", true)
		has(bundle, "is-two", false)
		bundle = bundleOf(t, entry, pkg("x", append(files, "package.json", `{}`)...))
		has(bundle, "is-two", true)
		bundle = bundleOf(t, entry, pkg("x", append(files, "package.json", `{"sideEffects":["./two.js"]}`)...))
		has(bundle, "is-two", true)
	})
	t.Run("licences", func(t *testing.T) {
		bundle := bundleOf(t, uses, pkg("x", "index.js", "/*! Copyright X */\nexport default 1"))
		has(bundle, "Copyright X", true)
	})
	t.Run("a phantom", func(t *testing.T) {
		// y is not in package.json, but npm put it at the top: Node finds it there.
		x, y := pkg("x", "index.js", "export { default } from 'y'"), pkg("y", "index.js", "export default 'is-y'")
		registry, files := using(t, "import y from 'y';\nexport default { a: () => y };", x)
		registry.Add(y)
		files["package-lock.json"] = npmtest.Lock(map[string]npmtest.Fields{
			"": {"dependencies": npmtest.Fields{"x": "1.0.0"}}, "node_modules/y": npmtest.Installed(y, nil),
			"node_modules/x": npmtest.Installed(x, npmtest.Fields{"dependencies": npmtest.Fields{"y": "1"}}),
		})
		b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL}))
		out, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
		if err != nil {
			t.Fatal(err)
		}
		has(string(out.Bundle), "is-y", true)
	})
	t.Run("a peer that points back, and two versions", func(t *testing.T) {
		a := pkg("a", "index.js", "import { b } from 'b'; export const a = () => 'is-a' + b; export default a")
		old := pkg("b", "index.js", "import { a } from 'a'; export const b = 'is-old'; export const back = () => a()")
		young := npmtest.Make("b", "2.0.0", map[string]string{"index.js": "export default 'is-young'"})
		registry, files := using(t, "import a from 'a';\nimport b from 'b';\nexport default { a: () => [a(), b] };", a)
		registry.Add(old, young)
		files["package.json"] = `{"dependencies":{"a":"1","b":"2"}}`
		files["package-lock.json"] = npmtest.Lock(map[string]npmtest.Fields{
			"":                              {"dependencies": npmtest.Fields{"a": "1", "b": "2"}},
			"node_modules/a":                npmtest.Installed(a, npmtest.Fields{"dependencies": npmtest.Fields{"b": "1"}}),
			"node_modules/a/node_modules/b": npmtest.Installed(old, npmtest.Fields{"peerDependencies": npmtest.Fields{"a": "1"}}),
			"node_modules/b":                npmtest.Installed(young, nil),
		})
		b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL}))
		out, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
		if err != nil {
			t.Fatal(err)
		}
		has(string(out.Bundle), "is-old", true)
		has(string(out.Bundle), "is-young", true)
	})
}

// Hostile inputs: each ends in a refusal that names the package, and the cache
// keeps nothing of it.
func TestHostilePackages(t *testing.T) {
	t.Parallel()
	good := pkg("x", "index.js", "export default 1")
	entry := func(changes npmtest.Fields) func(*npmtest.Registry, map[string]string) {
		return func(_ *npmtest.Registry, files map[string]string) {
			files["package-lock.json"] = npmtest.Lock(map[string]npmtest.Fields{
				"": {"dependencies": npmtest.Fields{"x": "1.0.0"}}, "node_modules/x": npmtest.Installed(good, changes),
			})
		}
	}
	serve := func(p npmtest.Package) func(*npmtest.Registry, map[string]string) {
		return func(r *npmtest.Registry, files map[string]string) {
			r.Add(p)
			maps.Copy(files, npmtest.Project(p))
		}
	}
	raw := func(entries ...npmtest.Entry) npmtest.Package {
		return npmtest.Package{Name: "x", Version: "1.0.0", Tarball: npmtest.Pack(entries...)}
	}
	var bomb []npmtest.Entry
	for i := range 66 {
		bomb = append(bomb, npmtest.Entry{Name: fmt.Sprintf("package/%d.txt", i), Body: strings.Repeat("\x00", 1<<20)})
	}
	for name, c := range map[string]struct {
		change func(*npmtest.Registry, map[string]string)
		want   string
	}{
		"no integrity":        {entry(npmtest.Fields{"integrity": nil}), "dependency_integrity_invalid [package-lock.json packages node_modules/x]: x@1.0.0: it has no integrity"},
		"only a sha1":         {entry(npmtest.Fields{"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="}), "dependency_integrity_invalid [package-lock.json packages node_modules/x]: x@1.0.0: its integrity is not a sha512"},
		"a wrong integrity":   {entry(npmtest.Fields{"integrity": pkg("y").Integrity()}), "dependency_integrity_mismatch [package-lock.json packages node_modules/x]: x@1.0.0 has other bytes"},
		"itself":              {entry(npmtest.Fields{"dependencies": npmtest.Fields{"x": "1"}}), "dependency_cyclic [package-lock.json packages node_modules/x]: x@1.0.0 requires itself: x@1.0.0 → x@1.0.0"},
		"resolved elsewhere":  {entry(npmtest.Fields{"resolved": "https://evil.example/x/-/x-1.0.0.tgz"}), `dependency_unsupported [package-lock.json packages node_modules/x]: x@1.0.0 comes from "https://evil.example`},
		"a bomb":              {serve(raw(bomb...)), "dependency_too_large [package-lock.json packages node_modules/x]: x@1.0.0 has more than 64 MiB"},
		"path traversal":      {serve(raw(npmtest.Entry{Name: "package/package.json", Body: "{}"}, npmtest.Entry{Name: "package/../../../etc/cron.d/x", Body: "x"})), `dependency_invalid [package-lock.json packages node_modules/x]: x@1.0.0 is not a package: its file "package/../../../etc/cron.d/x" is outside`},
		"no package.json":     {serve(raw(npmtest.Entry{Name: "package/index.js", Body: "x"})), "dependency_invalid [package-lock.json packages node_modules/x]: x@1.0.0 is not a package: it has no package.json"},
		"not in the registry": {func(r *npmtest.Registry, _ map[string]string) { r.Fail(good, npmtest.Missing) }, "dependency_not_found [package-lock.json packages node_modules/x]: the npm registry does not have x@1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, files := using(t, uses, good)
			c.change(registry, files)
			dir := t.TempDir()
			b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL, CacheDir: dir}))
			_, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
			got := projecttest.Problems(t, err)
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if entries := npmtest.Cached(t, dir); len(entries) > 0 {
				t.Errorf("kept %q", entries)
			}
			registry.Add(good)
			registry.Fail(good)
			maps.Copy(files, npmtest.Project(good)) // the positive control
			_, err = b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
			if err != nil || len(npmtest.Cached(t, dir)) != 1 {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// A faulty lock file and faulty sources are told in one answer, without the
// noise of imports that only the lock file makes wrong.
func TestLockAndSourceProblemsTogether(t *testing.T) {
	t.Parallel()
	_, files := using(t, "import x from 'x';\nimport './gone';\nexport default { a: () => x };", pkg("x"))
	files["package.json"] = `{"dependencies":{"x":"2.0.0"}}`
	projecttest.Same(t, problemsOf(t, files),
		`lock_out_of_date [package.json dependencies x]: the lock file is out of date: package.json asks for "x@2.0.0", the lock file records "x@1.0.0"; run npm install`,
		`import_unresolved [src/index.ts 2 8]: the project has no file for "./gone"`)
}

// A registry that is away is told as such, and as no fault of the project.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	_, files := using(t, uses, pkg("x"))
	b := builderWith(t, packagesOf(t, npm.Params{Registry: "http://127.0.0.1:1", Retry: 1}))
	_, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
	refused := fault.As(err)
	if refused.Kind != fault.Unavailable || refused.Code != "npm_registry_unavailable" || refused.Message != "The npm registry did not deliver x@1.0.0; try again" {
		t.Error(err)
	}
}

// The dependency digest is over what is installed and where, and not over the
// spelling of the lock file or what is there for development.
func TestDependencyDigest(t *testing.T) {
	t.Parallel()
	x := pkg("x", "index.js", "export default 1")
	registry, files := using(t, uses, x)
	b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL}))
	digests := func(locked map[string]npmtest.Fields) Digests {
		t.Helper()
		if locked != nil {
			locked[""] = npmtest.Fields{"dependencies": npmtest.Fields{"x": "1.0.0"}}
			files["package-lock.json"] = npmtest.Lock(locked)
		}
		out, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
		if err != nil {
			t.Fatal(err)
		}
		return out.Digests
	}
	first := digests(nil)
	dev := digests(map[string]npmtest.Fields{"node_modules/x": npmtest.Installed(x, npmtest.Fields{"license": "MIT"}), "node_modules/typescript": {"dev": true}})
	if dev.Dependency != first.Dependency || dev.Lock == first.Lock {
		t.Error("a development package is in the dependency digest, or the lock digest does not see it")
	}
	twice := digests(map[string]npmtest.Fields{"node_modules/x": npmtest.Installed(x, nil), "node_modules/y": npmtest.Installed(x, npmtest.Fields{"name": "x"})})
	if twice.Dependency == first.Dependency {
		t.Error("an alias is not in the dependency digest")
	}
}

// A fixed vector, computed with another implementation of SHA-256 over the
// written-out canonical JSON. It must never change: stored versions carry it.
func TestDependencyDigestVector(t *testing.T) {
	t.Parallel()
	tree := npm.NoPackages()
	tree.Lock.Packages = []npm.Entry{
		{Path: "node_modules/@s/a", Name: "@s/a", Version: "1.0.0"},
		{Path: "node_modules/b", Name: "real", Version: "2.0.0-rc.1"},
	}
	got, err := dependencyDigest(tree)
	if err != nil || got != "4b04111ee6910734c35c7261e5ef3c85cb7c8ad4714f5fbb6bd64457b6f85d7e" {
		t.Errorf("got %s, %v", got, err)
	}
}

// Nothing of the project reaches the disk or asks for it: two builders with
// different registries and caches give equal bytes.
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	var all []npmtest.Package
	var entry strings.Builder
	for i := range 25 {
		name := fmt.Sprintf("p%d", i)
		all = append(all, pkg(name, "package.json", `{"type":"module","license":"MIT"}`, "index.js", fmt.Sprintf("export const %s = %q", name, name)))
		fmt.Fprintf(&entry, "import { %s } from %q;\n", name, name)
	}
	entry.WriteString("export default { a: () => [p0, p24] };")
	var outs []*Output
	for range 2 {
		registry, files := using(t, entry.String(), all...)
		b := builderWith(t, packagesOf(t, npm.Params{Registry: registry.URL, CacheDir: t.TempDir()}))
		for range 2 {
			out, err := b.Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
			if err != nil {
				t.Fatal(err)
			}
			outs = append(outs, out)
		}
		if registry.Requests() != len(all) {
			t.Errorf("%d requests", registry.Requests())
		}
	}
	for _, out := range outs[1:] {
		if out.Digests != outs[0].Digests || !bytes.Equal(out.Bundle, outs[0].Bundle) || !bytes.Equal(out.SBOM, outs[0].SBOM) {
			t.Error("equal input gave different bytes")
		}
	}
	if n := strings.Count(string(outs[0].Bundle), "node_modules/p"); n < 2 || slices.ContainsFunc(outs, func(o *Output) bool { return o.Digests.Dependency == "" }) {
		t.Errorf("%d packages are in the bundle", n)
	}
}
