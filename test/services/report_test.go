package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCondenseTakesOverPlainGoTestOnly(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, in, out string
		report        bool
	}{
		{"plain", "go test ./...", "go test -json ./...", true},
		{"flags", "go test -p 2 -run TestX ./a", "go test -json -p 2 -run TestX ./a", true},
		{"verbose", "go test -v ./...", "go test -v ./...", false},
		{"verbose with value", "go test -v=true ./...", "go test -v=true ./...", false},
		{"already events", "go test -json ./...", "go test -json ./...", false},
		{"benchmark", "go test -bench . ./...", "go test -bench . ./...", false},
		{"a package called like a flag", "go test ./v", "go test -json ./v", true},
		{"other command", "go vet ./...", "go vet ./...", false},
		{"shell", "sh -c true", "sh -c true", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := strings.Fields(c.in)
			out, report := condense(in)
			if !slices.Equal(out, strings.Fields(c.out)) || (report != nil) != c.report {
				t.Errorf("condense(%q) = %q, report %t", c.in, out, report != nil)
			}
			if !slices.Equal(in, strings.Fields(c.in)) {
				t.Errorf("the caller's arguments were changed to %q", in)
			}
		})
	}
}

// stream is what one package of each kind prints, as go test -json writes it.
var stream = strings.Join([]string{
	`{"Action":"start","Package":"m/ok"}`,
	`{"Action":"run","Package":"m/ok","Test":"TestA"}`,
	`{"Action":"output","Package":"m/ok","Test":"TestA","Output":"=== RUN   TestA\n"}`,
	`{"Action":"output","Package":"m/ok","Test":"TestA","Output":"    a_test.go:1: chatter\n"}`,
	`{"Action":"pass","Package":"m/ok","Test":"TestA"}`,
	`{"Action":"output","Package":"m/ok","Test":"TestS","Output":"=== RUN   TestS\n"}`,
	`{"Action":"output","Package":"m/ok","Test":"TestS","Output":"    a_test.go:9: no moon\n"}`,
	`{"Action":"output","Package":"m/ok","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}`,
	`{"Action":"skip","Package":"m/ok","Test":"TestS"}`,
	`{"Action":"output","Package":"m/ok","Output":"PASS\n"}`,
	`{"Action":"output","Package":"m/ok","Output":"ok  \tm/ok\t0.1s\n"}`,
	`{"Action":"pass","Package":"m/ok"}`,
	`a line that is no event`,
	`{"Action":"output","Package":"m/bad","Test":"TestB","Output":"    b_test.go:3: one is not two\n"}`,
	`{"Action":"fail","Package":"m/bad","Test":"TestB"}`,
	`{"Action":"output","Package":"m/bad","Output":"FAIL\n"}`,
	`{"Action":"output","Package":"m/bad","Output":"FAIL\tm/bad\t0.1s\n"}`,
	`{"Action":"fail","Package":"m/bad"}`,
	`{"ImportPath":"m/broken","Action":"build-output","Output":"b.go:1:1: syntax error\n"}`,
	`{"Action":"output","Package":"m/broken","Output":"FAIL\tm/broken [build failed]\n"}`,
	`{"Action":"fail","Package":"m/broken"}`,
	`{"Action":"output","Package":"m/panics","Test":"TestP","Output":"panic: boom\n"}`,
	`{"Action":"output","Package":"m/panics","Output":"FAIL\tm/panics\t0.1s\n"}`,
	`{"Action":"fail","Package":"m/panics"}`,
}, "\n")

const condensed = "ok  \tm/ok\t0.1s\n" +
	"a line that is no event\n" +
	"    b_test.go:3: one is not two\n" +
	"FAIL\tm/bad\t0.1s\n" +
	"b.go:1:1: syntax error\n" +
	"FAIL\tm/broken [build failed]\n" +
	"FAIL\tm/panics\t0.1s\n" +
	"panic: boom\n" +
	"Skipped tests and why:\n" +
	"  m/ok TestS: a_test.go:9: no moon\n" +
	"Failed tests:\n" +
	"  m/bad TestB\n" +
	"FAIL\tm/bad\t0.1s\n" +
	"FAIL\tm/broken [build failed]\n" +
	"FAIL\tm/panics\t0.1s\n" +
	"1 passed, 3 failed, 1 skipped\n"

func TestReportKeepsWhatAReaderNeeds(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 7, len(stream)} {
		var out strings.Builder
		r := newReport(&out)
		for piece := range slices.Chunk([]byte(stream), size) {
			_, err := r.Write(piece)
			if err != nil {
				t.Fatal(err)
			}
		}
		r.finish()
		if out.String() != condensed {
			t.Errorf("in pieces of %d bytes:\n%s\nwant:\n%s", size, out.String(), condensed)
		}
	}
}

func TestSkipWithoutWords(t *testing.T) {
	t.Parallel()
	got := reason([]string{"=== RUN   TestX\n", "--- SKIP: TestX (0.00s)\n"})
	if got != "no reason given" {
		t.Errorf("reason = %q", got)
	}
}
