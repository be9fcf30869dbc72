// Package docs keeps the documents true: it runs the commands that they show,
// follows their links, and looks up the names that they give.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// document is one Markdown file; its name is relative to the repository.
type document struct{ name, text string }

func documents(t *testing.T) []document {
	t.Helper()
	names, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []document
	for _, name := range append([]string{root + "/README.md", root + "/charts/edge-workers/README.md"}, names...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		short, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document{filepath.ToSlash(short), string(text)})
	}
	return all
}

func find(t *testing.T, name string) document {
	t.Helper()
	all := documents(t)
	i := slices.IndexFunc(all, func(d document) bool { return d.name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return all[i]
}

// block is a fenced block that is marked to be run: ```sh run.
type block struct {
	line   int
	script string
	shows  []string // texts that the output has: the lines "# → text"
}

var fence = regexp.MustCompile("(?ms)^```sh run\n(.*?)^```$")

func blocks(text string) []block {
	var all []block
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		b := block{line: strings.Count(text[:at[0]], "\n") + 1, script: text[at[2]:at[3]]}
		for line := range strings.Lines(b.script) {
			shown, found := strings.CutPrefix(strings.TrimSpace(line), "# → ")
			if found {
				b.shows = append(b.shows, shown)
			}
		}
		all = append(all, b)
	}
	return all
}

// section is the text below a heading of the second level.
func (d document) section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(d.text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", d.name, heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// firstCells gives the code spans in the first cells of a section's tables.
func firstCells(section string) []string {
	var all []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			all = append(all, span[1])
		}
	}
	return all
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	got := blocks("a\n```sh\nno\n```\n\n```sh run\none\n# → two words\n```\n")
	if len(got) != 1 || got[0].line != 6 || got[0].script != "one\n# → two words\n" || !slices.Equal(got[0].shows, []string{"two words"}) {
		t.Errorf("blocks = %+v", got)
	}
	if cells := firstCells("| `a`, `b` | `c` |\nno `d`\n"); !slices.Equal(cells, []string{"a", "b"}) {
		t.Errorf("cells = %v", cells)
	}
}
