// Package egress is the one way out of a Worker: a forwarding proxy on a unix
// socket that decides by the resolved address and dials exactly that address,
// so that a name cannot be pointed elsewhere between check and use.
package egress

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Policy says what Workers may reach. The zero value is the strict default:
// public addresses, ports 80 and 443.
type Policy struct {
	// Ports are the allowed target ports; empty means 80 and 443.
	Ports []uint16
	// Allow lists address ranges that are reachable although they are not
	// public, such as a company's own network. Ports still apply.
	Allow []netip.Prefix
	// DenyAll refuses every request.
	DenyAll bool
	// RootCAs verifies TLS servers; nil means the system's.
	RootCAs *x509.CertPool
	// MaxRequestBytes (8 MiB) and MaxResponseBytes (32 MiB) bound one
	// exchange, Timeout (30 s) its time.
	MaxRequestBytes  int64
	MaxResponseBytes int64
	Timeout          time.Duration
}

func (p Policy) withDefaults() Policy {
	if len(p.Ports) == 0 {
		p.Ports = []uint16{80, 443}
	}
	if p.MaxRequestBytes == 0 {
		p.MaxRequestBytes = 8 << 20
	}
	if p.MaxResponseBytes == 0 {
		p.MaxResponseBytes = 32 << 20
	}
	if p.Timeout == 0 {
		p.Timeout = 30 * time.Second
	}
	return p
}

// Refusal says why a target is not reachable. Its text is given to the Worker.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return "egress refused: " + r.Reason }

// Ranges that are not public although netip's predicates let them pass, or
// that carry an IPv4 address inside (RFC 6890, 6598, 6052, 3056, 4380, 9637).
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// globalIPv6 is all of IPv6 that is assigned for global use (RFC 4291, 2.4).
var globalIPv6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// CheckPort refuses a port that is not in the policy.
func (p Policy) CheckPort(port uint16) error {
	if !slices.Contains(p.withDefaults().Ports, port) {
		return &Refusal{Reason: fmt.Sprintf("port %d is not allowed", port)}
	}
	return nil
}

// Check refuses an address that is neither public nor in Allow: loopback,
// private, link-local (the metadata services of clouds are there), shared
// carrier space, unique local, multicast, reserved, and IPv6 forms that wrap
// an IPv4 address.
func (p Policy) Check(addr netip.Addr) error {
	if p.DenyAll {
		return &Refusal{Reason: "no outgoing requests are allowed"}
	}
	addr = addr.Unmap()
	if !addr.IsValid() || addr.Zone() != "" {
		return &Refusal{Reason: "the address is not usable"}
	}
	for _, prefix := range p.Allow {
		if prefix.Contains(addr) {
			return nil
		}
	}
	if !public(addr) {
		return &Refusal{Reason: "the address is not public"}
	}
	return nil
}

func public(addr netip.Addr) bool {
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
		return false
	}
	if addr.Is6() && !globalIPv6.Contains(addr) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}
