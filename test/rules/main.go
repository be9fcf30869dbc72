// Command rules compares the rule lists in docs/spec with the rules that tests
// cite. It prints, for each document, how many rules are cited and which are
// not, and fails when a test cites a rule that no list has.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

func main() {
	code, err := run(os.DirFS("."), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run reads the tree and writes the summary. Its exit code is 1 when an unknown
// rule is cited.
func run(tree fs.FS, out io.Writer) (int, error) {
	rules, err := readLists(tree)
	if err != nil {
		return 0, err
	}
	citations, err := readCitations(tree)
	if err != nil {
		return 0, err
	}
	return summarise(out, rules, citations)
}

func summarise(out io.Writer, rules []rule, citations map[rule][]string) (int, error) {
	known := map[rule]bool{}
	var order []string
	for _, r := range rules {
		known[r] = true
		if len(order) == 0 || order[len(order)-1] != r.document {
			order = append(order, r.document)
		}
	}
	text := ""
	for _, document := range order {
		var total, cited int
		var uncited []rule
		for _, r := range rules {
			if r.document != document {
				continue
			}
			total++
			if len(citations[r]) > 0 {
				cited++
			} else {
				uncited = append(uncited, r)
			}
		}
		text += fmt.Sprintf("%s: tests cite %d of %d rules\n", document, cited, total)
		if len(uncited) > 0 {
			text += "  not cited: " + ranges(uncited) + "\n"
		}
	}
	code := 0
	for _, r := range sorted(citations) {
		if known[r] {
			continue
		}
		code = 1
		for _, place := range citations[r] {
			text += fmt.Sprintf("%s: cites %s, which no list in %s has\n", place, r, listFolder)
		}
	}
	_, err := io.WriteString(out, text)
	if err != nil {
		return 0, fmt.Errorf("write the summary: %w", err)
	}
	return code, nil
}
