package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestScopeEndsAsATestDoes(t *testing.T) {
	s := newScope(t.TempDir())
	var order []string
	note := func(what string) func() { return func() { order = append(order, what) } }
	err := s.try(func() {
		s.Cleanup(note("first"))
		s.Cleanup(note("second"))
		dir := s.TempDir()
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !strings.HasPrefix(dir, s.folder) {
			t.Errorf("%s: %v", dir, err)
		}
		s.Errorf("one %d", 1)
		s.Fatal("two")
		note("after Fatal")()
	})
	if err == nil || err.Error() != "one 1\ntwo" {
		t.Errorf("try: %v", err)
	}
	if s.Context().Err() != nil {
		t.Error("the context ended before the scope")
	}
	s.close()
	if s.Context().Err() == nil || !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("closed: %v, done %v", s.Context().Err(), order)
	}
}

func TestStepSaysHowItWent(t *testing.T) {
	var out strings.Builder
	s := newScope(t.TempDir())
	err := s.try(func() {
		stepper(&out)("a part", func() {})
		stepper(&out)("another", func() { s.must(errors.New("no")) })
	})
	lines := strings.Split(out.String(), "\n")
	if err == nil || len(lines) != 3 || !strings.Contains(lines[0], "a part") || strings.Contains(lines[0], "failed") || !strings.Contains(lines[1], "failed after ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
