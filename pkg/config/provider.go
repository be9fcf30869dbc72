package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// ErrProviderInvalid says that EDGE_WORKERS_PROVIDER names no provider. Its
// text is the reason that the recovery sweeps log (S2-245).
var ErrProviderInvalid = errors.New("edge_workers_provider_invalid")

// minHostToken is the edge host's own bound on its token, in characters.
const minHostToken = 16

// Resolve tells which provider is selected, at the time of the call: sweeps ask
// before each round (S1-272). The error is ErrProviderInvalid.
func (p Provider) Resolve() (provider.Kind, error) {
	switch kind := provider.Kind(p.Name); kind {
	case provider.Cloudflare, provider.OnPrem:
		return kind, nil
	default:
		return "", fmt.Errorf("EDGE_WORKERS_PROVIDER is neither %s nor %s: %w", provider.Cloudflare, provider.OnPrem, ErrProviderInvalid)
	}
}

// Check tells what is wrong with the settings of the selected provider, all
// faults at once, or nil. It includes what Resolve says. The other provider's
// settings are not looked at.
func (p Provider) Check() error {
	kind, err := p.Resolve()
	if err != nil {
		return err
	}
	if kind == provider.Cloudflare {
		return p.checkCloudflare()
	}
	return errors.Join(
		origin("EDGE_WORKERS_EDGE_HOST_URL", p.EdgeHostURL),
		hostToken("EDGE_WORKERS_EDGE_HOST_API_TOKEN", p.EdgeHostAPIToken),
		origin("EDGE_WORKERS_EDGE_HOST_DISPATCH_URL", p.EdgeHostDispatchURL),
		needed("EDGE_WORKERS_EDGE_HOST_IDENTITY", p.EdgeHostIdentity),
	)
}

func (p Provider) checkCloudflare() error {
	faults := []error{
		named("EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID", cloudflare.CheckAccountID(p.CloudflareAccountID)),
		named("EDGE_WORKERS_CLOUDFLARE_API_TOKEN", cloudflare.CheckToken(p.CloudflareAPIToken.Reveal())),
		named("EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE", cloudflare.CheckNamespace(p.CloudflareDispatchNamespace)),
		p.checkShared(),
		secureOrigin("EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL", p.CloudflareGatewayURL),
	}
	return errors.Join(faults...)
}

func (p Provider) checkShared() error {
	const variable = "EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES"
	for i, shared := range p.CloudflareSharedNamespaces {
		err := cloudflare.CheckNamespace(shared)
		if err != nil {
			return named(variable, err)
		}
		if shared == p.CloudflareDispatchNamespace || slices.Contains(p.CloudflareSharedNamespaces[:i], shared) {
			return fmt.Errorf("%s has %s twice, or the environment's own namespace", variable, shared)
		}
	}
	return nil
}

// named puts the variable before what is wrong with its value.
func named(variable string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", variable, err)
}

// secureOrigin is an origin over https, but for an address of this very
// machine: assertions and inputs of tenants go there.
func secureOrigin(variable, value string) error {
	err := origin(variable, value)
	if err != nil {
		return err
	}
	parsed, err := url.Parse(value)
	if err != nil || (parsed.Scheme != "https" && !isLoopback(parsed.Hostname())) {
		return fmt.Errorf("%s must begin with https://", variable)
	}
	return nil
}

func hostToken(variable string, token Secret) error {
	if len(token.Reveal()) < minHostToken {
		return fmt.Errorf("%s needs at least %d characters", variable, minHostToken)
	}
	return nil
}

// needed refuses an empty value.
func needed(variable, value string) error {
	if value == "" {
		return fmt.Errorf("%s is not set", variable)
	}
	return nil
}

// origin refuses what is not a bare http(s)://host[:port]. The error does not
// repeat the value, which may hold a password.
func origin(variable, value string) error {
	if value == "" {
		return needed(variable, value)
	}
	parsed, err := url.Parse(value)
	if err != nil {
		return fmt.Errorf("%s is not a URL", variable)
	}
	bare := url.URL{Scheme: parsed.Scheme, Host: parsed.Host}
	if (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Hostname() == "" || bare.String() != value {
		return fmt.Errorf("%s must be an origin with nothing after it, such as https://host", variable)
	}
	return nil
}
