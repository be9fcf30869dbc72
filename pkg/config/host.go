package config

import (
	"errors"
	"fmt"
	"net/netip"
)

// HostSettings are all settings of the edge host.
type HostSettings struct {
	Host Host
	Log  Log
}

// The values of EDGE_WORKERS_HOST_ISOLATION.
const (
	IsolationOn  = "on"
	IsolationOff = "off"
)

// LoadHost reads and checks the settings of the edge host, as Load does for
// the other processes.
func LoadHost(environment map[string]string) (HostSettings, error) {
	var settings HostSettings
	err := parse(environment, &settings)
	if err != nil {
		return HostSettings{}, err
	}
	err = errors.Join(settings.Host.check(), settings.Log.check())
	if err != nil {
		return HostSettings{}, fmt.Errorf("settings of the edge host: %w", err)
	}
	return settings, nil
}

// Isolated tells whether Workers run under uids of their own.
func (h Host) Isolated() bool { return h.Isolation == IsolationOn }

// Allowed gives the private address ranges that Workers may reach.
func (h Host) Allowed() ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, text := range h.EgressAllow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("EDGE_WORKERS_HOST_EGRESS_ALLOW: %q is not an address range such as 10.1.0.0/16", text)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func (h Host) check() error {
	_, err := h.Allowed()
	faults := []error{
		needed("EDGE_WORKERS_HOST_DATA_DIR", h.DataDir),
		hostToken("EDGE_WORKERS_HOST_API_TOKEN", h.APIToken),
		address("EDGE_WORKERS_HOST_API_ADDR", h.APIAddr),
		address("EDGE_WORKERS_HOST_DISPATCH_ADDR", h.DispatchAddr),
		address("EDGE_WORKERS_HOST_METRICS_ADDR", h.MetricsAddr),
		distinct("EDGE_WORKERS_HOST_API_ADDR", h.APIAddr, "EDGE_WORKERS_HOST_DISPATCH_ADDR", h.DispatchAddr),
		distinct("EDGE_WORKERS_HOST_API_ADDR", h.APIAddr, "EDGE_WORKERS_HOST_METRICS_ADDR", h.MetricsAddr),
		distinct("EDGE_WORKERS_HOST_DISPATCH_ADDR", h.DispatchAddr, "EDGE_WORKERS_HOST_METRICS_ADDR", h.MetricsAddr),
		oneOf("EDGE_WORKERS_HOST_ISOLATION", h.Isolation, IsolationOn, IsolationOff),
		err,
	}
	return errors.Join(faults...)
}
