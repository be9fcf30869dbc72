package gateway_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/teamsync/edge-workers/pkg/gateway"
)

// from is a request from a peer with the header's lines.
func from(peer string, lines ...string) *http.Request {
	return &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": lines}}
}

// D11: without trusted proxies no header is believed.
func TestAddressOfTheConnection(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[fe80::1%eth0]:80": "", "@": "", "": "", "192.0.2.1": "", "host:80": "",
	} {
		if got := (gateway.Edge{}).Address(from(peer, "203.0.113.9")); got != want {
			t.Errorf("%q: %q, want %q", peer, got, want)
		}
	}
}

// D11: the header counts only when a trusted proxy sends it, and from its end;
// what a client wrote before is ignored.
func TestAddressBehindProxies(t *testing.T) {
	t.Parallel()
	edge := gateway.Edge{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, Header: "X-Forwarded-For"}
	const proxy = "10.0.0.1:80"
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"one address", proxy, []string{"203.0.113.9"}, "203.0.113.9"},
		{"a proxy with IPv6", "[fd00::1]:80", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:80", []string{"203.0.113.9"}, "203.0.113.9"},
		{"an untrusted peer", "192.0.2.1:80", []string{"203.0.113.9"}, "192.0.2.1"},
		{"an untrusted peer without it", "192.0.2.1:80", nil, "192.0.2.1"},
		{"the client's own words before", proxy, []string{"198.51.100.7, 203.0.113.9"}, "203.0.113.9"},
		{"in a line of their own", proxy, []string{"198.51.100.7", "203.0.113.9"}, "203.0.113.9"},
		{"a proxy's address among them", proxy, []string{"10.9.9.9,203.0.113.9"}, "203.0.113.9"},
		{"no address among them", proxy, []string{"unknown, 203.0.113.9"}, "203.0.113.9"},
		{"two proxies", proxy, []string{"198.51.100.7, 203.0.113.9,10.0.0.2 ,\tfd00::2"}, "203.0.113.9"},
		{"two proxies in two lines", proxy, []string{"203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		{"IPv6", proxy, []string{"2001:DB8::0:1"}, "2001:db8::1"},
		{"mapped", proxy, []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"a mapped proxy behind", proxy, []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		{"none", proxy, nil, ""},
		{"an empty one", proxy, []string{""}, ""},
		{"an empty end", proxy, []string{"203.0.113.9,"}, ""},
		{"an empty line at the end", proxy, []string{"203.0.113.9", ""}, ""},
		{"proxies only", proxy, []string{"10.0.0.2, 10.0.0.3"}, ""},
		{"a zone", proxy, []string{"fe80::1%eth0"}, ""},
		{"a port", proxy, []string{"203.0.113.9:80"}, ""},
		{"brackets", proxy, []string{"[2001:db8::1]"}, ""},
		{"a name", proxy, []string{"203.0.113.9, unknown"}, ""},
		{"leading zeros", proxy, []string{"203.0.113.009"}, ""},
	} {
		if got := edge.Address(from(c.peer, c.lines...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
