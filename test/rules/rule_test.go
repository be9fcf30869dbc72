package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func names(rules []rule) string {
	var parts []string
	for _, r := range rules {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, " ")
}

func TestCited(t *testing.T) {
	t.Parallel()
	cases := []struct{ line, want string }{
		{"// S2-159: the upload", "S2-159"},
		{"func TestS2_159_UploadIsExact(t *testing.T) {", "S2-159"},
		{"// S1-072…075", "S1-072 S1-073 S1-074 S1-075"},
		{"// S1-072..075", "S1-072 S1-073 S1-074 S1-075"},
		{"// S1-072...S1-074", "S1-072 S1-073 S1-074"},
		{"// S1-072 to S1-074, S2-001", "S1-072 S1-073 S1-074 S2-001"},
		{"// S1-072 to 5 is no range", "S1-072"},
		{"// S0-09–11 and S3-01,", "S0-09 S0-10 S0-11 S3-01"},
		{"(S0-32, S0-33; S4-7)", "S0-32 S0-33 S4-7"},
		{"S1-075..072 runs backwards", "S1-075 S1-072"},
		{"S1-001..9999 is too long", "S1-001 S1-9999"},
		{"S1-001..S2-003 mixes documents", "S1-001"},
		{"a sentence that ends with S2-022.", "S2-022"},
		{"AWS3_1, S9-01, S2, S2-, xS5-1", ""},
	}
	for _, c := range cases {
		got := names(cited(c.line))
		if got != c.want {
			t.Errorf("cited(%q) = %q, want %q", c.line, got, c.want)
		}
	}
}

func TestIsTest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"pkg/outbox/claim_test.go":            true,
		"transports/transporttest/suite.go":   true,
		"test/e2e/deploy.ts":                  true,
		"runtime/src/door.test.ts":            true,
		"pkg/outbox/claim.go":                 false,
		"docs/spec/rules-S1.md":               false,
		"pkg/latest.go":                       false,
		"runtime/src/test.ts":                 false,
		"pkg/artifact/artifacttest/server.go": true,
	} {
		if isTest(name) != want {
			t.Errorf("isTest(%q) = %t", name, !want)
		}
	}
}

func tree(files map[string]string) fstest.MapFS {
	result := fstest.MapFS{
		"docs/spec/rules-A.md": {Data: []byte("| id | rule |\n| --- | --- |\n| S0-01 | a |\n| S0-02 | b |\n| S0-03 | c, see S0-99 |\n")},
		"docs/spec/rules-B.md": {Data: []byte("| S1-001 | d |\n")},
	}
	for name, text := range files {
		result[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return result
}

func TestSummary(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	code, err := run(tree(map[string]string{
		"pkg/a/a_test.go":                  "// S0-02\n",
		"pkg/a/a.go":                       "// S0-01 in code does not count\n",
		"tools/npm/node_modules/x_test.go": "// S0-03 is not ours\n",
		"test/rules/rule_test.go":          "// S0-77 is made up\n",
	}), &out)
	want := "S0: tests cite 1 of 3 rules\n" +
		"  not cited: S0-01 S0-03\n" +
		"S1: tests cite 0 of 1 rules\n" +
		"  not cited: S1-001\n"
	if err != nil || code != 0 || out.String() != want {
		t.Errorf("code %d, %v\n%s\nwant\n%s", code, err, out.String(), want)
	}
}

func TestUnknownRuleFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	code, err := run(tree(map[string]string{"pkg/a/a_test.go": "package a\n\n// S0-01..03, S1-001, S1-002 and S0-1\n"}), &out)
	want := "S0: tests cite 3 of 3 rules\n" +
		"S1: tests cite 1 of 1 rules\n" +
		"pkg/a/a_test.go:3: cites S0-1, which no list in docs/spec has\n" +
		"pkg/a/a_test.go:3: cites S1-002, which no list in docs/spec has\n"
	if err != nil || code != 1 || out.String() != want {
		t.Errorf("code %d, %v\n%s\nwant\n%s", code, err, out.String(), want)
	}
}

func TestListsThatCannotBeRight(t *testing.T) {
	t.Parallel()
	_, err := run(fstest.MapFS{}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "no rules in docs/spec") {
		t.Errorf("no list: %v", err)
	}
	_, err = run(tree(map[string]string{"docs/spec/rules-C.md": "| S0-02 | again |\n"}), &strings.Builder{})
	if err == nil || err.Error() != "S0-02 stands in docs/spec/rules-A.md and again in docs/spec/rules-C.md" {
		t.Errorf("twice: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestSummaryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	_, err := run(tree(nil), full{})
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error = %v", err)
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	rules := []rule{{"S1", "001"}, {"S1", "003"}, {"S1", "004"}, {"S1", "005"}, {"S1", "009"}, {"S1", "010"}}
	if got := ranges(rules); got != "S1-001 S1-003..005 S1-009..010" {
		t.Errorf("ranges = %q", got)
	}
}

// The lists of this repository: their sizes are known, so that a row whose
// form changed does not fall out unseen.
func TestOwnLists(t *testing.T) {
	t.Parallel()
	rules, err := readLists(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range rules {
		count[r.document]++
	}
	for document, want := range map[string]int{"S0": 89, "S1": 345, "S2": 273, "S3": 85, "S4": 78} {
		if count[document] != want {
			t.Errorf("%s has %d rules, want %d", document, count[document], want)
		}
	}
}
