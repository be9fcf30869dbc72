package builder

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

// The virtual modules of a bundle, by namespace.
const (
	entrySpace   = "entry"   // entryTemplate, filled in
	runtimeSpace = "runtime" // runtime/dist/runtime.mjs
	authorSpace  = "author"  // what "@teamsync/edge-worker" offers
	projectSpace = "project" // the project's files
)

const runtimeModule = "teamsync:runtime"

// entryTemplate is the bundle's own module. The runtime comes first, so that
// it is evaluated before any module of the author (D9).
const entryTemplate = `import { createWorker } from "teamsync:runtime";
import handlers from %s;
const worker = createWorker(%s, handlers);
export const TeamSyncDepartmentStorage = worker.TeamSyncDepartmentStorage;
export default worker.door;
`

const authorText = `export { defineWorker, OperationError } from "teamsync:runtime";`

// sources serves a build from memory.
type sources struct {
	project *project.Project
	tree    *npm.Tree // nil when the lock file is refused
	entry   string    // text of the bundle's own module
}

// plugin connects the sources with the bundler. Every import goes through
// resolve, so nothing is ever looked up on a disk.
func (s *sources) plugin() api.Plugin {
	return api.Plugin{Name: "project", Setup: func(build api.PluginBuild) {
		build.OnResolve(api.OnResolveOptions{Filter: ".*"}, s.resolve)
		build.OnLoad(api.OnLoadOptions{Filter: ".*"}, s.load)
	}}
}

// loaders are the kinds of files that can be imported.
var loaders = map[string]api.Loader{
	".ts": api.LoaderTS, ".mts": api.LoaderTS, ".js": api.LoaderJS, ".mjs": api.LoaderJS,
	".json": api.LoaderJSON, ".txt": api.LoaderText, ".sql": api.LoaderText,
}

func (s *sources) load(args api.OnLoadArgs) (api.OnLoadResult, error) {
	var text string
	loader := api.LoaderJS
	switch args.Namespace {
	case entrySpace:
		text = s.entry
	case runtimeSpace:
		text = runtime.Module()
	case authorSpace:
		text = authorText
	case npmSpace:
		target, _ := args.PluginData.(npm.Target)
		return loadPackage(target), nil
	case projectSpace:
		content := s.project.Files[args.Path]
		if !utf8.Valid(content) {
			return api.OnLoadResult{Errors: []api.Message{{
				Text: "the file is not valid UTF-8", Detail: sourceInvalid, Location: &api.Location{File: args.Path, Line: 1},
			}}}, nil
		}
		text, loader = string(content), loaders[path.Ext(args.Path)]
		if at := computedIn(text, loader); at >= 0 {
			return refuseComputed(projectSpace+":"+args.Path, text, at), nil
		}
	default:
		// A file of this machine: computedImport must never let it come to this.
		return api.OnLoadResult{Errors: []api.Message{{Text: computed, Detail: dynamicCode}}}, nil
	}
	return api.OnLoadResult{Contents: &text, Loader: loader}, nil
}

func (s *sources) resolve(args api.OnResolveArgs) (api.OnResolveResult, error) {
	switch {
	case args.Kind == api.ResolveEntryPoint:
		return api.OnResolveResult{Path: "index.mjs", Namespace: entrySpace}, nil
	case args.Path == runtimeModule && (args.Namespace == entrySpace || args.Namespace == authorSpace):
		return api.OnResolveResult{Path: "runtime.mjs", Namespace: runtimeSpace}, nil
	case args.Namespace == entrySpace:
		return api.OnResolveResult{Path: s.project.Manifest.Entry, Namespace: projectSpace}, nil
	case args.Namespace == runtimeSpace:
		return api.OnResolveResult{Path: args.Path, External: true}, nil
	case args.Path == authorModule && (args.Kind == api.ResolveJSImportStatement || args.Namespace == npmSpace):
		return api.OnResolveResult{Path: "edge-worker.mjs", Namespace: authorSpace}, nil
	case args.Namespace == npmSpace:
		return s.resolvePackage(args), nil
	case args.Kind == api.ResolveJSDynamicImport:
		return refuse(dynamicCode, "import() is not supported: use an import statement"), nil
	case args.Kind != api.ResolveJSImportStatement:
		return refuse(importUnresolved, "only import statements are supported"), nil
	case strings.HasPrefix(args.Path, "./") || strings.HasPrefix(args.Path, "../"):
		return s.resolveFile(args), nil
	}
	return s.resolveName(args), nil
}

// resolveFile finds the project's file that an import means.
func (s *sources) resolveFile(args api.OnResolveArgs) api.OnResolveResult {
	target := path.Join(path.Dir(args.Importer), args.Path)
	if target == ".." || strings.HasPrefix(target, "../") {
		return refuse(importUnresolved, fmt.Sprintf("%q is outside the project", args.Path))
	}
	for _, candidate := range candidates(target) {
		_, exists := s.project.Files[candidate]
		if !exists {
			continue
		}
		if _, ok := loaders[path.Ext(candidate)]; !ok {
			return refuse(importUnresolved, fmt.Sprintf("%q cannot be imported: only .ts, .mts, .js, .mjs, .json, .txt and .sql files can", args.Path))
		}
		return api.OnResolveResult{Path: candidate, Namespace: projectSpace}
	}
	return refuse(importUnresolved, fmt.Sprintf("the project has no file for %q", args.Path))
}

// candidates are the files that an import may mean, best first: the name
// itself, TypeScript's way to name a .ts file by its later .js name, a name
// without an extension, a folder.
func candidates(target string) []string {
	all := []string{target}
	if base, ok := strings.CutSuffix(target, ".js"); ok {
		all = append(all, base+".ts")
	}
	if base, ok := strings.CutSuffix(target, ".mjs"); ok {
		all = append(all, base+".mts")
	}
	for _, suffix := range []string{".ts", ".mts", ".js", ".mjs", ".json", "/index.ts", "/index.js"} {
		all = append(all, target+suffix)
	}
	return all
}

// resolveName finds what is no relative path: a package. Built-in modules of
// some platform and URLs are refused.
func (s *sources) resolveName(args api.OnResolveArgs) api.OnResolveResult {
	switch scheme, _, ok := strings.Cut(args.Path, ":"); {
	case ok:
		return refuse(importUnresolved, fmt.Sprintf("%q cannot be imported: %s modules are not available to a project", args.Path, scheme))
	case strings.HasPrefix(args.Path, "/") || strings.HasPrefix(args.Path, "."):
		return refuse(importUnresolved, fmt.Sprintf("%q is not a relative path: begin it with ./ or ../", args.Path))
	}
	return s.resolvePackage(args)
}

func refuse(kind, text string) api.OnResolveResult {
	return api.OnResolveResult{Errors: []api.Message{{Text: text, Detail: kind}}}
}
