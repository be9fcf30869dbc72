package builder

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
)

// npmSpace is the namespace of the files of npm packages.
const npmSpace = "npm"

// moduleMark ends the name of a file that is an ES module because its package
// says so. The bundler goes by the name of a file that it did not read itself,
// and whether the importer is one decides what the default import of a CommonJS
// module is (as in Node).
const moduleMark = "#.mjs"

// resolvePackage finds what an import of a package means, for the project's own
// code or that of a package.
func (s *sources) resolvePackage(args api.OnResolveArgs) api.OnResolveResult {
	if s.tree == nil {
		// The lock file is refused already, and with it whatever this means.
		return api.OnResolveResult{Path: args.Path, External: true}
	}
	importer, _ := args.PluginData.(npm.Target)
	require := args.Kind == api.ResolveJSRequireCall
	target, err := s.tree.Resolve(importer.Place, args.Path, require)
	if errors.Is(err, npm.ErrNotInstalled) && require {
		// The bundler refuses it too, but not in a try block: there the call
		// throws at run time, as it would in Node. See problemOf for the text.
		return api.OnResolveResult{}
	}
	if err != nil {
		return refuse(importUnresolved, imported(importer.Place, args.Path, err))
	}
	result := api.OnResolveResult{Path: target.Path(), Namespace: npmSpace, PluginData: target}
	if target.Pure || target.Empty || target.JSON {
		result.SideEffects = api.SideEffectsFalse
	}
	if target.Module && !strings.HasSuffix(result.Path, ".mjs") {
		result.Path += moduleMark
	}
	return result
}

// imported says in whose code an import is wrong, unless it is the author's.
func imported(from npm.Place, specifier string, err error) string {
	if from.Package == "" {
		return err.Error()
	}
	return fmt.Sprintf("%s imports %q: %v", strings.TrimPrefix(from.Package, "node_modules/"), specifier, err)
}

// loadPackage gives a file of a package.
func loadPackage(target npm.Target) api.OnLoadResult {
	loader := api.LoaderJS
	if target.JSON {
		loader = api.LoaderJSON
	}
	if target.Empty {
		return api.OnLoadResult{Contents: new(string), Loader: api.LoaderEmpty, PluginData: target}
	}
	at := target.Once(func(text string) int { return computedIn(text, loader) })
	if at >= 0 {
		return refuseComputed(npmSpace+":"+target.Path(), target.Content, at)
	}
	return api.OnLoadResult{Contents: &target.Content, Loader: loader, PluginData: target}
}
