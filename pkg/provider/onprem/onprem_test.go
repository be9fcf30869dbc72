package onprem_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/provider/providertest"
)

const token = "onprem-test-token-0123"

func source(version string) []byte {
	return []byte(`import { DurableObject } from "cloudflare:workers";
export class TeamSyncDepartmentStorage extends DurableObject {}
export default { fetch() { return new Response("` + version + `"); } };`)
}

func target(server http.Handler) providertest.Target {
	return providertest.Target{
		Server: server,
		New: func(origin string) (provider.Provider, error) {
			return onprem.New(onprem.Params{Origin: origin, Token: token})
		},
		PathPrefix: "/client/v4/accounts/" + onprem.DefaultAccount + "/workers/dispatch/namespaces/" + onprem.DefaultNamespace,
		Bundle:     source, Date: "2026-11-01",
		Codes: providertest.Codes{
			Rejected: "edge_host_bundle_rejected", Auth: "edge_host_unavailable",
			Uncertain: "cloudflare_upload_uncertain", RateLimited: "cloudflare_rate_limited",
		},
	}
}

func TestConformanceWithModel(t *testing.T) {
	t.Parallel()
	providertest.Run(t, target(providertest.NewServer()))
}

func TestConformanceWithRealEdgeHost(t *testing.T) {
	t.Parallel()
	providertest.Run(t, target(newHost(t, edgehost.Limits{}).ControlHandler()))
}

func newHost(t *testing.T, limits edgehost.Limits) *edgehost.Host {
	t.Helper()
	return edgehosttest.Start(t, edgehost.Params{Token: token, Limits: limits, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func release(name string, source []byte) provider.Release {
	return provider.Release{ScriptName: name, CompatibilityDate: "2026-11-01", Bundle: source, BundleDigest: canonical.SHA256(source)}
}

func scriptName(digit string) string { return "dw-" + strings.Repeat(digit, 48) }

func newProvider(t *testing.T, origin, token string) *onprem.Provider {
	t.Helper()
	p, err := onprem.New(onprem.Params{Origin: origin, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The refusals of the real host reach the deployment task as what they are.
func TestRefusalsOfTheRealHost(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newHost(t, edgehost.Limits{MaxScripts: 1, MaxBundleBytes: 1 << 20}).ControlHandler())
	t.Cleanup(server.Close)
	p := newProvider(t, server.URL, token)
	good := release(scriptName("a"), source("good"))
	if err := p.Upload(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p       *onprem.Provider
		release provider.Release
		code    string
		text    string
	}{
		"bundle throws":    {p, release(scriptName("a"), []byte(`throw new Error("boom at the top")`)), onprem.CodeRejected, "boom at the top"},
		"bundle too large": {p, release(scriptName("a"), append(source("x"), strings.Repeat(" ", 1<<20)...)), onprem.CodeRejected, "10027"},
		"host full":        {p, release(scriptName("b"), source("b")), onprem.CodeCapacity, ""},
		"wrong token":      {newProvider(t, server.URL, "another token of some length"), good, onprem.CodeUnavailable, "10000"},
		"foreign name":     {p, release("department-worker", source("x")), onprem.CodeRejected, "not one of ours"},
	} {
		err := c.p.Upload(t.Context(), c.release)
		terminal, ok := errors.AsType[*provider.TerminalError](err)
		if !ok || terminal.Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		// S2-228: the capacity refusal alone shows a text.
		if (terminal.Guidance == onprem.CapacityGuidance) != (c.code == onprem.CodeCapacity) || (c.code != onprem.CodeCapacity && terminal.Guidance != "") {
			t.Errorf("%s: guidance %q", name, terminal.Guidance)
		}
	}
	if err := p.ReadBack(t.Context(), good); err != nil {
		t.Fatalf("after the refusals: %v", err)
	}
}

// S2-223: an active backup fence is a deferral; other 423 and 507 are not
// taken for what they do not say.
func TestHostCodesDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		check  func(error) bool
	}{
		"S2-223 fence":         {423, `{"success":false,"errors":[{"code":"edge_host_fenced","message":"backup fence active"}]}`, is[*provider.DeferredError]},
		"423 of something":     {423, `{"success":false,"errors":[{"code":1,"message":"locked"}]}`, is[*provider.TerminalError]},
		"507 with the code":    {507, `{"success":false,"errors":[{"code":"edge_host_capacity_exhausted","message":"full"}]}`, is[*provider.TerminalError]},
		"507 without the code": {507, `insufficient storage`, is[*provider.UncertainError]},
		"ack of another":       {200, `{"success":true,"errors":[],"result":{"id":"dw-other","etag":"x"}}`, is[*provider.UncertainError]},
		"ack without etag":     {200, `{"success":true,"errors":[],"result":{"id":"` + scriptName("c") + `"}}`, is[*provider.UncertainError]},
		"ack":                  {200, `{"success":true,"errors":[],"result":{"id":"` + scriptName("c") + `","etag":"x"}}`, func(err error) bool { return err == nil }},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		err := newProvider(t, server.URL, token).Upload(t.Context(), release(scriptName("c"), source("c")))
		server.Close()
		if !c.check(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestDefaultsFitTheEdgeHost(t *testing.T) {
	t.Parallel()
	if onprem.DefaultAccount != edgehost.DefaultAccount || onprem.DefaultNamespace != edgehost.DefaultNamespace || onprem.CodeCapacity != "edge_host_capacity_exhausted" {
		t.Fatal("the defaults of client and host differ")
	}
}
