package npm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
)

// place is a package in a tree.
type place struct {
	path     string
	manifest string
	files    string // names with blanks between; each holds its path and name
}

// treeOf installs packages at their paths.
func treeOf(t testing.TB, places ...place) *npm.Tree {
	t.Helper()
	registry := npmtest.New(t)
	file := lock{"": {}}
	for i, p := range places {
		files := map[string]string{"package.json": p.manifest}
		for _, name := range strings.Fields(p.files) {
			files[name] = p.path + " " + name
			if strings.HasSuffix(name, "package.json") {
				files[name] = `{"main":"./inner.js","type":"module"}`
			}
		}
		made := npmtest.Make(p.path[strings.LastIndex(p.path, "node_modules/")+len("node_modules/"):], "1.0."+string(rune('0'+i)), files)
		registry.Add(made)
		file[p.path] = npmtest.Installed(made, nil)
	}
	made := packages(t, npm.Params{Registry: registry.URL})
	read, problems := made.Read([]byte(npmtest.Lock(file)), npm.Root{}, offered)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	tree, err := made.Install(t.Context(), read, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// asks is one import: where it stands ("" is the project; else path and file
// with a blank between), the specifier, and what comes of it: the path of a
// file, "empty", or a part of the refusal after "!".
type asks struct{ from, specifier, want, required string }

func (a asks) place() npm.Place {
	at, file, _ := strings.Cut(a.from, " ")
	return npm.Place{Package: at, File: file}
}

func check(t *testing.T, tree *npm.Tree, all []asks) {
	t.Helper()
	for _, a := range all {
		for _, require := range []bool{false, true} {
			want := a.want
			if require && a.required != "" {
				want = a.required
			}
			target, err := tree.Resolve(a.place(), a.specifier, require)
			got := target.Path()
			if target.Empty {
				got = "empty"
			}
			text, refused := strings.CutPrefix(want, "!")
			switch {
			case refused && (err == nil || !strings.Contains(err.Error(), text)):
				t.Errorf("%s: %q (require: %v) gave %s %v, want %s", a.from, a.specifier, require, got, err, want)
			case !refused && (err != nil || got != want):
				t.Errorf("%s: %q (require: %v) gave %s %v, want %s", a.from, a.specifier, require, got, err, want)
			case !refused && want != "empty" && !strings.HasSuffix(got, ".json") && target.Content != target.Package+" "+target.File:
				t.Errorf("%s: %q holds %q", a.from, a.specifier, target.Content)
			}
		}
	}
}

// Packages without exports: main, module and browser, extensions and indexes.
func TestResolveWithoutExports(t *testing.T) {
	t.Parallel()
	tree := treeOf(t,
		place{"node_modules/plain", `{}`, "index.js lib/a.js lib/b.mjs lib/c.cjs lib/d.json lib/e/index.mjs lib/f/package.json lib/f/inner.js lib/g.css lib/h.js lib/h/index.js x.js"},
		place{"node_modules/main", `{"main":"lib"}`, "lib/index.js"},
		place{"node_modules/main-js", `{"main":"./lib/main"}`, "lib/main.js"},
		place{"node_modules/both", `{"main":"main.js","module":"module.mjs"}`, "main.js module.mjs"},
		place{"node_modules/browser", `{"main":"main.js","module":"module.js","browser":"browser.js"}`, "main.js module.js browser.js"},
		place{"node_modules/fallback", `{"main":"gone.js"}`, "index.js"},
		place{"node_modules/gone", `{"main":"gone.js"}`, "other.js"},
		place{"node_modules/types", `{"types":"index.d.ts"}`, "index.d.ts"},
		place{"node_modules/leaves", `{"main":"../plain/index.js"}`, "x.js"},
		place{"node_modules/folder", `{"main":"./"}`, "index.cjs"},
	)
	check(t, tree, []asks{
		{"", "plain", "node_modules/plain/index.js", ""},
		{"", "plain/", "node_modules/plain/index.js", ""},
		{"", "plain/lib/a", "node_modules/plain/lib/a.js", ""},
		{"", "plain/lib/a.js", "node_modules/plain/lib/a.js", ""},
		{"", "plain/lib/b", "node_modules/plain/lib/b.mjs", ""},
		{"", "plain/lib/c", "node_modules/plain/lib/c.cjs", ""},
		{"", "plain/lib/d", "node_modules/plain/lib/d.json", ""},
		{"", "plain/lib/e", "node_modules/plain/lib/e/index.mjs", ""},
		{"", "plain/lib/f", "node_modules/plain/lib/f/inner.js", ""},
		{"", "plain/lib/h", "node_modules/plain/lib/h.js", ""},
		{"", "plain/lib/h/", "node_modules/plain/lib/h/index.js", ""},
		{"", "plain/package.json", "node_modules/plain/package.json", ""},
		{"", "plain/lib/g.css", `!"lib/g.css" of plain@1.0.0 cannot be imported: only .js, .mjs, .cjs and .json`, ""},
		{"", "plain/lib", `!plain@1.0.0 has no file "lib"`, ""},
		{"", "plain/nothing", `!plain@1.0.0 has no file "nothing"`, ""},
		{"", "plain/../../etc/passwd", "!outside plain@1.0.0", ""},
		{"node_modules/plain lib/a.js", "./b.mjs", "node_modules/plain/lib/b.mjs", ""},
		{"node_modules/plain lib/a.js", "..", "node_modules/plain/index.js", ""},
		{"node_modules/plain lib/a.js", "../", "node_modules/plain/index.js", ""},
		{"node_modules/plain index.js", ".", "node_modules/plain/index.js", ""},
		{"node_modules/plain lib/a.js", "../x", "node_modules/plain/x.js", ""},
		{"node_modules/plain lib/a.js", "../../main/lib/index.js", "!outside plain@1.0.0", ""},
		{"node_modules/plain lib/a.js", "../../../src/index.ts", "!outside plain@1.0.0", ""},
		{"node_modules/plain lib/a.js", "/etc/passwd", "!it is no package", ""},
		{"node_modules/plain lib/a.js", "https://x/y.js", "!it is no package", ""},
		{"node_modules/plain lib/a.js", "cloudflare:workers", "!it is no package", ""},
		{"node_modules/plain lib/a.js", "teamsync:runtime", "!it is no package", ""},
		{"", "main", "node_modules/main/lib/index.js", ""},
		{"", "main-js", "node_modules/main-js/lib/main.js", ""},
		{"", "both", "node_modules/both/module.mjs", "node_modules/both/main.js"},
		{"", "browser", "node_modules/browser/browser.js", ""},
		{"", "fallback", "node_modules/fallback/index.js", ""},
		{"", "gone", `!the entry of gone@1.0.6 is missing: it has no "gone.js"`, ""},
		{"", "types", `!the entry of types@1.0.7 is missing: it has no "index.js"`, ""},
		{"", "leaves", "!the entry of leaves@1.0.8 is missing", ""},
		{"", "folder", "node_modules/folder/index.cjs", ""},
	})
}

// Package exports as Node's documentation has them, with a Worker's conditions.
func TestResolveExports(t *testing.T) {
	t.Parallel()
	tree := treeOf(t,
		place{"node_modules/e", `{"main":"ignored.js","type":"module","exports":{
			".":{"node":"./node.js","workerd":"./workerd.js","worker":"./worker.js","browser":"./browser.js","default":"./default.js"},
			"./kinds":{"types":"./k.d.ts","import":"./k.mjs","require":"./k.cjs"},
			"./nested":{"browser":{"import":"./n.mjs"},"default":"./n.js"},
			"./list":["./gone:no","./list.js"],
			"./many/*":"./m/*.js","./many/deep/*":"./deep/*.js","./many/private/*":null,"./ends/*.js":"./m/*.js",
			"./blocked":{"worker":null,"default":"./default.js"},
			"./missing":"./missing.js","./leaves":"./../../x.js","./modules":"./node_modules/x.js","./bare":"other",
			"./style":"./style.css","./package.json":"./package.json"}}`,
			"node.js workerd.js worker.js browser.js default.js ignored.js k.mjs k.cjs n.mjs n.js list.js m/a.js m/b/c.js deep/a.js style.css"},
		place{"node_modules/one", `{"exports":"./one.js"}`, "one.js two.js"},
		place{"node_modules/conditions", `{"exports":{"import":"./i.js","require":"./r.js"}}`, "i.js r.js"},
		place{"node_modules/dev", `{"exports":{".":{"development":"./d.js","production":"./p.js"}}}`, "d.js p.js"},
		place{"node_modules/nothing", `{"exports":{}}`, "index.js"},
		place{"node_modules/node-only", `{"exports":{"node":"./index.js"}}`, "index.js"},
	)
	check(t, tree, []asks{
		{"", "e", "node_modules/e/worker.js", ""},
		{"", "e/kinds", "node_modules/e/k.mjs", "node_modules/e/k.cjs"},
		{"", "e/nested", "node_modules/e/n.mjs", "node_modules/e/n.js"},
		{"", "e/list", `!e@1.0.0 has no file`, ""},
		{"", "e/many/a", "node_modules/e/m/a.js", ""},
		{"", "e/many/b/c", "node_modules/e/m/b/c.js", ""},
		{"", "e/many/deep/a", "node_modules/e/deep/a.js", ""},
		{"", "e/many/private/a", `!e@1.0.0 does not export "./many/private/a"`, ""},
		{"", "e/many/../../x", "!outside", ""},
		{"", "e/ends/a.js", "node_modules/e/m/a.js", ""},
		{"", "e/many/*", "!has no file", ""},
		{"", "e/blocked", `!does not export "./blocked"`, ""},
		{"", "e/missing", `!e@1.0.0 has no file "missing.js"`, ""},
		{"", "e/leaves", "!outside", ""},
		{"", "e/modules", "!outside", ""},
		{"", "e/bare", "!does not export", ""},
		{"", "e/style", `!"style.css" of e@1.0.0 cannot be imported`, ""},
		{"", "e/package.json", "node_modules/e/package.json", ""},
		{"", "e/worker.js", `!e@1.0.0 does not export "./worker.js" for a Worker`, ""},
		{"node_modules/e m/a.js", "../default.js", "node_modules/e/default.js", ""},
		{"", "one", "node_modules/one/one.js", ""},
		{"", "one/two.js", "!does not export", ""},
		{"", "conditions", "node_modules/conditions/i.js", "node_modules/conditions/r.js"},
		{"", "dev", "node_modules/dev/p.js", ""},
		{"", "nothing", "!does not export", ""},
		{"", "node-only", "!does not export", ""},
	})
}

// Where Node would look: nearest first, the own name, imports, aliases.
func TestResolvePlaces(t *testing.T) {
	t.Parallel()
	tree := treeOf(t,
		place{"node_modules/a", `{"name":"a","exports":{".":"./a.js","./own":"./own.js"},"imports":{
			"#inner":"./own.js","#outer":"b","#deep/*":{"worker":"./deep/*.js"},"#loop":"#loop","#leaves":"../x.js","#node":"node:fs"}}`, "a.js own.js deep/x.js"},
		place{"node_modules/a/node_modules/b", `{}`, "index.js"},
		place{"node_modules/b", `{}`, "index.js"},
		place{"node_modules/@s/c", `{}`, "index.js sub.js"},
		place{"node_modules/alias", `{"name":"b","exports":"./other.js"}`, "other.js"},
		place{"node_modules/events", `{}`, "events.js index.js"},
	)
	check(t, tree, []asks{
		{"", "b", "node_modules/b/index.js", ""},
		{"node_modules/a a.js", "b", "node_modules/a/node_modules/b/index.js", ""},
		{"node_modules/a/node_modules/b index.js", "b", "node_modules/a/node_modules/b/index.js", ""}, // it is its own neighbour
		{"node_modules/a/node_modules/b index.js", "a", "node_modules/a/a.js", ""},
		{"node_modules/a/node_modules/b index.js", "@s/c/sub", "node_modules/@s/c/sub.js", ""},
		{"node_modules/a a.js", "a/own", "node_modules/a/own.js", ""},
		{"node_modules/alias other.js", "b", "node_modules/alias/other.js", ""}, // by its own name
		{"", "alias", "node_modules/alias/other.js", ""},
		{"node_modules/a a.js", "#inner", "node_modules/a/own.js", ""},
		{"node_modules/a a.js", "#outer", "node_modules/a/node_modules/b/index.js", ""},
		{"node_modules/a a.js", "#deep/x", "node_modules/a/deep/x.js", ""},
		{"node_modules/a a.js", "#deep/../own", "!outside", ""},
		{"node_modules/a a.js", "#gone", `!a@1.0.0 has no "#gone" in its imports`, ""},
		{"node_modules/a a.js", "#loop", "!in a circle", ""},
		{"node_modules/a a.js", "#leaves", "!no \"#leaves\"", ""},
		{"node_modules/a a.js", "#node", `!"node:fs" cannot be imported`, ""},
		{"", "#inner", "!it is no package", ""},
		{"", "events", "node_modules/events/index.js", ""}, // an installed package of a Node module's name
		{"", "fs", `!"fs" cannot be imported (not installed): Node modules are not available to a project`, ""},
		{"", "fs/promises", `!Node modules`, ""},
		{"", "node:events", `!Node modules`, ""},
		{"", "gone", `!the package "gone" is not installed: add it to package.json`, ""},
		{"", "@s/gone/x", `!the package "@s/gone" is not installed`, ""},
	})
	for specifier, want := range map[string]bool{"fs": true, "gone": true, "node:fs": true, "a/private": false, "https://x": false} {
		_, err := tree.Resolve(npm.Place{}, specifier, true)
		if errors.Is(err, npm.ErrNotInstalled) != want {
			t.Errorf("%s: %v", specifier, err)
		}
	}
}

// The browser field as a map: instead of files and packages, or nothing at all.
func TestResolveBrowserMap(t *testing.T) {
	t.Parallel()
	tree := treeOf(t,
		place{"node_modules/m", `{"main":"./lib/node.js","browser":{"./lib/node.js":"./lib/web.js","fs":false,"./lib/gone":false,
			"crypto":"./lib/crypto.js","other":"better","better":"better","ring":"gnir","gnir":"ring","./lib/file":"./lib/web.js","./lib/lost.js":"./lib/nowhere.js"}}`,
			"lib/node.js lib/web.js lib/gone.js lib/crypto.js lib/file.js lib/lost.js"},
		place{"node_modules/better", `{}`, "index.js"},
		place{"node_modules/plain", `{}`, "index.js"},
	)
	check(t, tree, []asks{
		{"", "m", "node_modules/m/lib/web.js", ""},
		{"node_modules/m lib/web.js", "./node", "node_modules/m/lib/web.js", ""},
		{"node_modules/m lib/web.js", "./file.js", "node_modules/m/lib/web.js", ""},
		{"node_modules/m lib/web.js", "fs", "empty", ""},
		{"node_modules/m lib/web.js", "./gone.js", "empty", ""},
		{"node_modules/m lib/web.js", "crypto", "node_modules/m/lib/crypto.js", ""},
		{"node_modules/m lib/web.js", "other", "node_modules/better/index.js", ""},
		{"node_modules/m lib/web.js", "better", "node_modules/better/index.js", ""},
		{"node_modules/m lib/web.js", "ring", "!in a circle", ""},
		{"node_modules/m lib/web.js", "./lost.js", "node_modules/m/lib/lost.js", ""},
		{"node_modules/plain index.js", "fs", "!Node modules", ""},
		{"", "fs", "!Node modules", ""},
	})
}

// What the bundler must know of a file beside its text.
func TestResolveKinds(t *testing.T) {
	t.Parallel()
	tree := treeOf(t,
		place{"node_modules/esm", `{"type":"module","sideEffects":false}`, "index.js a.cjs b.mjs d.json"},
		place{"node_modules/cjs", `{"sideEffects":["*.init.js","./lib/**/poly/*.js","/exact.js","one?.js"]}`,
			"index.js a.init.js lib/a.init.js lib/x/poly/p.js lib/poly/p.js lib/poly/deep/p.js exact.js lib/exact.js one1.js one12.js b.mjs esm/package.json esm/inner.js"},
		place{"node_modules/unknown", `{"sideEffects":["*.{js,css}"]}`, "index.js"},
		place{"node_modules/effects", `{"sideEffects":true}`, "index.js"},
	)
	for specifier, want := range map[string]struct{ module, pure, json bool }{
		"esm": {true, true, false}, "esm/a.cjs": {false, true, false}, "esm/b.mjs": {true, true, false}, "esm/d.json": {false, true, true},
		"cjs": {false, true, false}, "cjs/b.mjs": {true, true, false}, "cjs/a.init.js": {false, false, false}, "cjs/lib/a.init.js": {false, false, false},
		"cjs/lib/x/poly/p.js": {false, false, false}, "cjs/lib/poly/p.js": {false, false, false}, "cjs/lib/poly/deep/p.js": {false, true, false},
		"cjs/exact.js": {false, false, false}, "cjs/lib/exact.js": {false, true, false}, "cjs/one1.js": {false, false, false}, "cjs/one12.js": {false, true, false},
		"cjs/esm/inner.js": {true, true, false},
		"unknown":          {false, false, false}, "effects": {false, false, false},
	} {
		got, err := tree.Resolve(npm.Place{}, specifier, false)
		if err != nil || got.Module != want.module || got.Pure != want.pure || got.JSON != want.json {
			t.Errorf("%s: module %v, pure %v, json %v, %v", specifier, got.Module, got.Pure, got.JSON, err)
		}
	}
}

// Licences in every spelling that the registry has.
func TestLicences(t *testing.T) {
	t.Parallel()
	manifests := map[string]string{
		`{"license":"MIT"}`: "MIT", `{"license":" (MIT OR Apache-2.0) "}`: "(MIT OR Apache-2.0)", `{"license":{"type":"ISC","url":"x"}}`: "ISC",
		`{"licenses":[{"type":"MIT"},"BSD"]}`: "MIT,BSD", `{"licenses":{"type":"MIT"}}`: "MIT", `{}`: "", `{"license":1}`: "", `{"license":""}`: "",
		`{"license":"SEE LICENSE IN x"}`: "SEE LICENSE IN x",
	}
	for manifest, want := range manifests {
		tree := treeOf(t, place{"node_modules/x", manifest, ""})
		if got := strings.Join(tree.Licences("node_modules/x"), ","); got != want {
			t.Errorf("%s: %s", manifest, got)
		}
	}
	if got := npm.NoPackages().Licences("node_modules/x"); got != nil {
		t.Error(got)
	}
}

// Whatever a package.json says and code asks for, the answer is a file of an
// installed package or a refusal.
func FuzzResolve(f *testing.F) {
	f.Add(`{"exports":{"./*":{"import":"./*"}},"imports":{"#*":"./*"}}`, "x/a", "#a.js")
	f.Add(`{"main":"..","browser":{"./a":"./../../b","x":"./"}}`, "x/", "../..")
	f.Add(`{"exports":[["./a.js"]],"imports":{"#a":["b","#a"]},"sideEffects":["**/[","***"]}`, "x", "#a")
	f.Fuzz(func(t *testing.T, manifest, outer, inner string) {
		registry := npmtest.New(t)
		p := npmtest.Make("x", "1.0.0", map[string]string{"package.json": manifest, "a.js": "a", "lib/index.js": "i"})
		registry.Add(p)
		made := packages(t, npm.Params{Registry: registry.URL})
		tree, err := made.Install(t.Context(), locked(t, made, p), nil)
		if err != nil {
			return
		}
		for _, a := range []asks{{"", outer, "", ""}, {"node_modules/x lib/index.js", inner, "", ""}, {"node_modules/x a.js", outer, "", ""}} {
			for _, require := range []bool{false, true} {
				target, err := tree.Resolve(a.place(), a.specifier, require)
				if err == nil && !target.Empty && target.Content != "a" && target.Content != "i" && target.Content != manifest {
					t.Errorf("%+v gave %+v", a, target)
				}
			}
		}
	})
}
