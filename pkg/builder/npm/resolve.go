package npm

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
)

// Place is where an import stands: in a file of the package that is installed at
// Package. In the project's own files both are empty.
type Place struct{ Package, File string }

// Path is the file's path from the project's folder.
func (p Place) Path() string { return p.Package + "/" + p.File }

// Target is what an import means.
type Target struct {
	Place
	Empty   bool // nothing: the package says so for browsers
	Module  bool // an ES module by its name or its package's type
	JSON    bool
	Pure    bool // may be left out when nothing of it is used
	Content string
	seen    *sync.Map // of the package, see Once
}

// Once gives what look finds in the file's text. It is looked for once for as
// long as the package stays in memory: the text never changes.
func (t Target) Once(look func(text string) int) int {
	found, ok := t.seen.Load(t.File)
	if !ok {
		found = look(t.Content)
		t.seen.Store(t.File, found)
	}
	number, _ := found.(int)
	return number
}

// ErrNotInstalled marks an import of a package that is not there, or of a Node
// module: at run time Node would throw at the import, and so may the bundle.
var ErrNotInstalled = errors.New("not installed")

// Resolve finds what a specifier means for code at from, as Node and the bundlers
// of web code do. With require the import is CommonJS's. The error says what is
// wrong in words for the author.
func (t *Tree) Resolve(from Place, specifier string, require bool) (Target, error) {
	r := resolution{tree: t, from: from, require: require}
	return r.resolve(specifier)
}

// maxSteps bounds how often one import may be replaced by another.
const maxSteps = 8

type resolution struct {
	tree    *Tree
	from    Place
	require bool
	steps   int
}

func (r *resolution) resolve(specifier string) (Target, error) {
	r.steps++
	if r.steps > maxSteps {
		return Target{}, fmt.Errorf("%s leads in a circle", quoted(specifier))
	}
	if r.from.Package == "" {
		return r.bare(specifier)
	}
	own := r.tree.packages[r.from.Package].manifests[""]
	switch {
	case specifier == "." || specifier == ".." || strings.HasPrefix(specifier, "./") || strings.HasPrefix(specifier, "../"):
		return r.relative(specifier)
	case strings.HasPrefix(specifier, "#"):
		found, ok := imported(own.imports, specifier, r.require)
		if !ok {
			return Target{}, fmt.Errorf("%s has no %s in its imports", r.name(r.from.Package), quoted(specifier))
		}
		if strings.HasPrefix(found, "./") {
			return r.exact(r.from.Package, found)
		}
		return r.resolve(found)
	}
	replaced, ok := own.replaces[specifier]
	if !ok {
		return r.bare(specifier)
	}
	return r.replace(specifier, replaced)
}

// replace follows the browser map.
func (r *resolution) replace(specifier, replaced string) (Target, error) {
	switch {
	case replaced == "":
		return Target{Place: Place{r.from.Package, "(empty)/" + specifier}, Empty: true}, nil
	case strings.HasPrefix(replaced, "./"):
		return r.inPackage(r.from.Package, replaced)
	case replaced == specifier:
		return r.bare(specifier)
	}
	return r.resolve(replaced)
}

// relative finds a file of the same package.
func (r *resolution) relative(specifier string) (Target, error) {
	joined := path.Join(folderOf(r.from.File), specifier)
	if joined == ".." || strings.HasPrefix(joined, "../") {
		return Target{}, fmt.Errorf("%s is outside %s", quoted(specifier), r.name(r.from.Package))
	}
	return r.inPackage(r.from.Package, joined)
}

// bare finds a package, or refuses what is none.
func (r *resolution) bare(specifier string) (Target, error) {
	name, subpath := splitSpecifier(specifier)
	if name == "" {
		if scheme, _, ok := strings.Cut(specifier, ":"); ok && scheme == "node" {
			return Target{}, nodeModule(specifier)
		}
		return Target{}, fmt.Errorf("%s cannot be imported: it is no package", quoted(specifier))
	}
	if at := r.from.Package; at != "" {
		own := r.tree.packages[at].manifests[""]
		if own.name == name && own.exports != nil {
			return r.offered(at, subpath) // by its own name
		}
	}
	found := ""
	ancestors(r.from.Package, name, func(candidate string) bool {
		if r.tree.packages[candidate] != nil {
			found = candidate
		}
		return found != ""
	})
	if found != "" {
		return r.offered(found, subpath)
	}
	if builtins[name] {
		return Target{}, nodeModule(specifier)
	}
	return Target{}, fmt.Errorf("the package %s is %w: add it to package.json and run npm install", quoted(name), ErrNotInstalled)
}

func nodeModule(specifier string) error {
	return fmt.Errorf("%s cannot be imported (%w): Node modules are not available to a project", quoted(specifier), ErrNotInstalled)
}

// offered finds what a package offers under a subpath.
func (r *resolution) offered(at, subpath string) (Target, error) {
	own := r.tree.packages[at].manifests[""]
	if own.exports != nil {
		found, ok := exported(own.exports, subpath, r.require)
		if !ok {
			return Target{}, fmt.Errorf("%s does not export %s for a Worker", r.name(at), quoted(subpath))
		}
		return r.exact(at, found)
	}
	if subpath == "." {
		return r.folder(at, "")
	}
	return r.inPackage(at, subpath)
}

// exact takes a file by its full name, as exports and imports give it.
func (r *resolution) exact(at, name string) (Target, error) {
	for _, segment := range strings.Split(name[2:], "/") {
		if segment == ".." || segment == "." || segment == "node_modules" {
			return Target{}, fmt.Errorf("%s has the target %s, which is outside it", r.name(at), quoted(name))
		}
	}
	name = path.Clean(name)
	if found, ok := r.file(at, name); ok {
		return found, nil
	}
	return Target{}, r.absent(at, name)
}

// inPackage finds a file by a name that may lack its extension or be a folder.
func (r *resolution) inPackage(at, name string) (Target, error) {
	slash := strings.HasSuffix(name, "/")
	name = path.Clean(name)
	if name == ".." || strings.HasPrefix(name, "../") {
		return Target{}, fmt.Errorf("%s is outside %s", quoted(name), r.name(at))
	}
	if name == "." {
		return r.folder(at, "")
	}
	if !slash {
		if found, ok := r.guess(at, name); ok {
			return found, nil
		}
	}
	if found, ok := r.index(at, name); ok {
		return found, nil
	}
	return Target{}, r.absent(at, name)
}

// folder finds a package's entry.
func (r *resolution) folder(at, folder string) (Target, error) {
	if found, ok := r.index(at, folder); ok {
		return found, nil
	}
	main := r.tree.packages[at].manifests[""].main
	if main == "" {
		main = "index.js"
	}
	return Target{}, fmt.Errorf("the entry of %s is missing: it has no %s", r.name(at), quoted(main))
}

// index finds the file that a folder means: what its package.json names, or its
// index.
func (r *resolution) index(at, folder string) (Target, bool) {
	if m := r.tree.packages[at].manifests[folder]; m != nil {
		entries := []string{m.browser, m.esm, m.main}
		if r.require {
			entries = []string{m.browser, m.main, m.esm}
		}
		for _, entry := range entries {
			name := path.Join(folder, entry)
			if entry == "" || name == ".." || strings.HasPrefix(name, "../") {
				continue
			}
			if found, ok := r.guess(at, name); ok {
				return found, true
			}
			if found, ok := r.guess(at, path.Join(name, "index")); ok {
				return found, true
			}
		}
	}
	return r.guess(at, path.Join(folder, "index"))
}

// guess finds a file whose name may lack its extension.
func (r *resolution) guess(at, name string) (Target, bool) {
	for _, extension := range []string{"", ".js", ".mjs", ".cjs", ".json"} {
		if found, ok := r.file(at, name+extension); ok {
			return found, true
		}
	}
	return Target{}, false
}

// file takes a file, or what the package has instead of it for browsers.
func (r *resolution) file(at, name string) (Target, bool) {
	contents := r.tree.packages[at]
	for _, key := range []string{"./" + name, "./" + strings.TrimSuffix(name, path.Ext(name))} {
		replaced, ok := contents.manifests[""].replaces[key]
		if !ok || !contents.has(name) {
			continue
		}
		if replaced == "" {
			return Target{Place: Place{at, name}, Empty: true}, true
		}
		replaced = path.Clean(replaced)
		if replaced != name && contents.has(replaced) {
			return r.target(at, replaced), true
		}
	}
	if !contents.has(name) {
		return Target{}, false
	}
	return r.target(at, name), true
}

func (r *resolution) target(at, name string) Target {
	contents := r.tree.packages[at]
	target := Target{
		Place: Place{at, name}, Content: contents.files[name],
		seen: &contents.seen, JSON: path.Ext(name) == ".json", Pure: contents.manifests[""].pure(name),
	}
	switch path.Ext(name) {
	case ".mjs":
		target.Module = true
	case ".js":
		target.Module = contents.enclosing(name).module
	}
	return target
}

func (c *Contents) has(name string) bool {
	_, ok := c.files[name]
	return ok
}

// enclosing gives the package.json that is nearest to a file.
func (c *Contents) enclosing(name string) *manifest {
	for folder := folderOf(name); ; folder = folderOf(folder) {
		if found := c.manifests[folder]; found != nil {
			return found
		}
	}
}

// absent says that a file is not there, or is not one that can be imported.
func (r *resolution) absent(at, name string) error {
	if r.tree.packages[at].others[name] {
		return fmt.Errorf("%s of %s cannot be imported: only .js, .mjs, .cjs and .json files of packages can", quoted(name), r.name(at))
	}
	return fmt.Errorf("%s has no file %s", r.name(at), quoted(name))
}

// name is name@version of the package at a path.
func (r *resolution) name(at string) string {
	entry, _ := r.tree.Lock.Find(at)
	return entry.String()
}

// builtins are the modules of Node that have a bare name.
var builtins = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`assert async_hooks buffer child_process cluster console constants crypto
		dgram diagnostics_channel dns domain events fs http http2 https inspector module net os path perf_hooks process
		punycode querystring readline repl stream string_decoder sys timers tls trace_events tty url util v8 vm wasi
		worker_threads zlib`) {
		all[name] = true
	}
	return all
}()
