package processtest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
)

// HostToken is the edge host's in Environment; no log may have it.
const HostToken = "test-token-0123456789"

const databaseVariable = "EDGE_WORKERS_DATABASE_URL"

// Environment is the least that a process of an on-prem control plane needs, on a
// database of its own unless the pairs name one: with an edge host and no artifact store at addresses
// where nothing listens. The pairs change it; an empty value takes a variable
// away.
func Environment(t TB, pairs ...string) map[string]string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "control.pem")
	_, err := control.LoadOrCreateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{
		"EDGE_WORKERS_REDIS_URL":                os.Getenv("EDGE_TEST_REDIS_URL"),
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": key, "EDGE_WORKERS_PROVIDER": "onprem",
		"EDGE_WORKERS_EDGE_HOST_URL": "http://127.0.0.1:9", "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL": "http://127.0.0.1:9",
		"EDGE_WORKERS_EDGE_HOST_API_TOKEN": HostToken, "EDGE_WORKERS_EDGE_HOST_IDENTITY": "host-1",
		"EDGE_WORKERS_METRICS_ADDR": "127.0.0.1:0",
	}
	Change(environment, pairs...)
	if !slices.Contains(pairs, databaseVariable) {
		environment[databaseVariable] = databasetest.MySQLURL(t)
	}
	return environment
}

// Change sets the variables of the pairs; an empty value takes one away.
func Change(environment map[string]string, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		environment[pairs[i]] = pairs[i+1]
	}
	maps.DeleteFunc(environment, func(_, value string) bool { return value == "" })
}
