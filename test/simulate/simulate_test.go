package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm/schema"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/test/simulate/model"
)

const docs = "../../docs"

// The tables and the picture of docs/scaling.md are the simulation's.
func TestDocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	g, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	document := read(t, documentName)
	filled, err := g.fill(document)
	if err != nil {
		t.Fatal(err)
	}
	if filled != document {
		t.Error("docs/scaling.md differs from the simulation: run go generate ./test/simulate")
	}
	if read(t, pictureName) != g.picture {
		t.Error("docs/scaling.svg differs from the simulation: run go generate ./test/simulate")
	}
	if len(g.tables) != strings.Count(document, closing) {
		t.Errorf("%d tables, %d places", len(g.tables), strings.Count(document, closing))
	}
	// The control: another table would be seen.
	g.tables[0].text = strings.Replace(g.tables[0].text, "1", "2", 1)
	filled, err = g.fill(document)
	if err != nil || filled == document {
		t.Errorf("a table that differs counts as equal: %v", err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFill(t *testing.T) {
	t.Parallel()
	g := generated{tables: []part{{name: "one", text: "new\n"}, {name: "two", text: "2\n"}}}
	got, err := g.fill("a\n<!-- simulate: one -->\nold\n<!-- end -->\nb\n<!-- simulate: two -->\n<!-- end -->\n")
	want := "a\n<!-- simulate: one -->\n\nnew\n\n<!-- end -->\nb\n<!-- simulate: two -->\n\n2\n\n<!-- end -->\n"
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, document := range []string{"", "<!-- simulate: one -->\nno end", "<!-- simulate: one -->\n<!-- end -->\n"} {
		_, err = g.fill(document)
		if err == nil || !strings.Contains(err.Error(), "has no place for the table") {
			t.Errorf("%q: %v", document, err)
		}
	}
}

func TestOneSystem(t *testing.T) {
	t.Parallel()
	arguments := []string{"-seed", "9", "-rate", "3000", "-hours", "1", "-burst", "100", "-deployers", "8", "-tokens", "2", "-pace", "0.8"}
	var first, second, other strings.Builder
	for _, c := range []struct {
		out *strings.Builder
		to  []string
	}{{&first, arguments}, {&second, arguments}, {&other, append(arguments, "-seed", "10")}} {
		err := run(c.to, c.out)
		if err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() || first.String() == other.String() {
		t.Error("the seed does not decide")
	}
	for _, want := range []string{"8 deployers, 2 reconcilers, 2 tokens (8 requests/s), paced at 80 %", "█", "0 answered 429", "completed, 0 failed, 0 uncertain"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("no %q in\n%s", want, first.String())
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := run([]string{"-help"}, &out)
	if err != nil || out.Len() > 0 { // the flags are on the standard error
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for text, arguments := range map[string][]string{
		"deployers: 1 to 100,000":       {"-deployers", "0"},
		`unexpected argument "9"`:       {"9"},
		"no other flag":                 {"-write", t.TempDir(), "-hours", "1"},
		"flag provided but not defined": {"-no-such-flag"},
	} {
		var out strings.Builder
		err := run(arguments, &out)
		if err == nil || !strings.Contains(err.Error(), text) || out.Len() > 0 {
			t.Errorf("%v: %v, %q", arguments, err, out.String())
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(1234567): "1,234,567",
		seconds(0.01): "0 s", seconds(1.26): "1.3 s", seconds(59.6): "60 s", seconds(1200): "20 min", seconds(24 * 3600): "24 h",
		two(0.0083): "0.0083", two(206.2): "206", tokens(8.33): "3", tokens(4): "1", share(1, 8): "12 %",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := spark([]int{0, 1, 4, 8, 0}); got != " ▁▄█ " {
		t.Errorf("%q", got)
	}
}

// One PUT and two GETs for each deployment are 400 deployments in five minutes
// for one token; the mean run agrees with what the simulated deployers do.
func TestArithmetic(t *testing.T) {
	t.Parallel()
	if hourly := budgetOf(1) / model.RequestsPerDeployment * 3600; hourly != 4800 {
		t.Errorf("%v deployments an hour for one token", hourly)
	}
	p := model.Defaults()
	p.Hours, p.Burst, p.Loss, p.Crash = 2, 0, 0, 0
	r, err := model.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	mean := r.BusySeconds / float64(r.Deliveries)
	if text := fmt.Sprintf("%.1f seconds", p.MeanRun()); strings.Count(read(t, documentName), text) < 2 {
		t.Errorf("docs/scaling.md does not say %q", text)
	}
	if off := mean/p.MeanRun() - 1; off > 0.02 || off < -0.02 {
		t.Errorf("a run takes %.2f s in the simulation and %.2f s by arithmetic", mean, p.MeanRun())
	}
}

// uniqueKeys lists the primary keys and unique indexes of the models, each as
// its table and columns.
func uniqueKeys(t *testing.T) []string {
	t.Helper()
	var keys []string
	for _, table := range models.Tables() {
		parsed, err := schema.Parse(table, &sync.Map{}, schema.NamingStrategy{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, parsed.Table+": "+strings.Join(parsed.PrimaryFieldDBNames, ", "))
		for _, index := range parsed.ParseIndexes() {
			if index.Class != "UNIQUE" {
				continue
			}
			var columns []string
			for _, field := range index.Fields {
				columns = append(columns, field.DBName)
			}
			keys = append(keys, parsed.Table+": "+strings.Join(columns, ", "))
		}
	}
	slices.Sort(keys)
	return keys
}

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ((?:`[a-z_]+`(?:, )?)+) \\| ")

// The table of what a shard means for each unique key has all of them and no
// other.
func TestUniqueKeysAreListed(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, documentName), "\n### Sharding by company\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, row := range keyRow.FindAllStringSubmatch(section, -1) {
		listed = append(listed, row[1]+": "+strings.ReplaceAll(row[2], "`", ""))
	}
	slices.Sort(listed)
	if want := uniqueKeys(t); !found || len(want) < 10 || !slices.Equal(listed, want) {
		t.Errorf("listed: %q\nin the models: %q", listed, want)
	}
}
