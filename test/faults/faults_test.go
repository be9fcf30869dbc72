package faults_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/test/faults"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	must(t, err)
	return path
}

// TestEveryFailpointHasCells compares the failpoints in the code with the
// matrix: each has its two sides, each once, and cells of every mode.
func TestEveryFailpointHasCells(t *testing.T) {
	t.Parallel()
	markers, err := faults.Markers(absolute(t))
	must(t, err)
	var inCode, inMatrix []string
	for _, names := range markers {
		inCode = append(inCode, names...)
	}
	for _, step := range faults.Steps {
		inMatrix = append(inMatrix, step.Name+string(faults.Before), step.Name+string(faults.After))
	}
	sort.Strings(inCode)
	sort.Strings(inMatrix)
	if !slices.Equal(inCode, inMatrix) {
		t.Errorf("failpoints in the code:\n%v\nin the matrix:\n%v", inCode, inMatrix)
	}
	cells := map[string]bool{}
	for _, cell := range faults.Cells() {
		key := fmt.Sprintf("%s%s %s", cell.Step.Name, cell.Side, cell.Mode)
		cells[key] = true
	}
	for _, name := range inCode {
		for _, mode := range []faults.Mode{faults.Kill, faults.Error, faults.Stall, faults.Lost} {
			if !cells[fmt.Sprintf("%s %s", name, mode)] {
				t.Errorf("the failpoint %s has no cell of %s", name, mode)
			}
		}
	}
}

// TestMarkersHaveOneForm reads the markers as a reviewer would: an
// announcement and one line of code that calls the failpoint by its own name.
func TestMarkersHaveOneForm(t *testing.T) {
	t.Parallel()
	markers, err := faults.Markers(absolute(t))
	must(t, err)
	form := regexp.MustCompile(`\A\s*// if (err == nil \{ err = failpoint\.(Act|Of)\(.*(\w+)\) \}|err := failpoint\.(Act|Of)\(.*\); err != nil \{ return .*err \})\z`)
	for path, names := range markers {
		code, err := os.ReadFile(path)
		must(t, err)
		lines := strings.Split(string(code), "\n")
		seen := 0
		for i, line := range lines {
			if !strings.Contains(line, "gofail:") {
				continue
			}
			seen++
			name := strings.Fields(line)[3]
			if !form.MatchString(lines[i+1]) || !strings.Contains(lines[i+1], name+")") || strings.HasPrefix(strings.TrimSpace(lines[i+2]), "//") && !strings.Contains(lines[i+2], "gofail:") {
				t.Errorf("%s:%d: the marker has another form:\n%s\n%s", filepath.Base(path), i+1, line, lines[i+1])
			}
		}
		if seen != len(names) {
			t.Errorf("%s has %d markers, %d of them in the known form", path, seen, len(names))
		}
	}
}

// TestDocumentListsTheFailpoints compares docs/reliability.md with the code.
func TestDocumentListsTheFailpoints(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(filepath.Join(absolute(t), "docs", "reliability.md"))
	must(t, err)
	var want strings.Builder
	for _, step := range faults.Steps {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", step.Name, step.Medium, step.What)
	}
	if !strings.Contains(string(document), want.String()) {
		t.Errorf("docs/reliability.md does not list the steps as they are:\n%s", want.String())
	}
	listed := regexp.MustCompile("(?m)^\\| `\\w+` \\| (database|redis|store|http) \\|").FindAll(document, -1)
	if len(listed) != len(faults.Steps) {
		t.Errorf("docs/reliability.md lists %d steps, there are %d", len(listed), len(faults.Steps))
	}
	for _, figure := range []string{
		fmt.Sprintf("%d failpoints", 2*len(faults.Steps)), fmt.Sprintf("%d cells", len(faults.Cells())),
		fmt.Sprintf("%d positive controls", len(faults.Controls)),
	} {
		if !strings.Contains(string(document), figure) {
			t.Errorf("docs/reliability.md does not say %q", figure)
		}
	}
}

// TestProductionKnowsNoFailpoint reads the import graph of the commands; the
// node's is the positive control.
func TestProductionKnowsNoFailpoint(t *testing.T) {
	t.Parallel()
	imports := func(pattern string) bool {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", pattern)
		list.Dir = absolute(t)
		out, err := list.Output()
		must(t, err)
		return strings.Contains(string(out), "/test/faults") || strings.Contains(string(out), "gofail")
	}
	if imports("./cmd/...") {
		t.Error("a command imports what belongs to the fault matrix")
	}
	if !imports("./test/faults/node") {
		t.Error("the node does not import the failpoints: this test sees nothing")
	}
}

// TestControlsCoverTheInvariants: each invariant that the checker asks for has
// a node that violates it, and each guard that a control lacks exists.
func TestControlsCoverTheInvariants(t *testing.T) {
	t.Parallel()
	root, covered := absolute(t), map[string]bool{}
	for _, control := range faults.Controls {
		covered[control.Invariant] = true
		if control.Cell == (faults.Cell{}) {
			t.Errorf("the control %s names no cell", control.Guard)
		}
	}
	for _, invariant := range []string{"I1", "I2", "I3", "I4", "I5", "I7", "I8", "I9", "I10", "audit", "truth"} {
		if !covered[invariant] {
			t.Errorf("no control violates %s", invariant)
		}
	}
	for _, guard := range faults.Guards {
		code, err := os.ReadFile(filepath.Join(root, guard.File))
		must(t, err)
		if n := strings.Count(string(code), guard.Code); n != 1 {
			t.Errorf("the guard %q stands %d times in %s", guard.Name, n, guard.File)
		}
	}
}
