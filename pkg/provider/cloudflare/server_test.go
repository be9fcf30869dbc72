package cloudflare_test

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/provider/providertest"
)

const (
	account    = "0123456789abcdef0123456789abcdef"
	namespace  = "edge-test"
	token      = "cloudflare-test-token-0123"
	pathPrefix = "/client/v4/accounts/" + account + "/workers/dispatch/namespaces/" + namespace
)

// roots holds the certificate that every httptest TLS server shows.
var roots = sync.OnceValue(func() *x509.CertPool {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
})

func newProvider(origin string, change func(*cloudflare.Params)) (*cloudflare.Provider, error) {
	p := cloudflare.Params{AccountID: account, Namespace: namespace, Token: token, Origin: origin, RootCAs: roots()}
	if change != nil {
		change(&p)
	}
	return cloudflare.New(p)
}

func release() provider.Release {
	source := []byte("export default {}")
	return provider.Release{
		ScriptName: "dw-" + strings.Repeat("a", 48), CompatibilityDate: "2026-11-01", Bundle: source, BundleDigest: canonical.SHA256(source),
	}
}

// scripted is a TLS server that answers as a test says.
type scripted struct {
	*cloudflare.Provider
	server *httptest.Server

	mu       sync.Mutex
	requests []string
}

func script(t *testing.T, answer http.HandlerFunc, change func(*cloudflare.Params)) *scripted {
	t.Helper()
	s := &scripted{}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.server.Close)
	var err error
	s.Provider, err = newProvider(s.server.URL, change)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seen lists the requests since the last call.
func (s *scripted) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// answer is a fixed answer; headers are pairs.
func answer(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// S2-156..S2-173, S2-200, S2-206..S2-208, S2-217, S1-099, S1-100, S1-133:
// the port's suite over TLS.
func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Target{
		Server: providertest.NewServer(), Start: httptest.NewTLSServer, PathPrefix: pathPrefix, Date: "2026-11-01", AbsentDiffers: true,
		// The suite's 429 closes the gate; on this clock it is open again at
		// the next look.
		New: func(origin string) (provider.Provider, error) {
			var looks atomic.Int64
			return newProvider(origin, func(p *cloudflare.Params) {
				p.Now = func() time.Time { return time.Unix(0, 0).Add(time.Duration(looks.Add(1)) * time.Hour) }
			})
		},
		Bundle: func(version string) []byte { return []byte("export default {} // " + version) },
		Codes: providertest.Codes{
			Rejected: "cloudflare_upload_rejected", Auth: "cloudflare_authentication_failed", Uncertain: "cloudflare_upload_uncertain",
			RateLimited: "cloudflare_rate_limited", TooLarge: "cloudflare_bundle_too_large",
		},
	})
}
