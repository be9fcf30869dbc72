package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// S2-022, S2-245, S1-272: an invalid value does not stop the start, and is
// noticed whenever it is asked for.
func TestResolve(t *testing.T) {
	t.Parallel()
	settings, err := Load(with("EDGE_WORKERS_PROVIDER", "nobody"), API)
	if err != nil {
		t.Fatal(err)
	}
	p := settings.Provider
	_, err = p.Resolve()
	if !errors.Is(err, ErrProviderInvalid) || ErrProviderInvalid.Error() != "edge_workers_provider_invalid" {
		t.Errorf("error = %v", err)
	}
	if !errors.Is(p.Check(), ErrProviderInvalid) || !strings.Contains(err.Error(), "EDGE_WORKERS_PROVIDER") {
		t.Errorf("error = %v", p.Check())
	}
	for _, kind := range []provider.Kind{provider.Cloudflare, provider.OnPrem} {
		p.Name = string(kind)
		got, err := p.Resolve()
		if err != nil || got != kind {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	for _, name := range []string{"", "Cloudflare", "on-prem", "cloudflare,onprem"} {
		p.Name = name
		_, err = p.Resolve()
		if !errors.Is(err, ErrProviderInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func onPrem() Provider {
	return Provider{
		Name: "onprem", EdgeHostURL: "http://edge-host:8787", EdgeHostAPIToken: NewSecret(hidden),
		EdgeHostDispatchURL: "http://edge-host:8788", EdgeHostIdentity: "host-1",
	}
}

func cloud() Provider {
	return Provider{
		Name: "cloudflare", CloudflareAccountID: "0123456789abcdef0123456789abcdef", CloudflareAPIToken: NewSecret(hidden),
		CloudflareDispatchNamespace: "edge-production", CloudflareSharedNamespaces: []string{"shared-1", "shared-2"},
		CloudflareGatewayURL: "https://workers.example.com",
	}
}

// S0-22, S1-042: what is wrong with the cloud's settings, and that they are all
// that is looked at.
func TestCloudflareCheck(t *testing.T) {
	t.Parallel()
	checkCases(t, cloud, []providerCase{
		{"cloudflare", func(*Provider) {}, ""},
		{"nothing shared", func(p *Provider) { p.CloudflareSharedNamespaces = nil }, ""},
		{"dispatcher on this machine", func(p *Provider) { p.CloudflareGatewayURL = "http://127.0.0.1:8788" }, ""},
		{"no account", func(p *Provider) { p.CloudflareAccountID = "" }, "EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"},
		{"account name", func(p *Provider) { p.CloudflareAccountID = "teamsync" }, "EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"},
		{"no token", func(p *Provider) { p.CloudflareAPIToken = Secret{} }, "EDGE_WORKERS_CLOUDFLARE_API_TOKEN"},
		{"token in two lines", func(p *Provider) { p.CloudflareAPIToken = NewSecret(hidden + "\n" + hidden) }, "EDGE_WORKERS_CLOUDFLARE_API_TOKEN"},
		{"no namespace", func(p *Provider) { p.CloudflareDispatchNamespace = "" }, "EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"},
		{"on-prem scope", func(p *Provider) { p.CloudflareDispatchNamespace = "onprem:0123456789ab" }, "EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"},
		{"own is shared", func(p *Provider) { p.CloudflareSharedNamespaces[1] = "edge-production" }, "EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES"},
		{"shared twice", func(p *Provider) { p.CloudflareSharedNamespaces[1] = "shared-1" }, "EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES"},
		{"wrong shared", func(p *Provider) { p.CloudflareSharedNamespaces[1] = " shared-2" }, "EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES"},
		{"no dispatcher", func(p *Provider) { p.CloudflareGatewayURL = "" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL is not set"},
		{"plain dispatcher", func(p *Provider) { p.CloudflareGatewayURL = "http://workers.example.com" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL must begin with https://"},
		{"dispatcher with a path", func(p *Provider) { p.CloudflareGatewayURL += "/x" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL must be an origin"},
		{"dispatcher with a password", func(p *Provider) { p.CloudflareGatewayURL = "https://u:" + hidden + "@host" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL must be an origin"},
	})
	p := cloud()
	p.CloudflareAccountID, p.CloudflareGatewayURL = "", ""
	if err := p.Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("all faults at once: %v", err)
	}
}

// S2-001, S1-030: cloudflare is the default, and lists are read with commas.
func TestCloudflareFromTheEnvironment(t *testing.T) {
	t.Parallel()
	environment := with("EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES", "shared-1,shared-2")
	environment["EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"] = "edge-production"
	settings, err := Load(environment, API)
	if err != nil {
		t.Fatal(err)
	}
	p := settings.Provider
	kind, err := p.Resolve()
	if err != nil || kind != provider.Cloudflare || p.CloudflareDispatchNamespace != "edge-production" || len(p.CloudflareSharedNamespaces) != 2 {
		t.Errorf("%s, %v, %+v", kind, err, p)
	}
	settings, err = Load(with("EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES", ""), API)
	if err != nil || len(settings.Provider.CloudflareSharedNamespaces) != 0 {
		t.Errorf("%v, %v", err, settings.Provider.CloudflareSharedNamespaces)
	}
}

// providerCase is one change of good settings and what is then said; "" when
// they are accepted.
type providerCase struct {
	name string
	edit func(*Provider)
	says string
}

// S0-22: the provider's own settings are checked apart from the start.
func TestProviderCheck(t *testing.T) {
	t.Parallel()
	checkCases(t, onPrem, []providerCase{
		{"onprem", func(*Provider) {}, ""},
		{"host over https", func(p *Provider) { p.EdgeHostURL = "https://edge-host" }, ""},
		{"no host", func(p *Provider) { p.EdgeHostURL = "" }, "EDGE_WORKERS_EDGE_HOST_URL is not set"},
		{"host with a slash", func(p *Provider) { p.EdgeHostURL += "/" }, "EDGE_WORKERS_EDGE_HOST_URL must be an origin"},
		{"host with a password", func(p *Provider) { p.EdgeHostURL = "https://u:" + hidden + "@host" }, "EDGE_WORKERS_EDGE_HOST_URL must be an origin"},
		{"no URL", func(p *Provider) { p.EdgeHostURL = "https://%" + hidden }, "EDGE_WORKERS_EDGE_HOST_URL is not a URL"},
		{"short token", func(p *Provider) { p.EdgeHostAPIToken = NewSecret("fifteen letters") }, "EDGE_WORKERS_EDGE_HOST_API_TOKEN"},
		{"no dispatch", func(p *Provider) { p.EdgeHostDispatchURL = "ftp://x" }, "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL"},
		{"no identity", func(p *Provider) { p.EdgeHostIdentity = "" }, "EDGE_WORKERS_EDGE_HOST_IDENTITY"},
		{"the other provider", func(p *Provider) { p.Name = "cloudflare" }, "EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"},
	})
}

func checkCases(t *testing.T, good func() Provider, cases []providerCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := good()
			c.edit(&p)
			err := p.Check()
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error = %v, want %q", err, c.says)
			}
			if errors.Is(err, ErrProviderInvalid) {
				t.Error("a valid name counts as invalid")
			}
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the message holds a secret: %v", err)
			}
		})
	}
}
