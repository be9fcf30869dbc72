package npm

import (
	"regexp"
	"strings"
)

var (
	// packageNames are those that the registry ever accepted: old ones may have
	// upper case, new ones may not (validate-npm-package-name).
	packageNames = regexp.MustCompile(`\A(@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*\z`)
	// versions are those of Semantic Versioning 2.0.0 without build metadata,
	// which the registry drops.
	versions = regexp.MustCompile(`\A(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?\z`)
)

const (
	maxName     = 214  // bytes of a package name, npm's own bound
	maxVersion  = 256  // bytes of a version, npm's own bound
	maxPath     = 1024 // bytes of an installation path
	modules     = "node_modules/"
	nestedBelow = "/" + modules
)

func validName(name string) bool {
	return len(name) <= maxName && name != "node_modules" && packageNames.MatchString(name)
}

func validVersion(version string) bool {
	return len(version) <= maxVersion && versions.MatchString(version)
}

// installName gives the name under which a package is installed at a path such
// as node_modules/a/node_modules/@s/b; it is empty unless each part of the path
// is one of a package.
func installName(path string) string {
	rest, ok := strings.CutPrefix(path, modules)
	if !ok || len(path) > maxPath {
		return ""
	}
	name := ""
	for _, name = range strings.Split(rest, nestedBelow) {
		if !validName(name) {
			return ""
		}
	}
	return name
}

// ancestors calls visit with each path at which a package named name may be
// installed for code of the package at path ("" is the project): nearest first,
// as Node looks for it. It stops when visit reports true.
func ancestors(path, name string, visit func(candidate string) bool) {
	for {
		if path == "" {
			visit(modules + name)
			return
		}
		if visit(path + nestedBelow + name) {
			return
		}
		at := strings.LastIndex(path, nestedBelow)
		path = path[:max(at, 0)]
	}
}

// splitSpecifier splits "name/sub/path" or "@s/name/sub/path" into the
// package's name and the subpath that exports know: "." or "./sub/path". The
// name is empty when it cannot be one.
func splitSpecifier(specifier string) (string, string) {
	end := strings.IndexByte(specifier, '/')
	if strings.HasPrefix(specifier, "@") && end > 0 {
		next := strings.IndexByte(specifier[end+1:], '/')
		if next >= 0 {
			next += end + 1
		}
		end = next
	}
	if end < 0 {
		end = len(specifier)
	}
	name, subpath := specifier[:end], specifier[end:]
	if !validName(name) {
		return "", ""
	}
	// "punycode/" is how code asks for the package and not for Node's module.
	if subpath == "" || subpath == "/" {
		return name, "."
	}
	return name, "." + subpath
}
