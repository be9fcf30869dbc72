package project

import "strings"

// reserved is the prefix of the paths that the platform keeps for itself.
const reserved = "/__"

// badPattern says what is wrong with a path pattern that the schema accepts.
func badPattern(pattern string) string {
	if strings.HasPrefix(pattern, reserved) {
		return "paths that begin with /__ belong to the platform"
	}
	seen := map[string]bool{}
	for _, segment := range segments(pattern) {
		if segment == "." || segment == ".." {
			return "the path has a segment " + segment
		}
		name, ok := Parameter(segment)
		if ok && seen[name] {
			return "the path has the parameter {" + name + "} twice"
		}
		seen[name] = ok
	}
	return ""
}

// segments splits a pattern or a path; the root has none.
func segments(path string) []string {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// Parameter returns the name inside a pattern's segment such as {id}.
func Parameter(segment string) (string, bool) {
	if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}

// Overlap reports whether some path matches both patterns.
func Overlap(a, b string) bool {
	left, right := segments(a), segments(b)
	if len(left) != len(right) {
		return false
	}
	for i := range left {
		_, free := Parameter(left[i])
		_, open := Parameter(right[i])
		if !free && !open && left[i] != right[i] {
			return false
		}
	}
	return true
}
