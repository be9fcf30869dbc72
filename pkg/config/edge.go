package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

const (
	trustedProxies = "EDGE_WORKERS_TRUSTED_PROXIES"
	clientHeader   = "EDGE_WORKERS_CLIENT_ADDRESS_HEADER"
)

var headerName = regexp.MustCompile(`\A[A-Za-z0-9-]{1,64}\z`)

// Proxies gives the trusted address ranges.
func (e Edge) Proxies() ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, text := range e.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%s: %q is not an address range such as 10.1.0.0/16", trustedProxies, text)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func (e Edge) check() error {
	switch {
	case len(e.TrustedProxies) == 0 && e.ClientAddressHeader == "":
		return nil
	case e.ClientAddressHeader == "":
		return fmt.Errorf("%s is set but %s is not: which header the proxies set cannot be guessed", trustedProxies, clientHeader)
	case len(e.TrustedProxies) == 0:
		return fmt.Errorf("%s is set but %s is not: anyone could set the header", clientHeader, trustedProxies)
	case strings.EqualFold(e.ClientAddressHeader, "Forwarded"):
		return errors.New(clientHeader + " is Forwarded, whose form is not supported; use a header of plain addresses")
	case !headerName.MatchString(e.ClientAddressHeader):
		return fmt.Errorf("%s is not the name of a header", clientHeader)
	}
	_, err := e.Proxies()
	return err
}
