package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources is the text of all Go files of pkg and transports but the tests.
func sources(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, folder := range []string{"/pkg", "/transports"} {
		err := filepath.WalkDir(root+folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := os.ReadFile(name)
			text.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

var metricName = regexp.MustCompile(`Name:\s*"(edge_(?:workers|host)_[a-z_]+)"`)

// The table of metrics has each metric of the code and no other.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	var coded []string
	for _, match := range metricName.FindAllStringSubmatch(sources(t), -1) {
		coded = append(coded, match[1])
	}
	var named []string
	for _, name := range firstCells(find(t, "docs/operations.md").section(t, "Metrics")) {
		if strings.HasPrefix(name, "edge_") {
			named = append(named, name)
		}
	}
	if len(coded) == 0 || !slices.Equal(slices.Sorted(slices.Values(coded)), slices.Sorted(slices.Values(named))) {
		t.Errorf("documented: %v\nin the code: %v", named, coded)
	}
}

// Log messages and error codes stand in the code word for word.
func TestNamesExist(t *testing.T) {
	t.Parallel()
	code, operations := sources(t), find(t, "docs/operations.md")
	for _, heading := range []string{"Log", "Error codes"} {
		names := firstCells(operations.section(t, heading))
		if len(names) < 5 {
			t.Errorf("%s: only %v", heading, names)
		}
		for _, name := range names {
			if !strings.Contains(code, `"`+name+`"`) {
				t.Errorf("%s: no %q in the code", heading, name)
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// anchors are the fragments that a document's headings have on GitHub.
func anchors(text string) []string {
	var all []string
	for _, match := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return all
}

// Every link to a file of the repository leads somewhere, fragment included.
func TestLinks(t *testing.T) {
	t.Parallel()
	followed := 0
	for _, d := range documents(t) {
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(d.text, ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			followed++
			file, fragment, _ := strings.Cut(match[1], "#")
			target := path.Join(path.Dir(d.name), file)
			if file == "" {
				target = d.name
			}
			info, err := os.Stat(filepath.Join(root, target))
			if err != nil {
				t.Errorf("%s: link to %s: %v", d.name, match[1], err)
				continue
			}
			if fragment == "" || info.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, target))
			if err != nil || !slices.Contains(anchors(string(text)), fragment) {
				t.Errorf("%s: %s has no heading for #%s", d.name, target, fragment)
			}
		}
	}
	if followed < 20 {
		t.Errorf("only %d links were followed", followed)
	}
	if got := anchors("# The `a` way, out!\n```\n# no\n```\n"); !slices.Equal(got, []string{"the-a-way-out"}) {
		t.Errorf("anchors = %v", got)
	}
}
