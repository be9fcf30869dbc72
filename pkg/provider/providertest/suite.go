// Package providertest is the conformance suite of the provider port. Each
// adapter runs it against a scripted server and, where there is one, the real
// thing.
package providertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Target is one adapter under test.
type Target struct {
	// Server is the provider's server, empty.
	Server http.Handler
	// New returns an adapter that talks to origin.
	New func(origin string) (provider.Provider, error)
	// PathPrefix is what stands before /scripts/ in the server's paths.
	PathPrefix string
	// Bundle returns source that the server accepts; version makes it unique.
	Bundle func(version string) []byte
	// Date is a compatibility date that the server accepts.
	Date string
	// Codes are those of the adapter's error classes.
	Codes Codes
	// Start starts a server for a handler; nil is httptest.NewServer.
	Start func(http.Handler) *httptest.Server
	// AbsentDiffers says that a script that does not exist is provably
	// different and not unreadable.
	AbsentDiffers bool
}

// Codes are an adapter's error codes. TooLarge is the one of a 413; empty is
// Rejected.
type Codes struct{ Rejected, Auth, Uncertain, RateLimited, TooLarge string }

const suiteScript = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

type suite struct {
	Target
	front  *Front
	server *httptest.Server
	p      provider.Provider
}

// Run runs the suite.
func Run(t *testing.T, target Target) {
	s := &suite{Target: target, front: NewFront(target.Server)}
	if s.Codes.TooLarge == "" {
		s.Codes.TooLarge = s.Codes.Rejected
	}
	if s.Start == nil {
		s.Start = httptest.NewServer
	}
	s.server = s.Start(s.front)
	t.Cleanup(s.server.Close)
	var err error
	s.p, err = target.New(s.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a script that does not exist is unreadable", s.absent)
	t.Run("upload sends the full desired state", s.fullState)
	t.Run("read-back finds each drift", s.drift)
	t.Run("read-back faults are unreadable", s.readFaults)
	t.Run("upload outcomes have their class", s.uploadFaults)
	t.Run("an upload that stalls is uncertain", s.stalls)
	t.Run("no byte sent is terminal", s.nothingSent)
	t.Run("an incomplete release is not sent", s.incomplete)
	t.Run("a script is deleted, and its absence shown", s.deletion)
}

func (s *suite) release(version string) provider.Release {
	source := s.Bundle(version)
	return provider.Release{ScriptName: suiteScript, CompatibilityDate: s.Date, Bundle: source, BundleDigest: canonical.SHA256(source)}
}

func (s *suite) absent(t *testing.T) {
	err := s.p.ReadBack(t.Context(), s.release("one"))
	if s.AbsentDiffers {
		wantMismatch(t, err)
		return
	}
	if _, ok := errors.AsType[*provider.UnreadableError](err); !ok || !errors.Is(err, provider.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}

// S2-156 to S2-163.
func (s *suite) fullState(t *testing.T) {
	for _, version := range []string{"one", "two"} {
		release := s.release(version)
		s.front.Requests("")
		if err := s.p.Upload(t.Context(), release); err != nil {
			t.Fatal(err)
		}
		if err := s.p.ReadBack(t.Context(), release); err != nil {
			t.Fatalf("read-back of %s: %v", version, err)
		}
		puts := s.front.Requests(http.MethodPut)
		if len(puts) != 1 || puts[0].Path != s.PathPrefix+"/scripts/"+suiteScript || !strings.HasPrefix(puts[0].Authorization, "Bearer ") {
			t.Fatalf("requests: %+v", puts)
		}
		s.checkUpload(t, puts[0].Upload, release)
	}
	// The release before is provably not what is there now.
	wantMismatch(t, s.p.ReadBack(t.Context(), s.release("one")))
}

func (s *suite) checkUpload(t *testing.T, got upload, release provider.Release) {
	t.Helper()
	tag, err := release.Tag()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"main_module": "index.mjs", "compatibility_date": release.CompatibilityDate, "compatibility_flags": []any{},
		"bindings": []any{map[string]any{"type": "durable_object_namespace", "name": "TEAMSYNC_DEPARTMENT_STORAGE", "class_name": "TeamSyncDepartmentStorage"}},
		"exports":  map[string]any{"TeamSyncDepartmentStorage": map[string]any{"type": "durable-object", "storage": "sqlite"}},
		"tags":     []any{tag},
	}
	if !reflect.DeepEqual(got.metadata, want) {
		t.Fatalf("metadata:\n got %v\nwant %v", got.metadata, want)
	}
	parts := []string{"metadata||application/json", "index.mjs|index.mjs|application/javascript+module"}
	if !slices.Equal(got.names, parts) || canonical.SHA256(got.bundle) != release.BundleDigest {
		t.Fatalf("parts: %v", got.names)
	}
}

func wantMismatch(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*provider.MismatchError](err); !ok {
		t.Fatalf("got %v, want a mismatch", err)
	}
}

// drift changes one field of what the server answers at a time.
func (s *suite) drift(t *testing.T) {
	release := s.release("two")
	for _, c := range driftCases() {
		t.Run(c.name, func(t *testing.T) {
			changed := false
			s.front.set(nil, func(end string, object map[string]any) {
				if end == c.end {
					changed = true
					c.change(object)
				}
			})
			defer s.front.set(nil, nil)
			err := s.p.ReadBack(t.Context(), release)
			if !changed {
				t.Fatal("the end was not read")
			}
			if c.same && err != nil {
				t.Fatalf("got %v, want equal", err)
			}
			if !c.same {
				wantMismatch(t, err)
			}
		})
	}
}

func (s *suite) readFaults(t *testing.T) {
	release := s.release("two")
	faults := map[string]func(http.ResponseWriter, *http.Request, http.Handler) bool{
		"500": refuseWith(500, 10013), "401": refuseWith(401, 10000), "429": refuseWith(429, 971), "302": refuseWith(302, 1),
		"not JSON": answerAfter(200, "<html>"), "no result": answerAfter(200, `{"success":true,"errors":[],"result":null}`),
		"no success": answerAfter(200, `{"result":{}}`), "failed 200": answerAfter(200, `{"success":false,"errors":[],"result":{}}`),
		"dropped": dropAfter, "other 404": refuseWith(404, 10013),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s.front.set(fault, nil)
			defer s.front.set(nil, nil)
			err := s.p.ReadBack(t.Context(), release)
			if _, ok := errors.AsType[*provider.UnreadableError](err); !ok || errors.Is(err, provider.ErrNotFound) {
				t.Fatalf("got %v, want unreadable", err)
			}
		})
	}
	t.Run("one end drifts while the other is unreadable", func(t *testing.T) {
		other := s.release("one")
		s.front.set(func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
			return strings.HasSuffix(r.URL.Path, "/settings") && refuseWith(500, 10013)(w, r, inner)
		}, nil)
		defer s.front.set(nil, nil)
		wantMismatch(t, s.p.ReadBack(t.Context(), other))
	})
	if err := s.p.ReadBack(t.Context(), release); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
}

// uploadFaults covers S2-200, S2-206 to S2-208 and S2-217: each outcome has
// its class and each is one PUT.
func (s *suite) uploadFaults(t *testing.T) {
	for _, c := range s.uploadCases() {
		t.Run(c.name, func(t *testing.T) {
			release := s.release("fault " + c.name)
			s.front.Requests("")
			s.front.set(c.fault, nil)
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			err := s.p.Upload(ctx, release)
			s.front.set(nil, nil)
			if got := describe(err); got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
			if puts := s.front.Requests(http.MethodPut); len(puts) != 1 {
				t.Errorf("%d uploads were sent, want 1", len(puts))
			}
			if back := s.p.ReadBack(t.Context(), release); c.applied != (back == nil) {
				t.Errorf("read-back: %v, applied should be %v", back, c.applied)
			}
		})
	}
}

// describe gives class and code of an upload error.
func describe(err error) string {
	if e, ok := errors.AsType[*provider.TerminalError](err); ok {
		return "terminal " + e.Code
	}
	if e, ok := errors.AsType[*provider.UncertainError](err); ok {
		return "uncertain " + e.Code
	}
	if e, ok := errors.AsType[*provider.RateLimitedError](err); ok {
		return "rate limited " + e.Code
	}
	if e, ok := errors.AsType[*provider.DeferredError](err); ok {
		return "deferred " + e.Code
	}
	if err != nil {
		return fmt.Sprintf("unclassified %v", err)
	}
	return "accepted"
}

// nothingSent connects to a port where nothing listens.
func (s *suite) nothingSent(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p, err := s.New(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(p.Upload(t.Context(), s.release("gone"))); !strings.HasPrefix(got, "terminal ") {
		t.Fatalf("got %q", got)
	}
	readErr := p.ReadBack(t.Context(), s.release("gone"))
	if _, ok := errors.AsType[*provider.UnreadableError](readErr); !ok {
		t.Fatalf("got %v", readErr)
	}
}

func (s *suite) incomplete(t *testing.T) {
	s.front.Requests("")
	for name, change := range map[string]func(*provider.Release){
		"no bundle":    func(r *provider.Release) { r.Bundle = nil },
		"wrong digest": func(r *provider.Release) { r.BundleDigest = strings.Repeat("0", 64) },
		"no date":      func(r *provider.Release) { r.CompatibilityDate = "" },
	} {
		release := s.release("incomplete")
		change(&release)
		if got := describe(s.p.Upload(t.Context(), release)); got != "terminal "+s.Codes.Rejected {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if sent := s.front.Requests(http.MethodPut); len(sent) != 0 {
		t.Fatalf("%d uploads were sent", len(sent))
	}
}

// hang never answers while the client waits.
func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
	select {
	case <-r.Context().Done():
	case <-time.After(30 * time.Second):
	}
	panic(http.ErrAbortHandler)
}
