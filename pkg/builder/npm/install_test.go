package npm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// code is a package with one file.
func code(name, version, text string) npmtest.Package {
	return npmtest.Make(name, version, map[string]string{"index.js": text})
}

// locked reads a lock file that installs packages at the top.
func locked(t testing.TB, made *npm.Packages, all ...npmtest.Package) *npm.Lock {
	t.Helper()
	files := npmtest.Project(all...)
	root := npm.Root{Dependencies: map[string]string{}}
	for _, p := range all {
		root.Dependencies[p.Name] = p.Version
	}
	got, problems := made.Read([]byte(files["package-lock.json"]), root, offered)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	return got
}

// entry resolves the import of a package and gives the file's text.
func entry(t testing.TB, tree *npm.Tree, specifier string) string {
	t.Helper()
	target, err := tree.Resolve(npm.Place{}, specifier, false)
	if err != nil {
		t.Error(err)
	}
	return target.Content
}

// A package that does not come, or is another one, is told apart by who can
// mend it, and nothing of it is kept. What comes in the end is as good as ever.
func TestRegistryFaults(t *testing.T) {
	t.Parallel()
	const away = "npm_registry_unavailable: The npm registry did not deliver a@1.0.0; try again"
	for name, c := range map[string]struct {
		faults []npmtest.Fault
		kind   fault.Kind // empty: it is installed
		text   string
		asked  int
	}{
		"none":                    {nil, "", "", 1},
		"silent":                  {[]npmtest.Fault{npmtest.Silent}, fault.Unavailable, away, 3},
		"stalled":                 {[]npmtest.Fault{npmtest.Stalled}, fault.Unavailable, away, 3},
		"truncated":               {[]npmtest.Fault{npmtest.Truncated}, fault.Unavailable, away, 3},
		"dropped":                 {[]npmtest.Fault{npmtest.Dropped}, fault.Unavailable, away, 3},
		"broken":                  {[]npmtest.Fault{npmtest.Broken}, fault.Unavailable, away, 3},
		"throttled":               {[]npmtest.Fault{npmtest.Throttled}, fault.Unavailable, away, 3},
		"broken twice":            {[]npmtest.Fault{npmtest.Broken, npmtest.Truncated, npmtest.None}, "", "", 3},
		"throttled once":          {[]npmtest.Fault{npmtest.Throttled, npmtest.None}, "", "", 2},
		"a redirect elsewhere":    {[]npmtest.Fault{npmtest.Elsewhere}, fault.Unavailable, away, 1},
		"a redirect within":       {[]npmtest.Fault{npmtest.Within}, "", "", 2},
		"a redirect to itself":    {[]npmtest.Fault{npmtest.Circle}, fault.Unavailable, away, 4},
		"missing":                 {[]npmtest.Fault{npmtest.Missing}, fault.Invalid, "dependency_not_found [package-lock.json packages node_modules/a]: the npm registry does not have a@1.0.0 (it answered 404)", 1},
		"forbidden":               {[]npmtest.Fault{npmtest.Forbidden}, fault.Invalid, "dependency_not_found [package-lock.json packages node_modules/a]: the npm registry does not have a@1.0.0 (it answered 403)", 1},
		"other bytes":             {[]npmtest.Fault{npmtest.OtherBytes}, fault.Invalid, "dependency_integrity_mismatch [package-lock.json packages node_modules/a]: a@1.0.0 has other bytes", 1},
		"cut, but a whole answer": {[]npmtest.Fault{npmtest.HalfThenEnd}, fault.Invalid, "dependency_integrity_mismatch", 1},
		"more than 16 MiB":        {[]npmtest.Fault{npmtest.Endless}, fault.Invalid, "dependency_too_large [package-lock.json packages node_modules/a]: a@1.0.0 has more than 16 MiB", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, a := npmtest.New(t), code("a", "1.0.0", "text of a")
			registry.Add(a)
			registry.Fail(a, c.faults...)
			dir := t.TempDir()
			params := npm.Params{Registry: registry.URL, CacheDir: dir}
			if strings.HasPrefix(name, "s") { // silent and stalled: nothing else waits for the limit
				params.Idle = 1500 * time.Millisecond
			}
			made := packages(t, params)
			tree, err := made.Install(t.Context(), locked(t, made, a), nil)
			if registry.Asked(a) != c.asked || registry.Strayed() != 0 {
				t.Errorf("asked %d times, want %d; %d requests went elsewhere", registry.Asked(a), c.asked, registry.Strayed())
			}
			if c.kind == "" {
				if err != nil || entry(t, tree, "a") != "text of a" || len(npmtest.Cached(t, dir)) != 1 {
					t.Errorf("not installed: %v", err)
				}
				return
			}
			text := fmt.Sprint(err)
			if refused := fault.As(err); refused != nil && len(refused.Problems) > 0 {
				text = lines(refused.Problems)[0]
			}
			if fault.KindOf(err) != c.kind || !strings.HasPrefix(text, c.text) {
				t.Errorf("got  %s %s\nwant %s %s", fault.KindOf(err), text, c.kind, c.text)
			}
			if left := npmtest.Cached(t, dir); len(left) > 0 {
				t.Errorf("kept: %q", left)
			}
			registry.Fail(a) // the positive control: it comes again
			tree, err = made.Install(t.Context(), locked(t, made, a), nil)
			if err != nil || entry(t, tree, "a") != "text of a" || len(npmtest.Cached(t, dir)) != 1 {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// The overall limit ends an installation whose single requests are all within
// theirs, and names a package.
func TestOverallLimit(t *testing.T) {
	t.Parallel()
	registry, a := npmtest.New(t), code("a", "1.0.0", "a")
	registry.Add(a)
	registry.Fail(a, npmtest.Silent)
	made := packages(t, npm.Params{Registry: registry.URL, Overall: 50 * time.Millisecond})
	_, err := made.Install(t.Context(), locked(t, made, a), nil)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "did not deliver a@1.0.0") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = made.Install(ctx, locked(t, made, a), nil)
	if !errors.Is(err, context.Canceled) || fault.KindOf(err) != fault.Internal {
		t.Errorf("a cancelled installation: %v", err)
	}
}

// A registry that is not there at all.
func TestNoRegistry(t *testing.T) {
	t.Parallel()
	made := packages(t, npm.Params{Registry: "http://127.0.0.1:1"})
	_, err := made.Install(t.Context(), locked(t, made, pad), nil)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "left-pad@1.3.0") {
		t.Error(err)
	}
}

// No cookie, no credential, no compression: what comes is what was published.
func TestRequestHeaders(t *testing.T) {
	t.Parallel()
	registry, a := npmtest.New(t), code("@s/a", "1.0.0", "a")
	registry.Add(a)
	made := packages(t, npm.Params{Registry: registry.URL})
	_, err := made.Install(t.Context(), locked(t, made, a), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range registry.Headers()[0] {
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"Accept", "User-Agent"}) {
		t.Errorf("headers %q", names)
	}
}

// Builds that need the same packages at once fetch each one once; one that is
// given up takes nothing from the others.
func TestConcurrentInstallationsShare(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	var all []npmtest.Package
	for i := range 20 {
		all = append(all, code(fmt.Sprintf("p%d", i), "1.0.0", fmt.Sprint("text ", i)))
	}
	registry.Add(all...)
	made := packages(t, npm.Params{Registry: registry.URL})
	lock := locked(t, made, all...)
	given, give := context.WithCancel(t.Context())
	defer give()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			ctx := t.Context()
			if i == 0 {
				ctx = given
			}
			last := 0
			tree, err := made.Install(ctx, lock, func(done, total int) {
				if done != last+1 || total != len(all) {
					t.Errorf("progress %d of %d after %d", done, total, last)
				}
				last = done
				if i == 0 {
					give()
				}
			})
			if i == 0 {
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the one that is given up: %v", err)
				}
				return
			}
			if err != nil || last != len(all) {
				t.Errorf("installation %d: %v, %d packages", i, err, last)
				return
			}
			for j := range all {
				if got := entry(t, tree, fmt.Sprintf("p%d", j)); got != fmt.Sprint("text ", j) {
					t.Errorf("p%d: %q", j, got)
				}
			}
		})
	}
	group.Wait()
	for _, p := range all {
		// A flight that only the given-up build waited for may be flown again.
		if n := registry.Asked(p); n < 1 || n > 2 {
			t.Errorf("%s was asked for %d times", p.ID(), n)
		}
	}
}

// A lock file cannot pass the bytes of one package off as another's, whatever is
// in memory or in the folder by then.
func TestBytesOfAnotherPackage(t *testing.T) {
	t.Parallel()
	registry, a, b := npmtest.New(t), code("a", "1.0.0", "a"), code("b", "1.0.0", "b")
	registry.Add(a, b)
	made := packages(t, npm.Params{Registry: registry.URL, CacheDir: t.TempDir()})
	_, err := made.Install(t.Context(), locked(t, made, a), nil)
	if err != nil {
		t.Fatal(err)
	}
	forged := npmtest.Package{Name: "b", Version: "1.0.0", Tarball: a.Tarball}
	_, err = made.Install(t.Context(), locked(t, made, forged), nil)
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "b@1.0.0 has other bytes") {
		t.Errorf("forged: %v", err)
	}
	_, err = made.Install(t.Context(), locked(t, made, b), nil)
	if err != nil {
		t.Errorf("the real one: %v", err)
	}
}

// The bound on all packages together names one of them.
func TestTotalBound(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	big := strings.Repeat("x", 30<<20)
	var all []npmtest.Package
	for i := range 5 {
		all = append(all, code(fmt.Sprintf("p%d", i), "1.0.0", big[:len(big)-i]))
	}
	registry.Add(all...)
	made := packages(t, npm.Params{Registry: registry.URL})
	_, err := made.Install(t.Context(), locked(t, made, all...), nil)
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "more than 128 MiB of code; p") {
		t.Errorf("150 MiB: %v", err)
	}
	_, err = made.Install(t.Context(), locked(t, made, all[:4]...), nil)
	if err != nil {
		t.Errorf("120 MiB: %v", err)
	}
}
