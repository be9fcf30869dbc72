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

// S0-22: the provider's own settings are checked apart from the start.
func TestProviderCheck(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		edit func(*Provider)
		says string // "" when accepted
	}{
		{"onprem", func(*Provider) {}, ""},
		{"host over https", func(p *Provider) { p.EdgeHostURL = "https://edge-host" }, ""},
		{"no host", func(p *Provider) { p.EdgeHostURL = "" }, "EDGE_WORKERS_EDGE_HOST_URL is not set"},
		{"host with a slash", func(p *Provider) { p.EdgeHostURL += "/" }, "EDGE_WORKERS_EDGE_HOST_URL must be an origin"},
		{"host with a password", func(p *Provider) { p.EdgeHostURL = "https://u:" + hidden + "@host" }, "EDGE_WORKERS_EDGE_HOST_URL must be an origin"},
		{"no URL", func(p *Provider) { p.EdgeHostURL = "https://%" + hidden }, "EDGE_WORKERS_EDGE_HOST_URL is not a URL"},
		{"short token", func(p *Provider) { p.EdgeHostAPIToken = NewSecret("fifteen letters") }, "EDGE_WORKERS_EDGE_HOST_API_TOKEN"},
		{"no dispatch", func(p *Provider) { p.EdgeHostDispatchURL = "ftp://x" }, "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL"},
		{"no identity", func(p *Provider) { p.EdgeHostIdentity = "" }, "EDGE_WORKERS_EDGE_HOST_IDENTITY"},
		{"a provider that is not there", func(p *Provider) { p.Name = "cloudflare" }, "EDGE_WORKERS_PROVIDER is cloudflare, which this release does not have"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := onPrem()
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
