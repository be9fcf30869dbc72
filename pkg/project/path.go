package project

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// cleanPath checks an entry's name and returns it without a leading "./" and,
// for a folder, without the trailing slash. The root folder is "". The second
// result says what is wrong; it is empty for a good name.
//
// Refused is whatever names something outside the folder, or names different
// files on different systems (D7).
func cleanPath(name string, folder bool) (string, string) {
	if fault := badText(name); fault != "" {
		return "", fault
	}
	if strings.HasPrefix(name, "/") {
		return "", "the path is absolute"
	}
	path := name
	for strings.HasPrefix(path, "./") {
		path = path[2:]
	}
	if folder {
		path = strings.TrimSuffix(path, "/")
		if path == "" || path == "." {
			return "", ""
		}
	}
	for _, segment := range strings.Split(path, "/") {
		switch segment {
		case "":
			return "", "the path has an empty segment"
		case ".", "..":
			return "", "the path has a segment " + strconv.Quote(segment)
		}
	}
	return path, ""
}

// badText says what is wrong with the characters or the length of a name.
func badText(name string) string {
	switch {
	case name == "":
		return "the path is empty"
	case len(name) > MaxPath:
		return "the path is longer than 255 bytes"
	case !utf8.ValidString(name):
		return "the path is not valid UTF-8"
	case strings.ContainsRune(name, '\\'):
		return "the path has a backslash"
	case strings.ContainsFunc(name, control):
		return "the path has a control character"
	}
	return ""
}

// control reports control characters, and the invisible ones that make two
// names look alike or turn the reading direction.
func control(r rune) bool { return unicode.Is(unicode.C, r) || r == '\u2028' || r == '\u2029' }

// printable makes a refused name fit for an answer: bounded and without
// control characters.
func printable(name string) string {
	const limit = 300
	if len(name) > limit {
		name = name[:limit] + "…"
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, control) {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// foldName maps names to one key that a case-insensitive or normalizing file
// system would take for the same name.
func foldName(name string) string {
	return norm.NFC.String(cases.Fold().String(norm.NFC.String(name)))
}

// names remembers what each name of an archive is, folders that are only
// implied by a path included.
type names struct {
	taken map[string]taken // by folded path
}

type taken struct {
	path   string
	folder bool
}

func newNames() *names { return &names{taken: map[string]taken{}} }

// claim takes a path and its parents. The result says why it cannot be; it is
// empty when it can. A folder may be named again in the same spelling.
func (n *names) claim(path string, folder bool) string {
	for at := 0; at < len(path); at++ {
		if path[at] != '/' {
			continue
		}
		if conflict := n.one(path[:at], true); conflict != "" {
			return conflict
		}
	}
	return n.one(path, folder)
}

func (n *names) one(path string, folder bool) string {
	key := foldName(path)
	before, ok := n.taken[key]
	if !ok {
		n.taken[key] = taken{path, folder}
		return ""
	}
	switch {
	case before.path != path:
		return "the name equals " + strconv.Quote(before.path) + " when case is ignored"
	case before.folder != folder:
		return strconv.Quote(path) + " is both a file and a folder"
	case !folder:
		return "the name is in the archive twice"
	}
	return ""
}
