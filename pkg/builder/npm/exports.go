package npm

import (
	"slices"
	"strings"
)

// conditions are those of package exports that hold here, besides import or
// require: a Worker, which is a browser without a window, built by a bundler for
// production. "workerd" is not among them: such builds import cloudflare:
// modules, which projects do not have.
var conditions = []string{"worker", "browser", "module", "production", "default"}

func holds(condition string, require bool) bool {
	switch condition {
	case "import":
		return !require
	case "require":
		return require
	}
	return slices.Contains(conditions, condition)
}

// exported finds what "." or "./sub" means in a package's exports: a path that
// begins with "./". It follows PACKAGE_EXPORTS_RESOLVE of Node's documentation.
func exported(exports any, subpath string, require bool) (string, bool) {
	table, isTable := exports.(members)
	if !isTable || !isSubpaths(table) {
		if subpath != "." {
			return "", false
		}
		return target(exports, "", require, false)
	}
	return inTable(table, subpath, require, false)
}

// imported finds what "#name" means in a package's imports: a path that begins
// with "./", or a package.
func imported(imports members, name string, require bool) (string, bool) {
	return inTable(imports, name, require, true)
}

// isSubpaths tells a table of subpaths from one of conditions.
func isSubpaths(table members) bool {
	return len(table) > 0 && strings.HasPrefix(table[0].key, ".")
}

// inTable takes the exact key, or the most exact pattern.
func inTable(table members, name string, require, outside bool) (string, bool) {
	if !strings.Contains(name, "*") {
		for _, entry := range table {
			if entry.key == name {
				return target(entry.value, "", require, outside)
			}
		}
	}
	best, rest := member{}, ""
	for _, entry := range table {
		prefix, suffix, pattern := strings.Cut(entry.key, "*")
		if !pattern || strings.Contains(suffix, "*") || len(name) < len(entry.key) ||
			!strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix) {
			continue
		}
		if best.key == "" || moreExact(entry.key, best.key) {
			best, rest = entry, name[len(prefix):len(name)-len(suffix)]
		}
	}
	if best.key == "" {
		return "", false
	}
	return target(best.value, rest, require, outside)
}

// moreExact orders patterns: the longer text before the star first.
func moreExact(a, b string) bool {
	first, second := strings.IndexByte(a, '*'), strings.IndexByte(b, '*')
	if first != second {
		return first > second
	}
	return len(a) > len(b)
}

// target resolves the value of a key: a path, a list of which the first usable
// is taken, or conditions of which the first that holds and leads somewhere is.
func target(value any, rest string, require, outside bool) (string, bool) {
	switch value := value.(type) {
	case string:
		path := strings.ReplaceAll(value, "*", rest)
		return path, strings.HasPrefix(path, "./") || outside && !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "../")
	case []any:
		for _, item := range value {
			if found, ok := target(item, rest, require, outside); ok {
				return found, true
			}
		}
	case members:
		for _, entry := range value {
			if !holds(entry.key, require) {
				continue
			}
			// null ends the search, as what has no meaning for this condition.
			if entry.value == nil {
				return "", false
			}
			if found, ok := target(entry.value, rest, require, outside); ok {
				return found, true
			}
		}
	}
	return "", false
}
