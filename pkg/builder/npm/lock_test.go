package npm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/fault"
)

type (
	fields = npmtest.Fields
	lock   = map[string]npmtest.Fields
)

// offered is the module that the platform offers itself.
const offered = "@teamsync/edge-worker"

func packages(t testing.TB, p npm.Params) *npm.Packages {
	t.Helper()
	if p.Retry == 0 {
		p.Retry = time.Millisecond
	}
	made, err := npm.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func lines(problems []fault.Problem) []string {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = fmt.Sprintf("%s %v: %s", p.Type, p.Loc, p.Msg)
	}
	return all
}

var (
	pad   = npmtest.Make("left-pad", "1.3.0", nil)
	inner = npmtest.Make("@s/inner", "2.0.0-rc.1", nil)
)

// needs is a root that depends on left-pad.
var needs = npm.Root{Dependencies: map[string]string{"left-pad": "^1.0.0"}}

// one is a lock file of left-pad with changes to its entry.
func one(changes fields) lock {
	return lock{"": {"dependencies": fields{"left-pad": "^1.0.0"}}, "node_modules/left-pad": npmtest.Installed(pad, changes)}
}

func with(base lock, path string, entry fields) lock {
	base[path] = entry
	return base
}

func TestLockRefuses(t *testing.T) {
	t.Parallel()
	const at = "[package-lock.json packages node_modules/left-pad]: "
	sha1 := "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="
	for name, c := range map[string]struct {
		lock lock
		want []string // parts of each problem
	}{
		"good":                               {one(nil), nil},
		"a git source":                       {one(fields{"resolved": "git+ssh://git@github.com/stevemao/left-pad.git#abc"}), []string{"dependency_unsupported " + at + "left-pad@1.3.0 comes from a git repository"}},
		"a git version":                      {one(fields{"resolved": "git+https://github.com/stevemao/left-pad.git#abc", "version": nil}), []string{"dependency_unsupported " + at + "left-pad comes from a git repository"}},
		"a file":                             {one(fields{"resolved": "file:left-pad.tgz"}), []string{"dependency_unsupported " + at + "left-pad@1.3.0 comes from a file"}},
		"a link":                             {one(fields{"resolved": "vendor/left-pad", "link": true}), []string{"dependency_unsupported " + at + "left-pad is a link"}},
		"plain http":                         {one(fields{"resolved": "http://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz"}), []string{`dependency_unsupported ` + at + `left-pad@1.3.0 comes from "http://registry.npmjs.org`}},
		"another host":                       {one(fields{"resolved": "https://evil.example/left-pad/-/left-pad-1.3.0.tgz"}), []string{`dependency_unsupported ` + at + `left-pad@1.3.0 comes from "https://evil.example/`}},
		"a host that begins alike":           {one(fields{"resolved": "https://registry.npmjs.org.evil.example/left-pad/-/left-pad-1.3.0.tgz"}), []string{"left-pad@1.3.0 comes from"}},
		"a user before the host":             {one(fields{"resolved": "https://registry.npmjs.org@evil.example/left-pad/-/left-pad-1.3.0.tgz"}), []string{"left-pad@1.3.0 comes from"}},
		"a user":                             {one(fields{"resolved": "https://me@registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz"}), []string{"left-pad@1.3.0 comes from"}},
		"a query":                            {one(fields{"resolved": "https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz?x"}), []string{"left-pad@1.3.0 comes from"}},
		"another port":                       {one(fields{"resolved": "https://registry.npmjs.org:8443/left-pad/-/left-pad-1.3.0.tgz"}), []string{"left-pad@1.3.0 comes from"}},
		"another package":                    {one(fields{"resolved": "https://registry.npmjs.org/right-pad/-/right-pad-1.3.0.tgz"}), []string{"left-pad@1.3.0 has an address in the lock file that is not its own"}},
		"another version":                    {one(fields{"resolved": "https://registry.npmjs.org/left-pad/-/left-pad-1.2.0.tgz"}), []string{"left-pad@1.3.0 has an address in the lock file that is not its own"}},
		"a path with dots":                   {one(fields{"resolved": "https://registry.npmjs.org/x/../left-pad/-/left-pad-1.3.0.tgz"}), []string{"not its own"}},
		"no address":                         {one(fields{"resolved": nil}), []string{"left-pad@1.3.0 has no address in the lock file"}},
		"no integrity":                       {one(fields{"integrity": nil}), []string{"dependency_integrity_invalid " + at + "left-pad@1.3.0: it has no integrity"}},
		"only a sha1":                        {one(fields{"integrity": sha1}), []string{"dependency_integrity_invalid " + at + "left-pad@1.3.0: its integrity is not a sha512"}},
		"a sha512 cut short":                 {one(fields{"integrity": "sha512-AAAA"}), []string{"dependency_integrity_invalid " + at + "left-pad@1.3.0: its sha512 integrity is malformed"}},
		"a bundled package":                  {one(fields{"inBundle": true}), []string{"dependency_unsupported " + at + "left-pad is bundled"}},
		"no version":                         {one(fields{"version": nil}), []string{"lock_invalid " + at + `"node_modules/left-pad" has no valid name and version`}},
		"a version that is a path":           {one(fields{"version": "1.3.0/../../x"}), []string{"lock_invalid"}},
		"a name that is a path":              {one(fields{"name": "../x"}), []string{"lock_invalid"}},
		"another platform only":              {one(fields{"os": []string{"darwin"}}), []string{"dependency_unsupported " + at + "left-pad is for other platforms only"}},
		"a workspace":                        {with(one(nil), "packages/app", fields{"version": "1.0.0"}), []string{`dependency_unsupported [package-lock.json packages packages/app]: "packages/app" is not a package below node_modules`}},
		"a path that leaves":                 {with(one(nil), "node_modules/../../etc", fields{"version": "1.0.0"}), []string{`"node_modules/../../etc" is not a package below node_modules`}},
		"an entry that is no object":         {with(one(nil), "node_modules/x", nil), []string{`"node_modules/x" is not a package`}},
		"a dependency that is not installed": {one(fields{"dependencies": fields{"gone": "1"}}), []string{"lock_out_of_date " + at + `the lock file is out of date: it does not install "gone", which "node_modules/left-pad" requires`}},
		"packages in a circle": {with(one(fields{"dependencies": fields{"@s/inner": "2"}}), "node_modules/@s/inner", npmtest.Installed(inner, fields{"dependencies": fields{"left-pad": "1"}})),
			[]string{"dependency_cyclic [package-lock.json packages node_modules/@s/inner]: @s/inner@2.0.0-rc.1 requires itself: @s/inner@2.0.0-rc.1 → left-pad@1.3.0 → @s/inner@2.0.0-rc.1"}},
		"a dependency that is for development": {with(one(fields{"dependencies": fields{"@s/inner": "2"}}), "node_modules/@s/inner", npmtest.Installed(inner, fields{"dev": true})),
			[]string{`it does not install "@s/inner"`}},
		"the wanted package is gone": {lock{"": {"dependencies": fields{"left-pad": "^1.0.0"}}}, []string{`lock_out_of_date [package.json dependencies left-pad]: the lock file is out of date: it does not install "left-pad"`}},
		"another range":              {lock{"": {"dependencies": fields{"left-pad": "^2.0.0"}}, "node_modules/left-pad": npmtest.Installed(pad, nil)}, []string{`lock_out_of_date [package.json dependencies left-pad]: the lock file is out of date: package.json asks for "left-pad@^1.0.0", the lock file records "left-pad@^2.0.0"`}},
		"not recorded":               {lock{"": {}, "node_modules/left-pad": npmtest.Installed(pad, nil)}, []string{`package.json asks for "left-pad@^1.0.0", the lock file records no "left-pad"`}},
		"one too many":               {with(one(nil), "", fields{"dependencies": fields{"left-pad": "^1.0.0", "more": "1"}}), []string{`[package.json dependencies more]: the lock file is out of date: package.json asks for no "more", the lock file records "more@1"`}},
		"two at once":                {with(one(fields{"integrity": sha1}), "node_modules/@s/inner", npmtest.Installed(inner, fields{"resolved": "file:x"})), []string{"@s/inner@2.0.0-rc.1 comes from a file", "left-pad@1.3.0: its integrity"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := packages(t, npm.Params{}).Read([]byte(npmtest.Lock(c.lock)), needs, offered)
			found := lines(problems)
			if len(found) != len(c.want) || (got == nil) != (len(c.want) > 0) {
				t.Fatalf("got %q, want %q", found, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(found[i], want) || !strings.Contains(found[i], "line") && !strings.Contains(found[i], "package.json") {
					t.Errorf("got  %s\nwant %s", found[i], want)
				}
			}
		})
	}
}

func TestLockText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{":                       "lock_invalid [package-lock.json 1 2]: invalid JSON",
		"":                        "lock_invalid [package-lock.json 1 1]: invalid JSON",
		"[]":                      "only lock files of version 3",
		"{}":                      "only lock files of version 3",
		`{"lockfileVersion":1}`:   "only lock files of version 3",
		`{"lockfileVersion":2}`:   "only lock files of version 3",
		`{"lockfileVersion":"3"}`: "only lock files of version 3",
		`{"lockfileVersion":3,"lockfileVersion":3}`:                                             "a key is given twice",
		`{"lockfileVersion":3,"packages":{"node_modules/a":{},"node_modules/a":{}}}`:            "a key is given twice",
		`{"lockfileVersion":3,"x":"` + "\xff" + `"}`:                                            "not valid UTF-8",
		`{"lockfileVersion":3,"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "nested deeper",
		`{"lockfileVersion":3,"x":"` + strings.Repeat("x", npm.MaxLock) + `"}`:                  "more than 8 MiB",
		`{"lockfileVersion":3}`:                 "",
		`{"lockfileVersion":3,"packages":{}}`:   "",
		`{"lockfileVersion":3,"packages":null}`: "",
	} {
		_, problems := packages(t, npm.Params{}).Read([]byte(text), npm.Root{}, offered)
		found := strings.Join(lines(problems), "\n")
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%.60q: %s, want %q", text, found, want)
		}
	}
}

// What npm installs for production on a platform that nobody named is what is
// installed here.
func TestLockInstalls(t *testing.T) {
	t.Parallel()
	make := func(name string, changes fields) fields {
		return npmtest.Installed(npmtest.Make(name, "1.0.0", nil), changes)
	}
	file := npmtest.Lock(lock{
		"": {
			"dependencies": fields{"a": "1", offered: "1"}, "optionalDependencies": fields{"mac": "1", "gone": "1"},
			"devDependencies": fields{"typescript": "9"}, "peerDependencies": fields{"peer": "1"},
		},
		"node_modules/a":                         make("a", fields{"dependencies": fields{"b": "1", "@s/c": "1"}, "optionalDependencies": fields{"b": "1", "never": "1"}, "peerDependencies": fields{"peer": "*", "absent": "*"}}),
		"node_modules/a/node_modules/b":          make("b", fields{"dependencies": fields{"a": "1"}, "hasInstallScript": true}), // back to one that has it as an option
		"node_modules/b":                         make("b", fields{"version": "2.0.0", "resolved": "https://registry.npmjs.org/b/-/b-2.0.0.tgz"}),
		"node_modules/@s/c":                      make("@s/c", fields{"os": []string{"!win32"}, "cpu": []string{"any"}, "libc": []string{}}),
		"node_modules/alias":                     make("real", fields{"name": "real", "devOptional": true}),
		"node_modules/peer":                      make("peer", fields{"peer": true}),
		"node_modules/mac":                       make("mac", fields{"optional": true, "os": []string{"darwin"}}),
		"node_modules/mips":                      make("mips", fields{"devOptional": true, "cpu": []string{"mips"}}),
		"node_modules/musl":                      make("musl", fields{"optional": true, "libc": "musl"}),
		"node_modules/typescript":                {"dev": true, "resolved": "git+ssh://anything"},
		"node_modules/left-over":                 make("left-over", fields{"extraneous": true}),
		"node_modules/" + offered:                {"link": true, "resolved": "node_modules/a"},
		"node_modules/a/node_modules/" + offered: {"resolved": "file:x"},
	})
	root := npm.Root{
		Dependencies: map[string]string{"a": "1", offered: "2", "mac": "1"}, // an optional one may be in both
		Optional:     map[string]string{"mac": "1", "gone": "1"}, Peer: map[string]string{"peer": "1"},
	}
	got, problems := packages(t, npm.Params{}).Read([]byte(file), root, offered)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	var paths []string
	for _, entry := range got.Packages {
		paths = append(paths, entry.Path+" "+entry.String())
	}
	want := []string{
		"node_modules/@s/c @s/c@1.0.0", "node_modules/a a@1.0.0", "node_modules/a/node_modules/b b@1.0.0",
		"node_modules/alias real@1.0.0", "node_modules/b b@2.0.0", "node_modules/peer peer@1.0.0",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("got  %q\nwant %q", paths, want)
	}
	for path, want := range map[string][]string{
		"":                              {"node_modules/a", "node_modules/peer"},
		"node_modules/a":                {"node_modules/@s/c", "node_modules/a/node_modules/b", "node_modules/peer"},
		"node_modules/a/node_modules/b": {"node_modules/a"},
		"node_modules/peer":             nil,
	} {
		if uses := got.Uses(path); !slices.Equal(uses, want) {
			t.Errorf("%q uses %q", path, uses)
		}
	}
}

// A lock file may name the configured registry, and npm's own always.
func TestLockRegistries(t *testing.T) {
	t.Parallel()
	const own = "http://npm.example:4873/repository/npm"
	path := strings.TrimPrefix(pad.Resolved(), npm.DefaultRegistry)
	for resolved, want := range map[string]bool{
		own + path: true, npm.DefaultRegistry + path: true,
		"http://npm.example:4873" + path:                     false,
		"https://npm.example:4873/repository/npm" + path:     false,
		"http://npm.example:4873/repository/npm2" + path:     false,
		"http://npm.example:4873/repository/npm/x/.." + path: false,
	} {
		_, problems := packages(t, npm.Params{Registry: own + "/"}).Read([]byte(npmtest.Lock(one(fields{"resolved": resolved}))), needs, offered)
		if (len(problems) == 0) != want {
			t.Errorf("%s: %q", resolved, lines(problems))
		}
	}
}

// 10,000 packages are one refusal that names the first beyond the bound.
func TestTooManyPackages(t *testing.T) {
	t.Parallel()
	all := func(n int) string {
		file := lock{"": {}}
		for i := range n {
			p := npmtest.Package{Name: fmt.Sprintf("p%05d", i), Version: "1.0.0", Tarball: pad.Tarball}
			file["node_modules/"+p.Name] = npmtest.Installed(p, nil)
		}
		return npmtest.Lock(file)
	}
	text := all(10_000)
	_, problems := packages(t, npm.Params{}).Read([]byte(text), npm.Root{}, offered)
	if len(problems) != 1 || !strings.HasPrefix(lines(problems)[0], `dependency_too_many [package-lock.json packages node_modules/p01000]: the lock file installs more than 1000 packages; the first beyond is "node_modules/p01000"`) {
		t.Errorf("got %q", lines(problems))
	}
	got, problems := packages(t, npm.Params{}).Read([]byte(all(npm.MaxPackages)), npm.Root{}, offered)
	if len(problems) > 0 || len(got.Packages) != npm.MaxPackages {
		t.Errorf("the bound itself: %q", lines(problems))
	}
}

func TestParamsAreChecked(t *testing.T) {
	t.Parallel()
	for _, registry := range []string{"ftp://x", "x", "https://", "https://u:p@x", "https://x?y", "https://x#y", "://"} {
		_, err := npm.New(npm.Params{Registry: registry})
		if err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", registry, err)
		}
	}
	_, err := npm.New(npm.Params{Idle: -1})
	if err == nil {
		t.Error("a negative limit is accepted")
	}
}

func FuzzLock(f *testing.F) {
	f.Add(npmtest.Lock(one(nil)))
	f.Add(npmtest.Lock(one(fields{"os": "!x", "dependencies": []int{1}, "name": 1})))
	f.Add(`{"lockfileVersion":3,"packages":{"":{"dependencies":[]},"node_modules/x":[],"x":null}}`)
	made := packages(f, npm.Params{})
	f.Fuzz(func(t *testing.T, text string) {
		got, problems := made.Read([]byte(text), needs, offered)
		if (got == nil) != (len(problems) > 0) {
			t.Fatal("a lock beside problems, or neither")
		}
		if got == nil {
			return
		}
		if _, ok := got.Find("node_modules/left-pad"); !ok {
			t.Error("the wanted package is not installed")
		}
		for _, entry := range got.Packages {
			if strings.Contains(entry.Path, "..") || strings.ContainsAny(entry.String(), "\\ \n?#%") {
				t.Errorf("entry %q", entry.String())
			}
		}
	})
}
