package npm

import (
	"slices"
	"strings"
	"testing"
)

func TestInstallName(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"node_modules/a":                                 "a",
		"node_modules/@s/b":                              "@s/b",
		"node_modules/JSONStream":                        "JSONStream",
		"node_modules/a/node_modules/@s/b":               "@s/b",
		"node_modules/@s/b/node_modules/c":               "c",
		"node_modules/a/node_modules/b/node_modules/c.d": "c.d",
		"node_modules/~a_-":                              "~a_-",
		"":                                               "",
		"a":                                              "",
		"packages/a":                                     "",
		"node_modules/":                                  "",
		"node_modules/a/":                                "",
		"node_modules/a/b":                               "",
		"node_modules/@s":                                "",
		"node_modules/@s/b/c":                            "",
		"node_modules/.bin":                              "",
		"node_modules/..":                                "",
		"node_modules/../a":                              "",
		"node_modules/a/../b":                            "",
		"node_modules/a/node_modules":                    "",
		"node_modules/node_modules":                      "",
		"node_modules/a\\b":                              "",
		"node_modules/a b":                               "",
		"node_modules/a\x00":                             "",
		"node_modules/ä":                                 "",
		"/node_modules/a":                                "",
		"x/node_modules/a":                               "",
		"node_modules/" + strings.Repeat("a", 214):       strings.Repeat("a", 214),
		"node_modules/" + strings.Repeat("a", 215):       "",
		strings.Repeat("node_modules/aaaaaaa/", 49) + "node_modules/a": "",
	} {
		if got := installName(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"1.2.3": true, "0.0.0": true, "1.2.3-beta.1": true, "1.0.0-0.3.7-x": true,
		"": false, "1": false, "1.2": false, "v1.2.3": false, "1.2.3/..": false, "01.2.3": false, "1.2.3+b": false, "1.2.3-": false,
		"latest": false, "1.2.3\n": false, "file:x": false, "1.2.3-" + strings.Repeat("a", 300): false,
	} {
		if validVersion(version) != want {
			t.Errorf("%q is valid: %v", version, !want)
		}
	}
}

func TestSplitSpecifier(t *testing.T) {
	t.Parallel()
	for specifier, want := range map[string][2]string{
		"a": {"a", "."}, "a/": {"a", "."}, "a/b/c.js": {"a", "./b/c.js"}, "@s/a": {"@s/a", "."}, "@s/a/b": {"@s/a", "./b"},
		"a/../b": {"a", "./../b"}, "@s": {}, "@/a": {}, "": {}, ".a": {}, "_a": {}, "a b": {}, "node:fs": {}, "/a": {}, "node_modules/x": {},
	} {
		name, subpath := splitSpecifier(specifier)
		if name != want[0] || subpath != want[1] {
			t.Errorf("%q: %q %q, want %q", specifier, name, subpath, want)
		}
	}
}

// Nearest first, and never inside a scope's folder.
func TestAncestors(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"": {"node_modules/x"},
		"node_modules/@s/a/node_modules/b": {
			"node_modules/@s/a/node_modules/b/node_modules/x", "node_modules/@s/a/node_modules/x", "node_modules/x",
		},
	} {
		var got []string
		ancestors(path, "x", func(candidate string) bool {
			got = append(got, candidate)
			return false
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestIntegrity(t *testing.T) {
	t.Parallel()
	const good = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==" // of nothing
	for text, want := range map[string]string{
		good: "",
		"sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk= " + good: "",
		"  " + good + "\n":                          "",
		"":                                          "no integrity",
		" ":                                         "no integrity",
		"sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=":         "not a sha512",
		"sha384-" + good[7:]:                        "not a sha512",
		good + " " + good:                           "several",
		good[:len(good)-4]:                          "malformed",
		"sha512-":                                   "malformed",
		"sha512-!" + good[8:]:                       "malformed",
		good + "?foo":                               "malformed",
		strings.Replace(good, "Pg==", "Ph==", 1):    "malformed", // bits beyond the digest
	} {
		sum, err := parseIntegrity(text)
		if want == "" {
			if err != nil || !sum.Matches(nil) || sum.Matches([]byte("x")) || sum.String() != good {
				t.Errorf("%q: %v %v", text, sum, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
