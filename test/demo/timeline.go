package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// timeline is what happened and how long each part took.
type timeline []entry

type entry struct {
	what string
	took time.Duration
}

func (t *timeline) add(what string, took time.Duration) { *t = append(*t, entry{what, took}) }

// print draws each entry as a bar that begins where the one before it ended.
func (t timeline) print(w io.Writer) {
	const width = 40
	total := time.Duration(0)
	for _, e := range t {
		total += e.took
	}
	_, _ = fmt.Fprintf(w, "\nTimeline (%.2f s in all)\n", total.Seconds())
	before := time.Duration(0)
	for _, e := range t {
		from := int(int64(width) * int64(before) / int64(total))
		before += e.took
		to := max(from+1, int(int64(width)*int64(before)/int64(total)))
		bar := strings.Repeat(" ", from) + strings.Repeat("█", to-from)
		_, _ = fmt.Fprintf(w, "  %8.1f ms  %-*s  %s\n", float64(e.took.Microseconds())/1000, width+1, bar, e.what)
	}
}
