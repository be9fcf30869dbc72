package main

import (
	"bytes"
	"crypto/ed25519"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
)

const hostToken = "test-token-0123456789"

func TestMain(m *testing.M) { processtest.Main(m, main) }

// settings is the least environment of a host, changed by the pairs.
func settings(data string, pairs ...string) map[string]string {
	environment := map[string]string{
		"EDGE_WORKERS_HOST_DATA_DIR":      data,
		"EDGE_WORKERS_HOST_API_TOKEN":     hostToken,
		"EDGE_WORKERS_HOST_API_ADDR":      "127.0.0.1:0",
		"EDGE_WORKERS_HOST_DISPATCH_ADDR": "127.0.0.1:0",
		"EDGE_WORKERS_HOST_METRICS_ADDR":  "127.0.0.1:0",
		"EDGE_WORKERS_HOST_ISOLATION":     "off",
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		environment[pairs[i]] = pairs[i+1]
	}
	return environment
}

const scriptName = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

// release builds the example with the signer's key.
func release(t *testing.T, signer *control.Signer) (provider.Release, string) {
	t.Helper()
	archive, err := project.Pack("../../examples/orders")
	if err != nil {
		t.Fatal(err)
	}
	source, err := project.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{signer.PublicKeys()[0].Key}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := build.Build(t.Context(), builder.Input{Project: source, ScriptName: scriptName})
	if err != nil {
		t.Fatal(err)
	}
	return provider.Release{
		ScriptName: scriptName, CompatibilityDate: out.CompatibilityDate, BundleDigest: out.Digests.Bundle, Bundle: out.Bundle,
	}, out.ReleaseGeneration
}

func newSigner(t *testing.T) *control.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := control.NewSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// The whole way: the control plane's own client uploads a release and reads it
// back, and the release answers a signed command; SIGTERM then ends host and
// Worker, and a host on the same folder serves the release at once.
func TestHostServesAndStops(t *testing.T) {
	t.Parallel()
	data, signer := t.TempDir(), newSigner(t)
	built, generation := release(t, signer)
	probe := func(h *processtest.Process) error {
		client, err := control.NewClient(h.URL("dispatch"), signer)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.AccessPolicy(t.Context(), scriptName, generation, "system:test")
		return err
	}

	first := processtest.Start(t, 3, settings(data))
	target, err := onprem.New(onprem.Params{Origin: first.URL("script API"), Token: hostToken})
	if err != nil {
		t.Fatal(err)
	}
	err = probe(first)
	if err == nil {
		t.Error("a Worker answers before it was uploaded")
	}
	err = target.Upload(t.Context(), built)
	if err != nil {
		t.Fatal(err)
	}
	err = target.ReadBack(t.Context(), built)
	if err != nil {
		t.Error(err)
	}
	err = probe(first)
	if err != nil {
		t.Error(err)
	}
	status, body := first.Get("metrics", "/readyz")
	if status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	_, body = first.Get("metrics", "/metrics")
	for _, line := range []string{"edge_host_worker_processes 1", `edge_workers_build_info{binary="edgehost"`, `edge_host_validation_seconds_count{result="accepted"} 1`} {
		if !strings.Contains(body, line) {
			t.Errorf("the metrics have no %q", line)
		}
	}
	if code := first.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, first.Log())
	}
	if text := first.Log(); !strings.Contains(text, `"worker process ended"`) || strings.Contains(text, hostToken) {
		t.Errorf("the Worker did not end with the host, or the log has the token:\n%s", text)
	}

	second := processtest.Start(t, 3, settings(data))
	err = probe(second)
	if err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if code := second.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Two hosts on one folder would run two processes on one Worker's storage.
func TestSecondHostOnOneFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := processtest.Start(t, 3, settings(data))
	code, out := processtest.Run(t, settings(data))
	if code != process.ExitFailed || !strings.Contains(out, "locked by another process") {
		t.Errorf("exit code %d: %s", code, out)
	}
	status, body := first.Get("metrics", "/readyz")
	if status != http.StatusOK {
		t.Errorf("the first host: %d %s", status, body)
	}
	if code := first.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		pairs []string
		args  []string
		code  int
		says  string
	}{
		{"no folder", []string{"EDGE_WORKERS_HOST_DATA_DIR", ""}, nil, process.ExitUsage, "EDGE_WORKERS_HOST_DATA_DIR is not set"},
		{"short token", []string{"EDGE_WORKERS_HOST_API_TOKEN", "short"}, nil, process.ExitUsage, "EDGE_WORKERS_HOST_API_TOKEN needs"},
		{"misspelt", []string{"EDGE_WORKERS_HOST_DATADIR", "/x"}, nil, process.ExitUsage, "EDGE_WORKERS_HOST_DATADIR is not a setting"},
		{"checked settings", []string{"EDGE_WORKERS_HOST_ISOLATION", "half"}, []string{"--check-config"}, process.ExitUsage, "EDGE_WORKERS_HOST_ISOLATION must be one of"},
		{"argument", nil, []string{"serve"}, process.ExitUsage, "takes no arguments"},
		{"flag", nil, []string{"--port=1"}, process.ExitUsage, "port"},
		// Either the host lacks the rights, or other uids cannot get into a test's folder.
		{"isolation", []string{"EDGE_WORKERS_HOST_ISOLATION", "on"}, nil, process.ExitFailed, "isolation"},
		{"no workerd", []string{"EDGE_WORKERS_HOST_WORKERD", "/nowhere/workerd"}, nil, process.ExitFailed, `"/nowhere/workerd" is not an executable file`},
		{"address of another machine", []string{"EDGE_WORKERS_HOST_DISPATCH_ADDR", "192.0.2.1:8788"}, nil, process.ExitFailed, "server dispatch: listen on 192.0.2.1:8788"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out := processtest.Run(t, settings(t.TempDir(), c.pairs...), c.args...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}

// The flags that answer without a host: nothing is opened and no folder made.
func TestFlagsThatOnlyAnswer(t *testing.T) {
	t.Parallel()
	for flag, says := range map[string]string{"--check-config": "the settings are valid", "--version": "edgehost ", "--help": "-check-config"} {
		data := t.TempDir() + "/data"
		code, out := processtest.Run(t, settings(data), flag)
		_, err := os.Stat(data)
		if code != 0 || !strings.Contains(out, says) || !os.IsNotExist(err) {
			t.Errorf("%s: exit code %d, folder %v: %s", flag, code, err, out)
		}
	}
}
