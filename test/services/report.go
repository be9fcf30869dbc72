package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output, instead of Package
	Test       string
	Output     string
}

// report condenses the events of one `go test -json`.
type report struct {
	out     io.Writer
	partial []byte              // the start of a line whose end has not come yet
	output  map[string][]string // pending output, by package and test
	skipped []string
	failed  []string
	broken  []string // the FAIL lines of packages, to be repeated at the end
	passes  int
	crashed int // packages that failed without a failed test
	fails   map[string]int
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[string][]string{}, fails: map[string]int{}}
}

// condense turns a `go test` into a `go test -json` with a report that reads
// it. Another command, or a go test whose full output is wanted, comes back as
// it is, with no report.
func condense(arguments []string) ([]string, *report) {
	if len(arguments) < 2 || arguments[0] != "go" || arguments[1] != "test" {
		return arguments, nil
	}
	for _, argument := range arguments[2:] {
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if strings.HasPrefix(argument, "-") && slices.Contains([]string{"v", "json", "bench", "c", "list", "fuzz"}, name) {
			return arguments, nil
		}
	}
	return slices.Insert(slices.Clone(arguments), 2, "-json"), newReport(os.Stdout)
}

// Write takes a piece of the stream of events. Lines that are no events, such
// as a tool's own messages, pass through.
func (r *report) Write(piece []byte) (int, error) {
	r.partial = append(r.partial, piece...)
	for {
		end := bytes.IndexByte(r.partial, '\n')
		if end < 0 {
			return len(piece), nil
		}
		r.line(string(r.partial[:end+1]))
		r.partial = r.partial[end+1:]
	}
}

func (r *report) line(line string) {
	var e event
	err := json.Unmarshal([]byte(line), &e)
	if err != nil || e.Action == "" {
		r.print(line)
		return
	}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Test != "":
		r.test(e)
	case e.Package != "":
		r.pkg(e)
	}
}

func (r *report) test(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		return
	case "pass":
		r.passes++
	case "skip":
		r.skipped = append(r.skipped, e.Package+" "+e.Test+": "+reason(r.output[key]))
	case "fail":
		r.failed = append(r.failed, e.Package+" "+e.Test)
		r.fails[e.Package]++
		r.print(strings.Join(r.output[key], ""))
	default:
		return
	}
	delete(r.output, key)
}

// pkg handles the events of a package as a whole: its output is printed when
// it says more than PASS, and a test that never ended (a panic, a time-out, an
// os.Exit) gives its output when the package fails.
func (r *report) pkg(e event) {
	switch e.Action {
	case "output":
		if e.Output == "PASS\n" || e.Output == "FAIL\n" || strings.HasPrefix(e.Output, "coverage: [no statements]") {
			return
		}
		r.print(e.Output)
		if strings.HasPrefix(e.Output, "FAIL\t") {
			r.broken = append(r.broken, e.Output)
		}
	case "fail":
		r.unfinished(e.Package)
		if r.fails[e.Package] == 0 {
			r.crashed++
		}
	}
}

func (r *report) unfinished(pkg string) {
	var keys []string
	for key := range r.output {
		if strings.HasPrefix(key, pkg+"\x00") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		r.print(strings.Join(r.output[key], ""))
		delete(r.output, key)
	}
}

// finish prints what a reader wants to see last: what was skipped and why, what
// failed, and the totals.
func (r *report) finish() {
	if len(r.partial) > 0 {
		r.line(string(r.partial) + "\n")
	}
	r.list("Skipped tests and why:", r.skipped)
	r.list("Failed tests:", r.failed)
	for _, line := range r.broken {
		r.print(line)
	}
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.passes, len(r.failed)+r.crashed, len(r.skipped)))
}

func (r *report) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	r.print(title + "\n")
	for _, line := range lines {
		r.print("  " + line + "\n")
	}
}

func (r *report) print(text string) {
	_, _ = io.WriteString(r.out, text) // a closed terminal is no reason to stop the tests
}

// reason is what a skipped test printed, without the runner's own lines.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}
