package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func hostWith(pairs ...string) map[string]string {
	environment := map[string]string{
		"EDGE_WORKERS_HOST_DATA_DIR":  "/var/lib/edge-host",
		"EDGE_WORKERS_HOST_API_TOKEN": hidden,
	}
	for pair := range slices.Chunk(pairs, 2) {
		environment[pair[0]] = pair[1]
	}
	return environment
}

func TestHostDefaults(t *testing.T) {
	t.Parallel()
	settings, err := LoadHost(hostWith())
	if err != nil {
		t.Fatal(err)
	}
	token := settings.Host.APIToken
	want := HostSettings{
		Host: Host{DataDir: "/var/lib/edge-host", APIToken: token, APIAddr: ":8787", DispatchAddr: ":8788", MetricsAddr: ":9090", Isolation: "on"},
		Log:  Log{Level: "info"},
	}
	if !reflect.DeepEqual(settings, want) || token.Reveal() != hidden || !settings.Host.Isolated() {
		t.Errorf("settings = %+v", settings)
	}
	ranges, err := settings.Host.Allowed()
	if err != nil || len(ranges) != 0 {
		t.Errorf("ranges = %v, %v", ranges, err)
	}
}

func TestHostRanges(t *testing.T) {
	t.Parallel()
	settings, err := LoadHost(hostWith("EDGE_WORKERS_HOST_EGRESS_ALLOW", "10.1.0.0/16,fd00::/8", "EDGE_WORKERS_HOST_ISOLATION", "off"))
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := settings.Host.Allowed()
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	if err != nil || !slices.Equal(ranges, want) || settings.Host.Isolated() {
		t.Errorf("ranges = %v, %v", ranges, err)
	}
}

func TestHostRefusals(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		pairs []string
		says  string
	}{
		{"no folder", []string{"EDGE_WORKERS_HOST_DATA_DIR", ""}, "EDGE_WORKERS_HOST_DATA_DIR is not set"},
		{"short token", []string{"EDGE_WORKERS_HOST_API_TOKEN", "short"}, "EDGE_WORKERS_HOST_API_TOKEN needs at least 16"},
		{"address", []string{"EDGE_WORKERS_HOST_API_ADDR", "host"}, "EDGE_WORKERS_HOST_API_ADDR is not host:port"},
		{"one address twice", []string{"EDGE_WORKERS_HOST_DISPATCH_ADDR", ":8787"}, "EDGE_WORKERS_HOST_API_ADDR and EDGE_WORKERS_HOST_DISPATCH_ADDR are both :8787"},
		{"metrics among invocations", []string{"EDGE_WORKERS_HOST_METRICS_ADDR", ":8788"}, "EDGE_WORKERS_HOST_DISPATCH_ADDR and EDGE_WORKERS_HOST_METRICS_ADDR are both :8788"},
		{"half isolated", []string{"EDGE_WORKERS_HOST_ISOLATION", "yes"}, "EDGE_WORKERS_HOST_ISOLATION must be one of on, off"},
		{"no range", []string{"EDGE_WORKERS_HOST_EGRESS_ALLOW", "10.1.0.0/16,example.com"}, `"example.com" is not an address range`},
		{"bits below the range", []string{"EDGE_WORKERS_HOST_EGRESS_ALLOW", "10.1.2.3/16"}, `"10.1.2.3/16" is not an address range`},
		{"misspelt", []string{"EDGE_WORKERS_HOST_DATADIR", "/x"}, "did you mean EDGE_WORKERS_HOST_DATA_DIR?"},
		{"log level", []string{"EDGE_WORKERS_LOG_LEVEL", "loud"}, "settings of the edge host: EDGE_WORKERS_LOG_LEVEL"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := LoadHost(hostWith(c.pairs...))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), hidden) {
				t.Errorf("the message holds a secret: %v", err)
			}
		})
	}
}
