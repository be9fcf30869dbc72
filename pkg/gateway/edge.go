package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Edge knows the proxies in front of the gateway, and the header in which they
// name the client. Without both, the client is whoever opened the connection.
type Edge struct {
	Proxies []netip.Prefix
	Header  string
}

// Address gives the address of a request's client, "" when it is not known.
// The header is believed only from a trusted proxy, and read from its end: each
// proxy adds to it, so that what stands before the last address that is no
// proxy's may be the client's own words (D11).
func (e Edge) Address(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	address, ok := plain(peer.Addr())
	if !ok {
		return ""
	}
	if e.Header == "" || !e.trusts(address) {
		return address.String()
	}
	return e.named(r.Header.Values(e.Header))
}

// named finds the last address in the header that is no trusted proxy.
func (e Edge) named(lines []string) string {
	for _, line := range slices.Backward(lines) {
		for _, text := range slices.Backward(strings.Split(line, ",")) {
			parsed, err := netip.ParseAddr(strings.Trim(text, " \t"))
			if err != nil {
				return ""
			}
			address, ok := plain(parsed)
			if !ok {
				return ""
			}
			if !e.trusts(address) {
				return address.String()
			}
		}
	}
	return ""
}

func (e Edge) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(e.Proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// plain gives an address without the form of IPv6 around an IPv4 one, and
// refuses zones, which mean something on one machine only.
func plain(address netip.Addr) (netip.Addr, bool) {
	return address.Unmap(), address.Zone() == ""
}
