package model

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// The provider's own client sends as many requests for a deployment as the
// simulation reckons with. A refused upload is a rate limit and closes the
// gate; a refused read tells that nothing can be read and closes it too, after
// which the task reads again.
func TestRequestsOfTheClient(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := func() *cloudflare.Provider {
		c, err := cloudflare.New(cloudflare.Params{
			AccountID: strings.Repeat("0", 32), Namespace: "edge-test", Token: "cloudflare-test-token-0123", Origin: server.URL, RootCAs: roots,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	source := []byte("export default {}")
	release := provider.Release{
		ScriptName: "dw-" + strings.Repeat("a", 48), CompatibilityDate: "2026-11-01", Bundle: source, BundleDigest: canonical.SHA256(source),
	}
	uploader, reader := client(), client() // two processes: each finds out by itself
	_, limited := errors.AsType[*provider.RateLimitedError](uploader.Upload(t.Context(), release))
	_, unreadable := errors.AsType[*provider.UnreadableError](reader.ReadBack(t.Context(), release))
	if !limited || !unreadable || requests.Load() != RequestsPerDeployment {
		t.Errorf("upload limited: %t, read unreadable: %t, %d requests", limited, unreadable, requests.Load())
	}
	for _, c := range []*cloudflare.Provider{uploader, reader} {
		if left := c.RetryIn().Seconds(); left < tokenBlock-30 || left > tokenBlock {
			t.Errorf("the gate is closed for %.0f s", left)
		}
	}
	if left := client().RetryIn(); left != 0 {
		t.Errorf("another process's gate is closed for %v", left)
	}
}
