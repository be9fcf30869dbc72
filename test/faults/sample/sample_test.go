package sample_test

import (
	"bytes"
	"testing"

	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/test/faults/sample"
)

// TestArchive: the sample is a project that the platform accepts, equal texts
// give equal bytes, and different ones do not.
func TestArchive(t *testing.T) {
	t.Parallel()
	var packed [3][]byte
	for i, text := range []string{"a", "a", "b"} {
		var err error
		packed[i], err = sample.Archive(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := project.Read(bytes.NewReader(packed[0]))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed[0], packed[1]) || bytes.Equal(packed[0], packed[2]) {
		t.Error("the text, and nothing else, makes archives differ")
	}
}
