// Package projecttest has what tests of projects share: packing files that need
// no folder, and comparing the problems of a refusal.
package projecttest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// TB is the part of testing.TB that Archive needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Archive packs files as a .tar.gz in the given order, or sorted by name.
func Archive(t TB, files map[string]string, order ...string) []byte {
	t.Helper()
	if len(order) == 0 {
		order = slices.Sorted(maps.Keys(files))
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, name := range order {
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644})
		if err != nil {
			t.Fatal(err)
		}
		_, err = archive.Write([]byte(files[name]))
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(archive.Close(), zip.Close())
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Problems returns the problems of a refusal as lines "type loc: msg" and ends
// the test when the error is no refusal that names any.
func Problems(t testing.TB, err error) []string {
	t.Helper()
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Kind != fault.Invalid || len(refused.Problems) == 0 {
		t.Fatalf("not a refusal with problems: %v", err)
	}
	lines := make([]string, len(refused.Problems))
	for i, p := range refused.Problems {
		lines[i] = fmt.Sprintf("%s %v: %s", p.Type, p.Loc, p.Msg)
	}
	return lines
}

// Same compares lines.
func Same(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
