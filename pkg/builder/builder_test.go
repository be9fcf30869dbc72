package builder

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

const scriptName = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

func publicKeyOf(seed string) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(seed, ed25519.SeedSize))).Public().(ed25519.PublicKey)
}

func newBuilder(t testing.TB) *Builder {
	t.Helper()
	b, err := New(Params{PublicKeys: []ed25519.PublicKey{publicKeyOf("c"), publicKeyOf("n")}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const manifestText = `{"schema_version":1,"name":"n","language":"typescript","entry":"src/index.ts",` +
	`"compatibility_date":"2026-11-01","operations":[{"id":"a","method":"GET","path":"/"}]}`

const goodEntry = "import { defineWorker } from \"@teamsync/edge-worker\";\nexport default defineWorker({ a: () => 1 });\n"

// sourcesOf are the files of a project: the good ones with some replaced; an
// empty text drops a file.
func sourcesOf(changes map[string]string) map[string]string {
	files := map[string]string{"worker.json": manifestText, "src/index.ts": goodEntry}
	for name, text := range changes {
		files[name] = text
		if text == "" {
			delete(files, name)
		}
	}
	return files
}

func projectOf(t testing.TB, files map[string]string, order ...string) *project.Project {
	t.Helper()
	p, err := project.Read(bytes.NewReader(projecttest.Archive(t, files, order...)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustBuild(t testing.TB, p *project.Project) *Output {
	t.Helper()
	out, err := newBuilder(t).Build(t.Context(), Input{Project: p, ScriptName: scriptName})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// problemsOf builds and returns the problems as lines "type loc: msg".
func problemsOf(t *testing.T, files map[string]string) []string {
	t.Helper()
	out, err := newBuilder(t).Build(t.Context(), Input{Project: projectOf(t, files), ScriptName: scriptName})
	if err == nil {
		if len(out.Bundle) == 0 {
			t.Fatal("no error and no bundle")
		}
		return nil
	}
	return projecttest.Problems(t, err)
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	index := func(text string) map[string]string {
		return map[string]string{"src/index.ts": text + "\nexport default {};\n"}
	}
	cases := []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"good", nil, nil},
		{"a syntax error", index("\n  const x = ;"), []string{`source_invalid [src/index.ts 2 13]: Unexpected ";"`}},
		{"two syntax errors in two files", map[string]string{"src/index.ts": "import './a';\nimport './b';\nexport default {};", "src/a.ts": "}", "src/b.ts": "\nlet x = ;"}, []string{
			`source_invalid [src/a.ts 1 1]: Unexpected "}"`,
			`source_invalid [src/b.ts 2 9]: Unexpected ";"`}},
		{"not UTF-8", map[string]string{"src/index.ts": "import './a';\nexport default {};", "src/a.ts": "\"\xff\""}, []string{
			"source_invalid [src/a.ts 1 1]: the file is not valid UTF-8"}},
		{"a missing file", index(`import "./missing";`), []string{`import_unresolved [src/index.ts 1 8]: the project has no file for "./missing"`}},
		{"a path outside", index(`import "../../etc/passwd";`), []string{`import_unresolved [src/index.ts 1 8]: "../../etc/passwd" is outside the project`}},
		{"an absolute path", index(`import "/etc/passwd";`), []string{`import_unresolved [src/index.ts 1 8]: "/etc/passwd" is not a relative path: begin it with ./ or ../`}},
		{"a folder without index", map[string]string{"src/index.ts": "import './x';\nexport default {};", "src/x/y.ts": "1"}, []string{
			`import_unresolved [src/index.ts 1 8]: the project has no file for "./x"`}},
		{"an image", map[string]string{"src/index.ts": "import './a.png';\nexport default {};", "src/a.png": "x"}, []string{
			`import_unresolved [src/index.ts 1 8]: "./a.png" cannot be imported: only .ts, .mts, .js, .mjs, .json, .txt and .sql files can`}},
		{"the platform's module", index(`import { env } from "cloudflare:workers";`), []string{
			`import_unresolved [src/index.ts 1 21]: "cloudflare:workers" cannot be imported: cloudflare modules are not available to a project`}},
		{"the runtime itself", index(`import { createWorker } from "teamsync:runtime";`), []string{
			`import_unresolved [src/index.ts 1 30]: "teamsync:runtime" cannot be imported: teamsync modules are not available to a project`}},
		{"a Node module", index(`import fs from "node:fs";`), []string{
			`import_unresolved [src/index.ts 1 16]: "node:fs" cannot be imported: node modules are not available to a project`}},
		{"a URL", index(`import "https://example.com/a.js";`), []string{
			`import_unresolved [src/index.ts 1 8]: "https://example.com/a.js" cannot be imported: https modules are not available to a project`}},
		{"text as a module", index(`import "data:text/javascript,1";`), []string{
			`import_unresolved [src/index.ts 1 8]: "data:text/javascript,1" cannot be imported: data modules are not available to a project`}},
		{"a package", index(`import _ from "lodash";`), []string{
			`import_unresolved [src/index.ts 1 15]: the package "lodash" is not installed: add it to package.json and run npm install`}},
		{"a package that is never used", index(`import { unused } from "@scope/lodash";`), []string{
			`import_unresolved [src/index.ts 1 24]: the package "@scope/lodash" is not installed: add it to package.json and run npm install`}},
		{"a package by re-export", index(`export * from "lodash";`), []string{
			`import_unresolved [src/index.ts 1 15]: the package "lodash" is not installed: add it to package.json and run npm install`}},
		{"import()", index(`const m = import("./a");`), []string{`dynamic_code_unsupported [src/index.ts 1 18]: import() is not supported: use an import statement`}},
		{"import() of the platform", index(`const m = import("cloudflare:workers");`), []string{`dynamic_code_unsupported [src/index.ts 1 18]: import() is not supported: use an import statement`}},
		{"import() of what is computed", index(`const m = import("cloudflare:" + "workers");`), []string{
			`dynamic_code_unsupported [src/index.ts 1 11]: what is imported is computed: only imports of a text in quotes are supported`}},
		{"import() of a variable", index("const n = \"a\";\nconst m = import(n);"), []string{
			`dynamic_code_unsupported [src/index.ts 2 11]: what is imported is computed: only imports of a text in quotes are supported`}},
		{"eval", index(`eval("1");`), []string{
			`dynamic_code_unsupported [src/index.ts 1 1]: Using direct eval with a bundler is not recommended and may cause problems`}},
		{"require", index(`const m = require("./a");`), []string{`import_unresolved [src/index.ts 1 19]: only import statements are supported`}},
		{"require of a variable", index("const n = \"a\";\nconst m = require(n);"), []string{
			`dynamic_code_unsupported [src/index.ts 2 11]: what is imported is computed: only imports of a text in quotes are supported`}},
		{"require by another name", index(`const r = require;`), []string{
			`dynamic_code_unsupported [src/index.ts 1 11]: Indirect calls to "require" will not be bundled`}},
		{"CommonJS", map[string]string{"src/index.ts": "import './a.js';\nexport default {};", "src/a.js": "module.exports = 1;"}, []string{
			"source_not_module [src/a.js]: the file uses CommonJS: write import and export"}},
		{"no default export", map[string]string{"src/index.ts": "export const a = 1;"}, []string{
			"entry_default_export_missing [src/index.ts]: the entry has no default export: export default defineWorker({…})"}},
		{"no export at all", map[string]string{"src/index.ts": "const a = 1;"}, []string{
			"entry_default_export_missing [src/index.ts]: the entry has no default export: export default defineWorker({…})"}},
		{"an empty entry", map[string]string{"src/index.ts": " "}, []string{
			"entry_default_export_missing [src/index.ts]: the entry has no default export: export default defineWorker({…})"}},
		{"a name that is not exported", map[string]string{"src/index.ts": "import { b } from './a';\nexport default { b };", "src/a.ts": "export const c = 1;"}, []string{
			`source_invalid [src/index.ts 1 10]: No matching export in "src/a.ts" for import "b"`}},
		{"dependencies without a lock file", map[string]string{"package.json": "{\n  \"dependencies\": {\n    \"b\": \"1\",\n    \"a\": \"2\"\n  },\n  \"optionalDependencies\": {\"c\": \"1\"}\n}"}, []string{
			"lock_missing [package.json dependencies a]: there is no package-lock.json, which says what a is: run npm install",
			"lock_missing [package.json dependencies b]: there is no package-lock.json, which says what b is: run npm install",
			"lock_missing [package.json optionalDependencies c]: there is no package-lock.json, which says what c is: run npm install"}},
		{"development dependencies", map[string]string{"package.json": `{"devDependencies":{"typescript":"7"},"dependencies":{"@teamsync/edge-worker":"1"}}`}, nil},
		{"a broken package.json", map[string]string{"package.json": "{\n"}, []string{
			"package_json_invalid [package.json 2 1]: invalid JSON: unexpected end of JSON input (line 2, column 1)"}},
		{"a package.json that is a list", map[string]string{"package.json": "[]"}, []string{"package_json_invalid [package.json]: package.json must hold an object"}},
		{"static data that is not JSON", map[string]string{"static/a.json": "{\n x}"}, []string{
			"static_data_invalid [static/a.json 2 2]: invalid JSON: invalid character 'x' looking for beginning of object key string (line 2, column 2)"}},
		{"static data that is not text", map[string]string{"static/a.bin": "\xff"}, []string{"static_data_invalid [static/a.bin]: static files must be text in UTF-8"}},
		{"faults everywhere", map[string]string{"static/a.json": "", "static/b.json": "{", "package.json": "[]", "src/index.ts": "let"}, []string{
			"package_json_invalid [package.json]: package.json must hold an object",
			"static_data_invalid [static/b.json 1 2]: invalid JSON: unexpected end of JSON input (line 1, column 2)",
			"entry_default_export_missing [src/index.ts]: the entry has no default export: export default defineWorker({…})"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { projecttest.Same(t, problemsOf(t, sourcesOf(c.changes)), c.want...) })
	}
}

// What an import may mean, best first.
func TestBuildResolves(t *testing.T) {
	t.Parallel()
	files := sourcesOf(map[string]string{
		"src/index.ts": `import a from "./a"; import b from "./b.js"; import c from "../lib/c.mjs"; import d from "./d"; import e from "./e.sql";
import f from "./f.json"; import g from "./g.txt"; import h from "../lib/"; export default { a: () => [a, b, c, d, e, f, g, h] };`,
		"src/a.ts": `export default "is-a";`, "src/b.ts": `export default "is-b";`, "lib/c.mts": `export default "is-c";`,
		"src/d/index.ts": `export default "is-d";`, "src/e.sql": "is-e", "src/f.json": `{"__proto__":"is-f"}`, "src/g.txt": "is-g",
		"lib/index.js": `export default "is-h";`, "src/unused.ts": `export default "is-unused";`,
	})
	bundle := string(mustBuild(t, projectOf(t, files)).Bundle)
	for _, name := range "abcdefgh" {
		if !strings.Contains(bundle, "is-"+string(name)) {
			t.Errorf("%c is not in the bundle", name)
		}
	}
	if strings.Contains(bundle, "is-unused") {
		t.Error("a file that nothing imports is in the bundle")
	}
}

func TestBundleBound(t *testing.T) {
	t.Parallel()
	text := func(n int) map[string]string { return map[string]string{"static/t.txt": strings.Repeat("t", n)} }
	base := len(mustBuild(t, projectOf(t, sourcesOf(text(0)))).Bundle)
	at := mustBuild(t, projectOf(t, sourcesOf(map[string]string{"static/t.txt": "t"})))
	limit := MaxBundle - len(at.Bundle) + 1
	if base >= len(at.Bundle) {
		t.Fatal("static data is not in the bundle")
	}
	// S2-144, S1-092: 5 MiB pass, one byte more does not.
	if got := mustBuild(t, projectOf(t, sourcesOf(text(limit)))); len(got.Bundle) != MaxBundle {
		t.Errorf("the bundle has %d bytes", len(got.Bundle))
	}
	projecttest.Same(t, problemsOf(t, sourcesOf(text(limit+1))), fmt.Sprintf("bundle_too_large [index.mjs]: the bundle has %d bytes, more than 5 MiB", MaxBundle+1))
}

func TestNewChecksItsKeys(t *testing.T) {
	t.Parallel()
	c, n := publicKeyOf("c"), publicKeyOf("n")
	for name, keys := range map[string][]ed25519.PublicKey{
		"none": nil, "three": {c, n, publicKeyOf("x")}, "short": {c[:31]}, "twice": {c, c},
	} {
		_, err := New(Params{PublicKeys: keys})
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	_, err := New(Params{PublicKeys: []ed25519.PublicKey{c}, Concurrency: -1})
	if err == nil {
		t.Error("a negative concurrency is accepted")
	}
	_, err = New(Params{PublicKeys: []ed25519.PublicKey{c}})
	if err != nil {
		t.Error(err)
	}
}

func TestBuildChecksItsInput(t *testing.T) {
	t.Parallel()
	p := projectOf(t, sourcesOf(nil))
	for name, in := range map[string]Input{
		"no project": {ScriptName: scriptName}, "no name": {Project: p}, "a bad name": {Project: p, ScriptName: "../x"},
		"an unknown policy": {Project: p, ScriptName: scriptName, Policy: "department-worker-project-v9"},
	} {
		_, err := newBuilder(t).Build(t.Context(), in)
		if err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The runtime's own state must not be reachable by the name it has in the
// bundle, whatever names the author uses.
func TestAuthorNamesDoNotMeetTheRuntimes(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(map[string]string{
		"src/index.ts": "export const worker = typeof createWorker + typeof verifySignature + typeof JSONparse;\nexport default { a: () => worker };",
	})))
	bundle := string(out.Bundle)
	for _, name := range []string{"createWorker", "verifySignature", "JSONparse"} {
		if strings.Contains(bundle, "function "+name+"(") || strings.Contains(bundle, "var "+name+" =") {
			t.Errorf("the author's free name %s is bound to the runtime's", name)
		}
	}
}

func TestCancelledBuild(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := projectOf(t, sourcesOf(nil))
	_, err := newBuilder(t).Build(ctx, Input{Project: p, ScriptName: scriptName})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A build that waits for a slot ends with its caller, and the slot that a
// build held is free again afterwards.
func TestBuildSlots(t *testing.T) {
	t.Parallel()
	b, err := New(Params{PublicKeys: []ed25519.PublicKey{publicKeyOf("c")}, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := projectOf(t, sourcesOf(nil))
	if !b.slots.TryAcquire(1) {
		t.Fatal("no slot is free")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := b.Build(ctx, Input{Project: p, ScriptName: scriptName})
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting build: %v", err)
	}
	b.slots.Release(1)
	for range 3 {
		_, err := b.Build(t.Context(), Input{Project: p, ScriptName: scriptName})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuildTimeout(t *testing.T) {
	t.Parallel()
	b, err := New(Params{PublicKeys: []ed25519.PublicKey{publicKeyOf("c")}, Concurrency: 1, Timeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := projectOf(t, sourcesOf(nil))
	_, err = b.Build(t.Context(), Input{Project: p, ScriptName: scriptName})
	if !errors.Is(err, ErrTimeout) || fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	// The slot comes back although the caller had its answer before.
	err = b.slots.Acquire(t.Context(), 1)
	if err != nil {
		t.Error(err)
	}
}

// Work that ends in time is answered with its result, however late its waiter
// is scheduled.
func TestWorkInTimeIsNeverATimeout(t *testing.T) {
	t.Parallel()
	for i := range 20_000 {
		got, err := within(t.Context(), time.Hour, func(context.Context) (int, error) { return i, nil })
		if got != i || err != nil {
			t.Fatalf("run %d: %d, %v", i, got, err)
		}
	}
}

// A panic inside a build is a fault of kind Internal, and its slot is free
// again.
func TestPanicIsAFault(t *testing.T) {
	t.Parallel()
	b, err := New(Params{PublicKeys: []ed25519.PublicKey{publicKeyOf("c")}, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := b.Build(t.Context(), Input{Project: &project.Project{}, ScriptName: scriptName})
		if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("got %v", err)
		}
	}
	_, err = b.Build(t.Context(), Input{Project: projectOf(t, sourcesOf(nil)), ScriptName: scriptName})
	if err != nil {
		t.Error(err)
	}
}
