package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(testing.TB) artifact.Backend { return artifacttest.NewMemory() })
}

// The golden vectors were computed apart from this code, with printf and sha256sum.
func TestTenantPrefixGolden(t *testing.T) { // S0-33
	t.Parallel()
	for tenant, want := range map[artifact.Tenant]string{
		{CompanyID: "a", DepartmentID: "bc"}:                   "c1cb892552224a4b007f40538b2cedc1",
		{CompanyID: "ab", DepartmentID: "c"}:                   "7c774a0b305e4b4efa22e0470f61c1b0",
		{CompanyID: "company-1", DepartmentID: "department-1"}: "2c0a04a83f852e2921f07130a3ceea51",
	} {
		if got := tenant.Prefix(); got != want {
			t.Errorf("prefix of %v is %q, want %q", tenant, got, want)
		}
	}
}

func TestKeyGolden(t *testing.T) { // S0-32, S0-34, S0-36, S0-39
	t.Parallel()
	tenant := artifact.Tenant{CompanyID: "company-1", DepartmentID: "department-1"}
	digest := canonical.SHA256([]byte("content"))
	for kind, want := range map[artifact.Kind]string{
		artifact.Project: "edge-workers/2c0a04a83f852e2921f07130a3ceea51/project/ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73-artifact_1.tar.gz",
		artifact.Bundle:  "edge-workers/2c0a04a83f852e2921f07130a3ceea51/bundle/ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73-artifact_1.mjs",
	} {
		got, err := artifact.Key(tenant, kind, digest, "artifact_1")
		if err != nil || got != want {
			t.Errorf("key is %q, %v, want %q", got, err, want)
		}
		if strings.Contains(got, tenant.CompanyID) || strings.Contains(got, tenant.DepartmentID) {
			t.Errorf("key %q holds a raw tenant id", got)
		}
		if err := artifact.Owned(tenant, kind, got); err != nil {
			t.Errorf("own key is refused: %v", err)
		}
	}
}

func TestVerify(t *testing.T) { // S0-50, S0-51
	t.Parallel()
	content := []byte("content")
	digest := canonical.SHA256(content)
	if err := artifact.Verify(content, 7, digest); err != nil {
		t.Errorf("unchanged content is refused: %v", err)
	}
	for name, err := range map[string]error{
		"one byte changed": artifact.Verify([]byte("cOntent"), 7, digest),
		"another size":     artifact.Verify(content, 8, digest),
		"shorter":          artifact.Verify(content[:6], 7, digest),
		"no digest":        artifact.Verify(content, 7, ""),
	} {
		if !errors.Is(err, artifact.ErrMismatch) {
			t.Errorf("%s: %v, want a mismatch", name, err)
		}
	}
}

// liar declares another length than it sends.
type liar struct {
	artifact.Backend
	declared int64
	body     *trackedBody
}

type trackedBody struct {
	io.Reader
	read   int
	closed bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *trackedBody) Close() error { b.closed = true; return nil }

func (l *liar) Get(context.Context, string) (artifact.Info, io.ReadCloser, error) {
	return artifact.Info{Size: l.declared}, l.body, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReadIsBoundedTwice(t *testing.T) { // S0-48, S0-49
	t.Parallel()
	object := artifacttest.NewObject(artifact.Bundle, "id", []byte("x"))
	key, err := object.Key()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		declared int64
		body     io.Reader
		want     error
		maxRead  int
	}{
		"declared over the bound":       {101, strings.NewReader("short"), artifact.ErrTooLarge, 0},
		"declared at the bound":         {100, bytes.NewReader(make([]byte, 100)), nil, 100},
		"small declared, long body":     {5, bytes.NewReader(make([]byte, 5000)), artifact.ErrTooLarge, 101},
		"not declared, long body":       {-1, bytes.NewReader(make([]byte, 5000)), artifact.ErrTooLarge, 101},
		"not declared, at the bound":    {-1, bytes.NewReader(make([]byte, 100)), nil, 100},
		"body longer than declared":     {5, bytes.NewReader(make([]byte, 50)), artifact.ErrMismatch, 50},
		"body shorter than declared":    {50, bytes.NewReader(make([]byte, 5)), artifact.ErrMismatch, 5},
		"connection lost while reading": {50, brokenReader{}, artifact.ErrUnavailable, 0},
	}
	for name, c := range cases {
		body := &trackedBody{Reader: c.body}
		store := artifact.NewFenced(&liar{declared: c.declared, body: body})
		_, err := store.Get(t.Context(), artifacttest.Owner, artifact.Bundle, key, 100)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		if body.read > c.maxRead || !body.closed {
			t.Errorf("%s: read %d bytes (at most %d), closed %v", name, body.read, c.maxRead, body.closed)
		}
	}
}
