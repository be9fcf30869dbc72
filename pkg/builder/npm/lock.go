package npm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// LockName is the path of the lock file in a project.
const LockName = "package-lock.json"

// The machine-readable types of the problems that this package reports.
const (
	lockInvalid    = "lock_invalid"                  // not a lock file of version 3
	lockOutdated   = "lock_out_of_date"              // it disagrees with package.json or with itself
	unsupported    = "dependency_unsupported"        // a source or kind of package that is not installed
	noIntegrity    = "dependency_integrity_invalid"  // no sha512, or a malformed one
	mismatch       = "dependency_integrity_mismatch" // the registry's bytes are others
	notFound       = "dependency_not_found"          // the registry does not have it
	packageInvalid = "dependency_invalid"            // what was published cannot be used
	tooLarge       = "dependency_too_large"          // a bound of one package or of all
	tooMany        = "dependency_too_many"           // more than MaxPackages
	cyclic         = "dependency_cyclic"             // packages that require each other in a circle
)

// Root is what a project's package.json asks for, by section: name and range.
type Root struct {
	Dependencies, Optional, Peer map[string]string
}

// Entry is one package that a lock file installs.
type Entry struct {
	Path      string // where, such as node_modules/a/node_modules/b
	Name      string // the registry's name; an alias is installed under another
	Version   string
	Integrity Integrity
	needs     []string // names that its code may import: dependencies, optional and peer ones
}

// String is name@version, for messages.
func (e Entry) String() string { return e.Name + "@" + e.Version }

// PackageURL is the package's purl.
func (e Entry) PackageURL() string {
	return "pkg:npm/" + strings.ReplaceAll(e.Name, "@", "%40") + "@" + e.Version
}

// Lock is a lock file that was read and can be installed.
type Lock struct {
	// Packages are sorted by path.
	Packages []Entry
	roots    []string // names that the project asks for
}

// Find gives the package at a path.
func (l *Lock) Find(path string) (Entry, bool) {
	at, found := slices.BinarySearchFunc(l.Packages, path, func(e Entry, path string) int {
		return compareText(e.Path, path)
	})
	if !found {
		return Entry{}, false
	}
	return l.Packages[at], true
}

// Uses lists the paths of the packages that the package at path ("" is the
// project) depends on, sorted.
func (l *Lock) Uses(path string) []string {
	names := l.roots
	if path != "" {
		entry, _ := l.Find(path)
		names = entry.needs
	}
	var paths []string
	for _, name := range names {
		if found := l.lookUp(path, name); found != "" {
			paths = append(paths, found)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// lookUp finds where Node would find a package for code of the package at path.
func (l *Lock) lookUp(path, name string) string {
	found := ""
	ancestors(path, name, func(candidate string) bool {
		if _, ok := l.Find(candidate); ok {
			found = candidate
		}
		return found != ""
	})
	return found
}

// Read reads a lock file for a package.json. The package named offered is left
// out wherever it stands: the platform offers that module itself. What cannot
// be installed is listed, up to project.MaxProblems, each with the package's
// name; the lock is nil then.
func (p *Packages) Read(text []byte, root Root, offered string) (*Lock, []fault.Problem) {
	r := &lockReader{sources: p.registry.sources(), root: root, offered: offered}
	r.read(text)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return r.lock, nil
}

// lockReader is one reading.
type lockReader struct {
	sources  []source
	root     Root
	offered  string
	doc      *project.Document
	packages map[string]any
	lock     *Lock
	required map[string][]string // by path: what must be installed for it
	problems []fault.Problem
}

func (r *lockReader) add(kind string, loc []any, format string, args ...any) {
	if len(r.problems) < project.MaxProblems {
		r.problems = append(r.problems, fault.Problem{Type: kind, Loc: loc, Msg: fmt.Sprintf(format, args...)})
	}
}

// at reports a problem of one package, with its place.
func (r *lockReader) at(kind, path, format string, args ...any) {
	line, column := r.doc.Place("packages", path)
	text := fmt.Sprintf(format, args...)
	r.add(kind, []any{LockName, "packages", path}, "%s (line %d, column %d)", text, line, column)
}

func (r *lockReader) read(text []byte) {
	if len(text) > MaxLock {
		r.add(lockInvalid, []any{LockName}, "the lock file has more than 8 MiB")
		return
	}
	var err error
	r.doc, err = project.ParseJSON(text)
	var invalid *project.JSONError
	if errors.As(err, &invalid) {
		r.add(lockInvalid, []any{LockName, invalid.Line, invalid.Column}, "%v", err)
		return
	}
	file, _ := r.doc.Value().(map[string]any)
	if file["lockfileVersion"] != json.Number("3") {
		r.add(lockInvalid, []any{LockName, "lockfileVersion"}, "only lock files of version 3 are read: write it with npm 7 or later (npm install --lockfile-version 3)")
		return
	}
	r.packages, _ = file["packages"].(map[string]any)
	r.lock, r.required = &Lock{}, map[string][]string{}
	r.agree()
	for _, path := range slices.Sorted(maps.Keys(r.packages)) {
		if path == "" {
			continue
		}
		if len(r.lock.Packages) == MaxPackages {
			r.at(tooMany, path, "the lock file installs more than %d packages; the first beyond is %s", MaxPackages, quoted(path))
			return
		}
		r.entry(path)
	}
	if len(r.problems) == 0 {
		r.complete()
	}
	if len(r.problems) == 0 {
		r.circle()
	}
}

// agree compares the lock file's copy of package.json with package.json.
func (r *lockReader) agree() {
	top := object(r.packages[""])
	locked := Root{texts(top["dependencies"]), texts(top["optionalDependencies"]), texts(top["peerDependencies"])}
	for _, section := range []struct {
		name         string
		has, records map[string]string
	}{
		{"dependencies", without(r.root.Dependencies, r.root.Optional), without(locked.Dependencies, locked.Optional)},
		{"optionalDependencies", r.root.Optional, locked.Optional},
		{"peerDependencies", r.root.Peer, locked.Peer},
	} {
		names := map[string]bool{}
		for name := range section.has {
			names[name] = true
		}
		for name := range section.records {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if name == r.offered {
				continue
			}
			r.lock.roots = append(r.lock.roots, name)
			wanted, has := section.has[name]
			recorded, records := section.records[name]
			if has != records || wanted != recorded {
				r.add(lockOutdated, []any{"package.json", section.name, name},
					"the lock file is out of date: package.json asks for %s, the lock file records %s; run npm install", asked(name, wanted, has), asked(name, recorded, records))
			}
		}
	}
	required := slices.Sorted(maps.Keys(without(r.root.Dependencies, r.root.Optional)))
	r.required[""] = slices.DeleteFunc(required, func(name string) bool { return name == r.offered })
}

func asked(name, wanted string, has bool) string {
	if !has {
		return "no " + quoted(name)
	}
	return quoted(name + "@" + wanted)
}

// complete refuses a lock file that lacks what one of its packages requires.
func (r *lockReader) complete() {
	for _, path := range slices.Sorted(maps.Keys(r.required)) {
		for _, name := range r.required[path] {
			if r.lock.lookUp(path, name) != "" || name == r.offered {
				continue
			}
			if path == "" {
				r.add(lockOutdated, []any{"package.json", "dependencies", name}, "the lock file is out of date: it does not install %s; run npm install", quoted(name))
				continue
			}
			r.at(lockOutdated, path, "the lock file is out of date: it does not install %s, which %s requires; run npm install", quoted(name), quoted(path))
		}
	}
}
