package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// listFolder holds the rule lists.
const listFolder = "docs/spec"

// rule is the id of one rule: its document, and its number as the lists write
// it, leading zeros included.
type rule struct {
	document string
	number   string
}

func (r rule) String() string { return r.document + "-" + r.number }

func (r rule) value() int {
	value, _ := strconv.Atoi(r.number) // digits only, by the patterns below
	return value
}

func compare(a, b rule) int {
	return cmp.Or(strings.Compare(a.document, b.document), cmp.Compare(a.value(), b.value()), strings.Compare(a.number, b.number))
}

func sorted(citations map[rule][]string) []rule {
	return slices.SortedFunc(maps.Keys(citations), compare)
}

// row is a rule's row in a list.
var row = regexp.MustCompile(`(?m)^\| (S[0-4])-([0-9]+) \|`)

// readLists gives all rules in order. A rule that stands twice is an error.
func readLists(tree fs.FS) ([]rule, error) {
	files, err := fs.Glob(tree, listFolder+"/rules-*.md")
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", listFolder, err)
	}
	seen := map[rule]string{}
	var rules []rule
	for _, file := range files {
		text, err := fs.ReadFile(tree, file)
		if err != nil {
			return nil, fmt.Errorf("read a rule list: %w", err)
		}
		for _, match := range row.FindAllSubmatch(text, -1) {
			r := rule{string(match[1]), string(match[2])}
			if before, twice := seen[r]; twice {
				return nil, fmt.Errorf("%s stands in %s and again in %s", r, before, file)
			}
			seen[r] = file
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil, errors.New("no rules in " + listFolder + ": run this in the repository's root")
	}
	slices.SortFunc(rules, compare)
	return rules, nil
}

// citation is a rule, or a range of rules, in a test. In names of Go functions
// the hyphen is an underscore. The letter before keeps AWS3_1 out.
var citation = regexp.MustCompile(`(?:^|[^A-Z0-9])(S[0-4])[-_]([0-9]+)(?:(?:\.\.\.?|…|–)(?:(S[0-4])[-_])?([0-9]+)| to (S[0-4])-([0-9]+))?`)

// wrapped is a range in words that a comment breaks into two lines.
var wrapped = regexp.MustCompile(`(S[0-4]-[0-9]+ to)\n\s*// (S[0-4]-[0-9]+)`)

// skipped folders hold nothing that we wrote.
var skipped = []string{"node_modules", ".git", ".cache", "bin", ".edge-workers", "testdata"}

// own is this command, whose tests cite made-up rules.
const own = "test/rules"

// readCitations gives, for each rule that a test cites, the places.
func readCitations(tree fs.FS) (map[rule][]string, error) {
	found := map[rule][]string{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(skipped, entry.Name()) || name == own {
				return fs.SkipDir
			}
			return nil
		}
		if !isTest(name) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(wrapped.ReplaceAllString(string(text), "$1 $2\n//")) {
			number++
			for _, r := range cited(line) {
				found[r] = append(found[r], fmt.Sprintf("%s:%d", name, number))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tests: %w", err)
	}
	return found, nil
}

// isTest tells whether citations in a file count.
func isTest(name string) bool {
	base := path.Base(name)
	return strings.HasSuffix(base, "_test.go") ||
		strings.HasPrefix(name, "test/") ||
		strings.HasSuffix(path.Dir(name), "test") ||
		strings.Contains(base, ".test.")
}

// cited gives the rules that a line cites, ranges expanded.
func cited(line string) []rule {
	var rules []rule
	for _, match := range citation.FindAllStringSubmatch(line, -1) {
		first := rule{match[1], match[2]}
		rules = append(rules, first)
		document, end := match[3]+match[5], match[4]+match[6]
		if end == "" || (document != "" && document != match[1]) {
			continue
		}
		last := rule{match[1], end}
		width := len(first.number)
		// A range that runs backwards or is longer than any list is a slip: its
		// end is cited as it stands, and found missing if it is.
		if last.value() <= first.value() || last.value()-first.value() > 999 {
			rules = append(rules, last)
			continue
		}
		for value := first.value() + 1; value <= last.value(); value++ {
			rules = append(rules, rule{match[1], fmt.Sprintf("%0*d", width, value)})
		}
	}
	return rules
}

// ranges writes sorted rules of one document as short as possible.
func ranges(rules []rule) string {
	var parts []string
	for i := 0; i < len(rules); {
		j := i
		for j+1 < len(rules) && rules[j+1].value() == rules[j].value()+1 {
			j++
		}
		if i == j {
			parts = append(parts, rules[i].String())
		} else {
			parts = append(parts, rules[i].String()+".."+rules[j].number)
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}
