package npm

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// entry reads one package of a lock file.
func (r *lockReader) entry(path string) {
	fields := object(r.packages[path])
	name := installName(path)
	if name == r.offered || flag(fields, "dev") || flag(fields, "extraneous") {
		return
	}
	if name == "" || fields == nil {
		r.at(unsupported, path, "%s is not a package below node_modules: workspaces and linked folders are not supported", quoted(path))
		return
	}
	if flag(fields, "link") {
		r.at(unsupported, path, "%s is a link to a folder: only packages of the npm registry are supported", name)
		return
	}
	if flag(fields, "inBundle") {
		r.at(unsupported, path, "%s is bundled inside another package, which is not supported", name)
		return
	}
	if !fits(fields) {
		if !flag(fields, "optional") && !flag(fields, "devOptional") {
			r.at(unsupported, path, "%s is for other platforms only (os, cpu or libc)", name)
		}
		return
	}
	entry := Entry{Path: path, Name: name, Version: text(fields, "version")}
	if real := text(fields, "name"); real != "" {
		entry.Name = real
	}
	if !validName(entry.Name) || !validVersion(entry.Version) {
		// A git or file source has such versions, too: say that first.
		if problem := r.foreign(text(fields, "resolved")); problem != "" {
			r.at(unsupported, path, "%s %s", name, problem)
			return
		}
		r.at(lockInvalid, path, "%s has no valid name and version", quoted(path))
		return
	}
	if problem := r.origin(entry, text(fields, "resolved")); problem != "" {
		r.at(unsupported, path, "%s %s", entry, problem)
		return
	}
	sum, err := parseIntegrity(text(fields, "integrity"))
	if err != nil {
		r.at(noIntegrity, path, "%s: %v", entry, err)
		return
	}
	entry.Integrity = sum
	required := texts(fields["dependencies"])
	optional := texts(fields["optionalDependencies"])
	r.required[path] = slices.Sorted(maps.Keys(without(required, optional)))
	for _, names := range []map[string]string{required, optional, texts(fields["peerDependencies"])} {
		entry.needs = append(entry.needs, slices.Collect(maps.Keys(names))...)
	}
	r.lock.Packages = append(r.lock.Packages, entry)
}

// origin says what is wrong with the address of a package. It must be the one
// that the registry itself gives its tarball; it is compared and never used.
func (r *lockReader) origin(entry Entry, resolved string) string {
	if problem := r.foreign(resolved); problem != "" {
		return problem
	}
	for _, s := range r.sources {
		if s.has(resolved, entry) {
			return ""
		}
	}
	return "has an address in the lock file that is not its own in the registry: " + quoted(resolved)
}

// foreign says why an address is not one of the registry at all.
func (r *lockReader) foreign(resolved string) string {
	scheme, _, _ := strings.Cut(resolved, ":")
	switch {
	case resolved == "":
		return "has no address in the lock file: write it with npm install --omit-lockfile-registry-resolved=false"
	case strings.HasPrefix(scheme, "git"):
		return "comes from a git repository: only packages of the npm registry are supported"
	case scheme == "file":
		return "comes from a file: only packages of the npm registry are supported"
	}
	for _, s := range r.sources {
		if s.owns(resolved) {
			return ""
		}
	}
	return "comes from " + quoted(resolved) + ": only packages of the npm registry are supported"
}

// source is a registry whose addresses lock files may hold.
type source struct{ base *url.URL }

func (s source) owns(address string) bool {
	parsed, err := url.Parse(address)
	return err == nil && parsed.Scheme == s.base.Scheme && strings.EqualFold(parsed.Host, s.base.Host) &&
		parsed.User == nil && parsed.RawQuery == "" && parsed.Fragment == ""
}

// has compares with the address of the package's tarball.
func (s source) has(address string, entry Entry) bool {
	parsed, err := url.Parse(address)
	return err == nil && s.owns(address) && parsed.Path == s.base.Path+tarballPath(entry)
}

// tarballPath is where every registry has a package's tarball.
func tarballPath(entry Entry) string {
	short := entry.Name[strings.LastIndexByte(entry.Name, '/')+1:]
	return "/" + entry.Name + "/-/" + short + "-" + entry.Version + ".tgz"
}

// fits reports whether a package is for a platform that is none of those that
// can be named, as npm would decide it: a list of excluded names fits, one of
// wanted names does not.
func fits(fields map[string]any) bool {
	for _, key := range []string{"os", "cpu", "libc"} {
		names := listed(fields[key])
		if len(names) == 0 || slices.Contains(names, "any") {
			continue
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "!") {
				return false
			}
		}
	}
	return true
}

// The parts of a lock file are read leniently: what has another type is absent.

func object(value any) map[string]any {
	fields, _ := value.(map[string]any)
	return fields
}

func text(fields map[string]any, key string) string {
	value, _ := fields[key].(string)
	return value
}

func flag(fields map[string]any, key string) bool { return fields[key] == true }

func texts(value any) map[string]string {
	all := map[string]string{}
	for name, v := range object(value) {
		all[name], _ = v.(string)
	}
	return all
}

// listed reads a list of texts; npm takes one text for a list of one.
func listed(value any) []string {
	if one, ok := value.(string); ok {
		return []string{one}
	}
	items, _ := value.([]any)
	var all []string
	for _, item := range items {
		if one, ok := item.(string); ok {
			all = append(all, one)
		}
	}
	return all
}

func without(all, dropped map[string]string) map[string]string {
	left := maps.Clone(all)
	for name := range dropped {
		delete(left, name)
	}
	return left
}

// quoted makes a text from outside fit for a message: bounded and printable.
func quoted(text string) string {
	const limit = 200
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return strconv.Quote(text)
}

func compareText(a, b string) int { return strings.Compare(a, b) }
