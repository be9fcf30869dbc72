package s3store

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

// A Put whose answer says little is settled by what the service holds (S0-52).
func TestPutIsSettledByReadingBack(t *testing.T) {
	t.Parallel()
	fault := func(do artifacttest.Action, status int) artifacttest.Fault {
		return artifacttest.Fault{Method: http.MethodPut, Do: do, Status: status, Code: "Conflict"}
	}
	cases := map[string]struct {
		there  string // what is under the key before
		faults []artifacttest.Fault
		want   error
		puts   int
		gets   int
	}{
		"new":                            {"", nil, nil, 1, 0},
		"equal there":                    {"content", nil, nil, 1, 1},
		"other there":                    {"cOntent", nil, artifact.ErrExists, 1, 1},
		"longer there":                   {"content and more", nil, artifact.ErrExists, 1, 1},
		"reply lost once":                {"", fault(artifacttest.LoseReply, 0).Times(1), nil, 2, 1},
		"reply lost each time":           {"", fault(artifacttest.LoseReply, 0).Times(3), nil, 3, 1},
		"reply lost, other there":        {"cOntent", fault(artifacttest.LoseReply, 0).Times(3), artifact.ErrExists, 3, 1},
		"applied and 500 each time":      {"", fault(artifacttest.Misreport, 500).Times(3), nil, 3, 1},
		"applied and 409":                {"", fault(artifacttest.Misreport, 409).Times(1), nil, 1, 1},
		"applied and 412":                {"", fault(artifacttest.Misreport, 412).Times(1), nil, 1, 1},
		"409 and nothing there":          {"", fault(artifacttest.Answer, 409).Times(1), artifact.ErrUnavailable, 1, 1},
		"412 and nothing there":          {"", fault(artifacttest.Answer, 412).Times(1), artifact.ErrUnavailable, 1, 1},
		"reset once":                     {"", fault(artifacttest.Reset, 0).Times(1), nil, 2, 0},
		"reset each time":                {"", fault(artifacttest.Reset, 0).Times(3), artifact.ErrUnavailable, 3, 1},
		"500 each time, nothing there":   {"", fault(artifacttest.Answer, 500).Times(3), artifact.ErrUnavailable, 3, 1},
		"501 is definite":                {"", fault(artifacttest.Answer, 501).Times(1), artifact.ErrUnavailable, 1, 0},
		"403 is definite":                {"content", fault(artifacttest.Answer, 403).Times(1), artifact.ErrUnavailable, 1, 0},
		"read back is refused":           {"content", []artifacttest.Fault{{Method: http.MethodGet, Do: artifacttest.Answer, Status: 403, Code: "AccessDenied"}}, artifact.ErrUnavailable, 1, 1},
		"read back breaks and goes on":   {"content", []artifacttest.Fault{{Method: http.MethodGet, Do: artifacttest.BreakBody, Bytes: 3}}, nil, 1, 2},
		"read back is longer than it is": {"content", []artifacttest.Fault{{Method: http.MethodGet, Do: artifacttest.Undeclared, Bytes: 3}}, artifact.ErrExists, 1, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, server := newStore(t, cloud)
			one := newSample(t, artifact.Bundle, []byte("content"))
			if c.there != "" {
				before := one.stored()
				before.Content = []byte(c.there)
				server.Keep(one.key, before)
			}
			server.Script(c.faults...)
			err := one.put(t, store)
			if !errors.Is(err, c.want) || errors.Is(err, artifact.ErrNotFound) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if puts, gets := len(server.Requests(http.MethodPut)), len(server.Requests(http.MethodGet)); puts != c.puts || gets != c.gets {
				t.Errorf("%d puts and %d gets, want %d and %d", puts, gets, c.puts, c.gets)
			}
			if len(server.Pending()) != 0 {
				t.Errorf("not met: %v", server.Pending())
			}
			stored, want := string(server.Objects()[one.key].Content), c.there
			if c.there == "" && c.want == nil {
				want = "content"
			}
			if stored != want {
				t.Errorf("stored %q, want %q", stored, want)
			}
		})
	}
}

// Equal content with other attributes is another object.
func TestPutComparesAttributes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*artifacttest.S3Object){
		"content type": func(o *artifacttest.S3Object) { o.ContentType = "text/plain" },
		"digest": func(o *artifacttest.S3Object) {
			o.Metadata = map[string]string{"sha256digest": strings.Repeat("0", 64)}
		},
		"no metadata":     func(o *artifacttest.S3Object) { o.Metadata = nil },
		"second metadata": func(o *artifacttest.S3Object) { o.Metadata["other"] = "x" },
	} {
		store, server := newStore(t, onPrem)
		one := newSample(t, artifact.Project, []byte("content"))
		other := newSample(t, artifact.Project, []byte("content")).stored()
		change(&other)
		server.Keep(one.key, other)
		if err := one.put(t, store); !errors.Is(err, artifact.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the service writes beside its code, and what it is called, never carry
// a credential on. A long error is cut.
func TestErrorsAreClean(t *testing.T) {
	t.Parallel()
	store, server := newStore(t, cloud)
	one := newSample(t, artifact.Project, []byte("content"))
	for _, code := range []string{"AccessDenied", keyID + secret, strings.Repeat("A", 1000)} {
		server.Script(artifacttest.Fault{Do: artifacttest.Answer, Status: 403, Code: code})
		err := one.put(t, store)
		if err == nil || strings.Contains(err.Error(), keyID) || strings.Contains(err.Error(), secret) || len(err.Error()) > 400 {
			t.Errorf("%.20s: %v", code, err)
		}
		if code == "AccessDenied" && !strings.Contains(err.Error(), "S3 PutObject: HTTP 403 AccessDenied") {
			t.Errorf("the error does not say what happened: %v", err)
		}
	}
	quoted := store.failure("PutObject", fmt.Errorf("malformed reply %q %s", secret, strings.Repeat("x", 1000)))
	if strings.Contains(quoted.Error(), secret) || len(quoted.Error()) > 400 || !strings.Contains(quoted.Error(), "malformed reply") {
		t.Errorf("%v", quoted)
	}
}

// The bound of 5 MiB goes through, and comes back the same.
func TestLargestObject(t *testing.T) {
	t.Parallel()
	for _, p := range []artifacttest.S3Params{cloud, onPrem} {
		store, server := newStore(t, p)
		one := newSample(t, artifact.Bundle, bytes.Repeat([]byte("x"), int(artifact.MaxBundleSize)))
		server.Script(artifacttest.Fault{Method: http.MethodPut, Do: artifacttest.Reset}) // a body that is sent twice
		if err := one.put(t, store); err != nil {
			t.Fatal(err)
		}
		one.wantStored(t, server)
		if header := server.Requests(http.MethodPut)[1].Header; header.Get("Expect") != "" {
			t.Errorf("a PUT waits for %s", header.Get("Expect"))
		}
		got, err := one.read(t, store)
		if err != nil || !bytes.Equal(got, one.Content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}
