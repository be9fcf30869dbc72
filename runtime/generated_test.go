package runtime_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
	"github.com/teamsync/edge-workers/runtime/bundle"
)

// installed returns a folder with the runtime's npm packages as its lock file
// says: the working copy's own, or a fresh one.
func installed(t *testing.T) string {
	t.Helper()
	_, err := os.Stat("node_modules/typescript/package.json")
	if err == nil {
		return "node_modules"
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	output, err := npm.CombinedOutput()
	if err != nil {
		t.Fatalf("npm ci (npm and its registry are needed once): %v\n%s", err, output)
	}
	return filepath.Join(dir, "node_modules")
}

// The committed bundle of the runtime is what its sources give, and they, the
// example and a new project are well typed.
func TestGeneratedRuntimeIsUpToDate(t *testing.T) {
	t.Parallel()
	modules := installed(t)
	text, err := bundle.Build(".", modules)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, []byte(runtime.Module())) {
		t.Error("runtime/dist/runtime.mjs is out of date: run `npm ci` in runtime/, then `go generate ./runtime`")
	}
	text, err = bundle.Dispatcher(".")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, []byte(runtime.Dispatcher())) {
		t.Error("runtime/dist/dispatcher.mjs is out of date: run `go generate ./runtime`")
	}
	for _, want := range []string{"MIT License", "@cfworker/json-schema"} {
		if !strings.Contains(runtime.Module(), want) {
			t.Errorf("the licence banner does not say %q", want)
		}
	}
	compiler, err := filepath.Abs(filepath.Join(modules, "typescript", "bin", "tsc"))
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	scaffold := filepath.Join(t.TempDir(), "new")
	err = project.Scaffold(scaffold, "new")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{checkConfig(t, library), "../examples/orders/tsconfig.json", filepath.Join(scaffold, "tsconfig.json")} {
		check := exec.CommandContext(t.Context(), "node", compiler, "--noEmit", "-p", config)
		output, err := check.CombinedOutput()
		if err != nil {
			t.Errorf("tsc -p %s: %v\n%s", config, err, output)
		}
	}
}

// checkConfig is runtime/tsconfig.json, with the library where it is installed.
func checkConfig(t *testing.T, modules string) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	config := `{"extends":"` + here + `/tsconfig.json","include":["` + here + `/src","` + here + `/dispatcher"],"compilerOptions":{"paths":{` +
		`"@teamsync/edge-worker":["` + here + `/types/index.d.ts"],` +
		`"@cfworker/json-schema":["` + modules + `/@cfworker/json-schema/dist/esm/index.d.ts"]}}}`
	path := filepath.Join(t.TempDir(), "tsconfig.json")
	err = os.WriteFile(path, []byte(config), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLibraries(t *testing.T) {
	t.Parallel()
	libraries, err := runtime.Libraries()
	if err != nil {
		t.Fatal(err)
	}
	if len(libraries) != 1 {
		t.Fatalf("%d libraries: %v", len(libraries), libraries)
	}
	got := libraries[0]
	if got.PackageURL != "pkg:npm/%40cfworker/json-schema@"+got.Version || got.License != "MIT" || len(got.SHA512) != 128 {
		t.Errorf("library %+v", got)
	}
}

// The lock file names no registry: npm asks the one that it is configured for.
func TestLockFileNamesNoHost(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"resolved"`, "://"} {
		if strings.Contains(strings.ReplaceAll(string(text), "https://github.com/sponsors", ""), word) {
			t.Errorf("package-lock.json contains %s", word)
		}
	}
	if !strings.Contains(string(text), `"integrity": "sha512-`) {
		t.Error("package-lock.json has no integrity")
	}
}
