package builder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// Whatever spelling a computed import has, it is found; what only looks like one
// is not.
func TestComputedImports(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"import('./' + n)":                              true,
		"import(`./${n}.js`)":                           true,
		"import /* x */ ('./' + n)":                     true,
		"import // x\n ('./' + n)":                      true,
		"import\u2028('./' + n)":                        true,
		"import((('./')) + n)":                          true,
		"import('./' + n, { with: { type: 'json' } })":  true,
		"import(a ? './' + b : './' + c)":               true,
		"import('./a' + b)":                             true,
		"import('\\x2e/' + n)":                          true,
		"import(n)":                                     true,
		"f(...require('./' + n))":                       true,
		"require('./' + n)":                             true,
		"require\n(`./${n}`)":                           true,
		"(require)('./' + n)":                           true,
		"((require))\n('./' + n)":                       true,
		"(require/**/)('./' + n)":                       true,
		"require/**/('./' + n)":                         true,
		"require?.('./' + n)":                           true,
		"r\\u0065quire('./' + n)":                       true,
		"\\u{72}equire('./' + n)":                       true,
		"\\u{0072}equire('./' + n)":                     true,
		"require <!-- x\n ('./' + n)":                   true,
		"x\nrequire\n--> x\n('./' + n)":                 true,
		"require('./a'); require('./' + n)":             true,
		"import('./a'); import(n)":                      true,
		"import x from './a'":                           false,
		"import{x}from'./a'":                            false,
		"import*as x from './a'":                        false,
		"import'./a'":                                   false,
		"import('./a')":                                 false,
		"import( `./a` , { with: { type: 'json' } })":   false,
		"require('./a')":                                false,
		"require(\"./a\").b(c)":                         false,
		"import.meta.url":                               false,
		"// import(x), require(y)":                      false,
		"const s = 'import(x) require(y)'":              false,
		"const s = `import(${x})`":                      false,
		"/import(x)|require(y)/":                        false,
		"a.import(x); a.require(y)":                     false,
		"class A { import(x) {} require(y) {} }":        false,
		"(function (require) { require('./' + n) })(f)": false,
		"// import(x)\nimport('./a')":                   false,
		"if (typeof require !== 'undefined') f()":       false,
		"typeof require == 'function' && require":       false,
		"const é = '\\u0065'":                           false,
		"require(":                                      false, // a syntax error is told by the bundler
	} {
		if got := computedImport(text, api.LoaderJS); (got >= 0) != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	for _, text := range []string{"(require as any)('./' + n)", "require!('./' + n)", "require<string>('./' + n)", "(<any>require)('./' + n)",
		"enum E { A = './' }\nimport(E.A + n)", "(require satisfies any)('./' + n)"} {
		if computedImport(text, api.LoaderTS) < 0 {
			t.Errorf("TypeScript %q", text)
		}
	}
}

// The bundler looks for nothing on this machine's disk: neither the project's
// code nor a package can learn from a pattern which files there are.
func TestNothingIsLookedUpOnTheDisk(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", strings.Count(filepath.ToSlash(here), "/")+2)
	for _, pattern := range []string{"`./testdata/${n}`", "'./testdata/real/' + n", "`" + up + "${n}.json`", "`./testdata/real/src/${n}.ts`"} {
		for _, call := range []string{"import", "require", "(require)", "r\\u0065quire"} {
			code := "const n = globalThis.n; " + call + "(" + pattern + ");"
			_, err := buildUsing(t, code+"\nexport default { a: () => 1 };", pkg("x"))
			refusedAsComputed(t, "src/index.ts", code, err)
			code = "module.exports = () => { " + code + " }"
			_, err = buildUsing(t, uses, pkg("x", "index.js", code))
			refusedAsComputed(t, "node_modules/x/index.js", code, err)
		}
	}
}

// refusedAsComputed wants one problem, at the call: what the bundler itself says
// of files that it found is at the argument, and comes too late.
func refusedAsComputed(t *testing.T, file, code string, err error) {
	t.Helper()
	at := max(strings.Index(code, "import"), strings.Index(code, "require"), strings.Index(code, `r\u`), strings.Index(code, `\u`))
	projecttest.Same(t, projecttest.Problems(t, err), fmt.Sprintf("dynamic_code_unsupported [%s 1 %d]: %s", file, at+1, computed))
}
