package models_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
)

// drawn is what one state diagram of docs/states.md shows.
type drawn struct {
	edges       []string // "from → to: by"
	starts, end []string // states with an arrow from, and to, [*]
}

var edgeLine = regexp.MustCompile(`^\s*(\S+) --> (\S+?)(?:: (.+))?$`)

// readDrawing takes the first diagram below a heading, and fails on a line
// that it does not understand: an edge that is not parsed would not be checked.
func readDrawing(text, heading string) (drawn, error) {
	_, section, found := strings.Cut(text, "\n## "+heading+"\n")
	_, rest, opened := strings.Cut(section, "```mermaid\nstateDiagram-v2\n")
	body, _, closed := strings.Cut(rest, "\n```")
	if !found || !opened || !closed {
		return drawn{}, fmt.Errorf("no state diagram below %q", heading)
	}
	var d drawn
	for line := range strings.Lines(body) {
		match := edgeLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			return drawn{}, fmt.Errorf("%q is no edge", line)
		}
		switch from, to := match[1], match[2]; {
		case from == "[*]":
			d.starts = append(d.starts, to)
		case to == "[*]":
			d.end = append(d.end, from)
		default:
			d.edges = append(d.edges, from+" → "+to+": "+match[3])
		}
	}
	return d, nil
}

// tabled gives the states of the first table below a heading.
func tabled(text, heading string) []string {
	_, section, _ := strings.Cut(text, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, row[1])
	}
	return names
}

// compare gives one line for each difference between a drawing and the edges
// of the code: missing ones, extra ones, and wrong ends.
func compare[S ~string](d drawn, edges []models.Edge[S]) []string {
	var faults, coded []string
	leaves, known := map[string]bool{}, map[string]bool{}
	for _, e := range edges {
		coded = append(coded, fmt.Sprintf("%s → %s: %s", e.From, e.To, e.By))
		leaves[string(e.From)], known[string(e.From)], known[string(e.To)] = true, true, true
	}
	for _, edge := range coded {
		if !slices.Contains(d.edges, edge) {
			faults = append(faults, "not drawn: "+edge)
		}
	}
	for i, edge := range d.edges {
		if !slices.Contains(coded, edge) {
			faults = append(faults, "drawn only: "+edge)
		}
		if slices.Contains(d.edges[:i], edge) {
			faults = append(faults, "drawn twice: "+edge)
		}
	}
	for state := range known {
		if leaves[state] == slices.Contains(d.end, state) {
			faults = append(faults, "wrongly drawn as an end, or not as one: "+state)
		}
	}
	return faults
}

func readStates(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// S2-264, S2-265: the ends are drawn as ends, and uncertain is none.
func TestStatesAreDrawn(t *testing.T) {
	t.Parallel()
	text := readStates(t)
	versions, err := readDrawing(text, "Versions")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readDrawing(text, "Outbox rows")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range append(compare(versions, models.VersionEdges), compare(rows, models.OutboxEdges)...) {
		t.Error(fault)
	}
	if !slices.Equal(versions.starts, []string{"ready"}) || !slices.Equal(rows.starts, []string{"pending"}) {
		t.Errorf("the drawings start at %v and %v", versions.starts, rows.starts)
	}
}

// Each state of the code has one row that says who acts next.
func TestStatesAreExplained(t *testing.T) {
	t.Parallel()
	text := readStates(t)
	for heading, states := range map[string][]string{
		"Versions": {
			string(models.VersionUploading), string(models.VersionReady), string(models.VersionDeployPending), string(models.VersionDeploying),
			string(models.VersionDeployed), string(models.VersionSuperseded), string(models.VersionFailed), string(models.VersionUncertain),
		},
		"Outbox rows": {
			string(models.OutboxPending), string(models.OutboxLeased), string(models.OutboxCompleted), string(models.OutboxFailed),
			string(models.OutboxCancelled), string(models.OutboxUncertain),
		},
		"Workers": {string(models.WorkerDraft), string(models.WorkerActive), string(models.WorkerPaused)},
	} {
		if got := tabled(text, heading); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(states))) {
			t.Errorf("%s: the table has %v, the code %v", heading, got, states)
		}
	}
}

// The comparison itself: each way in which a drawing can be wrong is noticed.
func TestDrawingFaultsAreNoticed(t *testing.T) {
	t.Parallel()
	const head = "x\n## A\n\n```mermaid\nstateDiagram-v2\n"
	edges := []models.Edge[models.VersionState]{{From: "a", To: "b", By: "one"}, {From: "b", To: "c", By: "two"}}
	cases := []struct{ name, body, want string }{
		{"right", "    [*] --> a\n    a --> b: one\n    b --> c: two\n    c --> [*]", ""},
		{"missing", "    a --> b: one\n    c --> [*]", "not drawn: b → c: two"},
		{"extra", "    a --> b: one\n    b --> c: two\n    b --> a: three\n    c --> [*]", "drawn only: b → a: three"},
		{"another actor", "    a --> b: two\n    b --> c: two\n    c --> [*]", "not drawn: a → b: one"},
		{"twice", "    a --> b: one\n    a --> b: one\n    b --> c: two\n    c --> [*]", "drawn twice: a → b: one"},
		{"no end", "    a --> b: one\n    b --> c: two", "wrongly drawn as an end, or not as one: c"},
		{"false end", "    a --> b: one\n    b --> c: two\n    c --> [*]\n    b --> [*]", "wrongly drawn as an end, or not as one: b"},
	}
	for _, c := range cases {
		d, err := readDrawing(head+c.body+"\n```\n", "A")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		faults := compare(d, edges)
		if (c.want == "" && len(faults) > 0) || (c.want != "" && !slices.Contains(faults, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, faults, c.want)
		}
	}
	for name, text := range map[string]string{"no edge": head + "    a -> b\n```\n", "no diagram": "\n## A\n", "no heading": "x"} {
		_, err := readDrawing(text, "A")
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
