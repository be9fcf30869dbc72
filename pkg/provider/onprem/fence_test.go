package onprem_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
)

// S2-223, on the real host: behind its fence an upload is deferred, and nothing
// is read back of it.
func TestFence(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newHost(t, edgehost.Limits{}).ControlHandler())
	defer server.Close()
	p := newProvider(t, server.URL, token)
	want := func(got provider.Fence, err error, active, ended string) {
		t.Helper()
		if err != nil || got != (provider.Fence{Active: active, Ended: ended}) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	state, err := p.BeginFence(t.Context(), "nightly")
	want(state, err, "nightly", "")
	behind := release(scriptName("a"), source("one"))
	err = p.Upload(t.Context(), behind)
	if _, ok := errors.AsType[*provider.DeferredError](err); !ok {
		t.Errorf("upload behind the fence: %v", err)
	}
	if err := p.ReadBack(t.Context(), behind); err == nil {
		t.Error("the upload was taken")
	}
	_, err = p.BeginFence(t.Context(), "other")
	if err == nil {
		t.Error("a second fence was begun")
	}
	state, err = p.Fence(t.Context())
	want(state, err, "nightly", "")
	state, err = p.EndFence(t.Context(), "nightly")
	want(state, err, "", "nightly")
	if err := errors.Join(p.Upload(t.Context(), behind), p.ReadBack(t.Context(), behind)); err != nil {
		t.Errorf("after the fence: %v", err)
	}
}

// What cannot be read as a fence is an error, never "no fence".
func TestFenceUnreadable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newHost(t, edgehost.Limits{}).ControlHandler())
	p := newProvider(t, server.URL, "another-token-0123456789")
	_, err := p.Fence(t.Context())
	if err == nil {
		t.Error("a refused token gave a fence")
	}
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"success":true,"errors":[],"result":{"ended":""}}`))
	}))
	defer half.Close()
	_, err = newProvider(t, half.URL, token).Fence(t.Context())
	if err == nil {
		t.Error("half an answer gave a fence")
	}
	server.Close()
	for name, call := range map[string]func(*onprem.Provider) error{
		"read":  func(p *onprem.Provider) error { _, err := p.Fence(t.Context()); return err },
		"begin": func(p *onprem.Provider) error { _, err := p.BeginFence(t.Context(), "a"); return err },
		"end":   func(p *onprem.Provider) error { _, err := p.EndFence(t.Context(), "a"); return err },
	} {
		if call(p) == nil {
			t.Errorf("%s: no error without a host", name)
		}
	}
}
