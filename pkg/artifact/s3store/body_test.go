package s3store

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

// A body that breaks off is asked for again from there, and a read gets either
// the whole object or an error.
func TestBodyIsResumed(t *testing.T) {
	t.Parallel()
	broken := func(at ...int) []artifacttest.Fault {
		var all []artifacttest.Fault
		for _, n := range at {
			all = append(all, artifacttest.Fault{Method: http.MethodGet, Do: artifacttest.BreakBody, Bytes: n})
		}
		return all
	}
	answer := artifacttest.Fault{Method: http.MethodGet, Do: artifacttest.Answer, Status: 503, Code: "InternalError"}
	cases := map[string]struct {
		faults   []artifacttest.Fault
		want     error
		requests int
	}{
		"whole":                          {nil, nil, 1},
		"broken at the start":            {broken(0), nil, 2},
		"broken in the middle":           {broken(50_000), nil, 2},
		"broken before the end":          {broken(99_999), nil, 2},
		"broken twice":                   {broken(10_000, 10_000), nil, 3},
		"broken thrice":                  {broken(10_000, 10_000, 10_000), artifact.ErrUnavailable, 3},
		"broken, then away for a moment": {append(broken(10_000), answer.Times(2)...), nil, 4},
		"broken, then another part":      {append(broken(10_000), artifacttest.Fault{Method: http.MethodGet, Do: artifacttest.IgnoreRange}), artifact.ErrUnavailable, 2},
		"broken, then away":              {append(broken(10_000), answer.Times(3)...), artifact.ErrUnavailable, 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, server := newStore(t, cloud)
			one := newSample(t, artifact.Bundle, pattern(100_000))
			server.Keep(one.key, one.stored())
			server.Script(c.faults...)
			got, err := one.read(t, store)
			if !errors.Is(err, c.want) || (err == nil && !bytes.Equal(got, one.Content)) {
				t.Errorf("%d bytes, %v, want %v", len(got), err, c.want)
			}
			if n := len(server.Requests("")); n != c.requests || len(server.Pending()) != 0 {
				t.Errorf("%d requests, want %d; not met: %v", n, c.requests, server.Pending())
			}
		})
	}
}

// pattern is content of which no part equals another.
func pattern(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(i*31 + i>>8)
	}
	return out
}

// changing replaces the object once the first part of it was read.
func TestBodyOfAnotherObjectIsNotResumed(t *testing.T) {
	t.Parallel()
	store, server := newStore(t, cloud)
	one := newSample(t, artifact.Bundle, pattern(100_000))
	server.Keep(one.key, one.stored())
	server.Script(artifacttest.Fault{Method: http.MethodGet, Do: artifacttest.BreakBody, Bytes: 1000})
	_, body, err := store.Get(t.Context(), one.key)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	other := one.stored()
	other.Content = bytes.Repeat([]byte("y"), 100_000)
	server.Keep(one.key, other)
	var got bytes.Buffer
	_, err = got.ReadFrom(body)
	if !errors.Is(err, artifact.ErrUnavailable) || !bytes.HasPrefix(one.Content, got.Bytes()) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// S0-48, S0-49: what the service declares, and what it sends, are bounded.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	undeclared := func(more int) artifacttest.Fault {
		return artifacttest.Fault{Method: http.MethodGet, Do: artifacttest.Undeclared, Bytes: more}
	}
	limit := int(artifact.MaxProjectSize)
	cases := map[string]struct {
		size   int
		faults []artifacttest.Fault
		want   error
	}{
		"declared at the bound":        {limit, nil, nil},
		"declared over the bound":      {limit + 1, nil, artifact.ErrTooLarge},
		"not declared":                 {10, []artifacttest.Fault{undeclared(0)}, nil},
		"not declared, over the bound": {10, []artifacttest.Fault{undeclared(limit)}, artifact.ErrTooLarge},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, server := newStore(t, onPrem)
			one := newSample(t, artifact.Project, bytes.Repeat([]byte("x"), c.size))
			server.Keep(one.key, one.stored())
			server.Script(c.faults...)
			got, err := one.read(t, store)
			if !errors.Is(err, c.want) || (err == nil && !bytes.Equal(got, one.Content)) {
				t.Errorf("%d bytes, %v, want %v", len(got), err, c.want)
			}
			if len(server.Requests("")) != 1 {
				t.Errorf("%d requests", len(server.Requests("")))
			}
		})
	}
}
