package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// D11: by default no header is believed.
func TestEdgeDefaults(t *testing.T) {
	t.Parallel()
	edge := Edge{}
	ranges, err := edge.Proxies()
	if edge.check() != nil || err != nil || len(ranges) != 0 {
		t.Errorf("%v, %v, %v", edge.check(), ranges, err)
	}
}

func TestEdgeRanges(t *testing.T) {
	t.Parallel()
	edge := Edge{TrustedProxies: []string{"10.1.0.0/16", "fd00::/8", "192.0.2.1/32"}, ClientAddressHeader: "X-Forwarded-For"}
	ranges, err := edge.Proxies()
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32")}
	if err != nil || edge.check() != nil || !slices.Equal(ranges, want) {
		t.Errorf("%v, %v, %v", ranges, err, edge.check())
	}
}

// D11: one without the other stops the start, and the message names both.
func TestEdgeRefusals(t *testing.T) {
	t.Parallel()
	const proxies, header = "EDGE_WORKERS_TRUSTED_PROXIES", "EDGE_WORKERS_CLIENT_ADDRESS_HEADER"
	for _, c := range []struct {
		name  string
		edge  Edge
		names []string
	}{
		{"proxies alone", Edge{TrustedProxies: []string{"10.0.0.0/8"}}, []string{proxies, header}},
		{"header alone", Edge{ClientAddressHeader: "X-Real-IP"}, []string{proxies, header}},
		{"no range", Edge{[]string{"10.0.0.1"}, "X-Real-IP"}, []string{proxies, `"10.0.0.1"`}},
		{"bits below the range", Edge{[]string{"10.0.0.1/8"}, "X-Real-IP"}, []string{proxies, `"10.0.0.1/8"`}},
		{"a mapped range", Edge{[]string{"::ffff:10.0.0.0/104"}, "X-Real-IP"}, []string{proxies}},
		{"a name", Edge{[]string{"proxy.example.com"}, "X-Real-IP"}, []string{proxies, "proxy.example.com"}},
		{"no header name", Edge{[]string{"10.0.0.0/8"}, "X-Real-IP: "}, []string{header}},
		{"another form", Edge{[]string{"10.0.0.0/8"}, "forwarded"}, []string{header, "Forwarded"}},
	} {
		err := c.edge.check()
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, name := range c.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v does not name %s", c.name, err, name)
			}
		}
	}
}

// The two are settings of the API, and a start with half of them fails.
func TestEdgeIsLoaded(t *testing.T) {
	t.Parallel()
	settings, err := Load(with("EDGE_WORKERS_TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8", "EDGE_WORKERS_CLIENT_ADDRESS_HEADER", "X-Real-IP"), API)
	if err != nil || len(settings.Edge.TrustedProxies) != 2 || settings.Edge.ClientAddressHeader != "X-Real-IP" {
		t.Errorf("%+v, %v", settings.Edge, err)
	}
	_, err = Load(with("EDGE_WORKERS_TRUSTED_PROXIES", "10.0.0.0/8"), API)
	if err == nil || !strings.Contains(err.Error(), "EDGE_WORKERS_CLIENT_ADDRESS_HEADER") {
		t.Errorf("half of them: %v", err)
	}
}
