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

func cloudflare() Provider {
	return Provider{
		Name: "cloudflare", CloudflareAccountID: "acc", CloudflareAPIToken: NewSecret(hidden),
		CloudflareDispatchNamespace: "production", CloudflareGatewayURL: "https://gateway.example",
	}
}

func onPrem() Provider {
	return Provider{
		Name: "onprem", EdgeHostURL: "http://edge-host:8787", EdgeHostAPIToken: NewSecret(hidden),
		EdgeHostDispatchURL: "http://edge-host:8788", EdgeHostIdentity: "host-1",
	}
}

// S0-22: the provider's own settings are checked apart from the start.
func TestProviderCheck(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		p    Provider
		edit func(*Provider)
		says string // "" when accepted
	}{
		{"cloudflare", cloudflare(), func(*Provider) {}, ""},
		{"no account", cloudflare(), func(p *Provider) { p.CloudflareAccountID = "" }, "EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"},
		{"no token", cloudflare(), func(p *Provider) { p.CloudflareAPIToken = Secret{} }, "EDGE_WORKERS_CLOUDFLARE_API_TOKEN"},
		{"no namespace", cloudflare(), func(p *Provider) { p.CloudflareDispatchNamespace = "" }, "EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"},
		{"no gateway", cloudflare(), func(p *Provider) { p.CloudflareGatewayURL = "" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL is not set"},
		{"plain gateway", cloudflare(), func(p *Provider) { p.CloudflareGatewayURL = "http://gateway.example" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL must be an origin"},
		{"gateway with a slash", cloudflare(), func(p *Provider) { p.CloudflareGatewayURL += "/" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL"},
		{"gateway with a password", cloudflare(), func(p *Provider) { p.CloudflareGatewayURL = "https://u:" + hidden + "@g.example" }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL"},
		{"no URL", cloudflare(), func(p *Provider) { p.CloudflareGatewayURL = "https://%" + hidden }, "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL is not a URL"},
		{"the other provider's settings", cloudflare(), func(p *Provider) { p.EdgeHostURL = "nonsense" }, ""},

		{"onprem", onPrem(), func(*Provider) {}, ""},
		{"host over https", onPrem(), func(p *Provider) { p.EdgeHostURL = "https://edge-host" }, ""},
		{"no host", onPrem(), func(p *Provider) { p.EdgeHostURL = "" }, "EDGE_WORKERS_EDGE_HOST_URL"},
		{"short token", onPrem(), func(p *Provider) { p.EdgeHostAPIToken = NewSecret("fifteen letters") }, "EDGE_WORKERS_EDGE_HOST_API_TOKEN"},
		{"no dispatch", onPrem(), func(p *Provider) { p.EdgeHostDispatchURL = "ftp://x" }, "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL"},
		{"no identity", onPrem(), func(p *Provider) { p.EdgeHostIdentity = "" }, "EDGE_WORKERS_EDGE_HOST_IDENTITY"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.edit(&c.p)
			err := c.p.Check()
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
