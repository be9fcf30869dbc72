package cloudflare_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

const uncertain = "uncertain cloudflare_upload_uncertain"

// S2-207: the provider's own time limits end a call that nobody else ends. The
// server is silent until the client has gone.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	limits := func(p *cloudflare.Params) { p.UploadTimeout, p.ReadTimeout = 2*time.Second, 2*time.Second }
	for title, body := range map[string]func(w http.ResponseWriter, gone <-chan struct{}){
		"silent": func(_ http.ResponseWriter, gone <-chan struct{}) { <-gone },
		"silent after the headers": func(w http.ResponseWriter, gone <-chan struct{}) {
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-gone
		},
		"a byte now and then": func(w http.ResponseWriter, gone <-chan struct{}) {
			w.Header().Set("Content-Type", "application/json")
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-gone:
					return
				case <-tick.C:
					_, _ = io.WriteString(w, " ")
					_ = http.NewResponseController(w).Flush()
				}
			}
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := script(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				body(w, r.Context().Done())
			}, limits)
			err := s.Upload(t.Context(), release())
			if class(err) != uncertain || t.Context().Err() != nil {
				t.Errorf("got %v", err)
			}
			if seen := s.seen(); len(seen) != 1 {
				t.Errorf("requests %v", seen)
			}
			if s.CheckNamespace(t.Context()) == nil {
				t.Error("the namespace passed without an answer")
			}
		})
	}
}

// S2-207: a connection that ends while the upload is being written may have
// delivered it.
func TestResetWithinTheUpload(t *testing.T) {
	t.Parallel()
	s := script(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 16))
		panic(http.ErrAbortHandler)
	}, nil)
	if got := class(s.Upload(t.Context(), release())); got != uncertain {
		t.Errorf("got %q", got)
	}
	if seen := s.seen(); len(seen) != 1 {
		t.Errorf("requests %v", seen)
	}
}

// S2-206: a redirect is not followed: neither the upload nor the token goes
// elsewhere.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := script(t, answer(200, `{}`), nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := script(t, answer(status, "", "Location", elsewhere.server.URL+"/x"), nil)
		if got := class(s.Upload(t.Context(), release())); got != uncertain {
			t.Errorf("%d: got %q", status, got)
		}
		if s.ReadBack(t.Context(), release()) == nil || s.CheckNamespace(t.Context()) == nil {
			t.Errorf("%d: a redirect counts as an answer", status)
		}
		if seen := s.seen(); len(seen) != 4 {
			t.Errorf("%d: requests %v", status, seen)
		}
	}
	if seen := elsewhere.seen(); len(seen) != 0 {
		t.Errorf("followed: %v", seen)
	}
	if resp, err := elsewhere.server.Client().Get(elsewhere.server.URL + "/x"); err != nil || resp.Body.Close() != nil || len(elsewhere.seen()) != 1 {
		t.Errorf("the other server does not count: %v", err)
	}
}

// Only when it is proven that no byte of the request left is a failure to
// connect definite; the same proof as on the edge host's side.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	const unreachable = "terminal cloudflare_unreachable"
	t.Run("an unknown certificate", func(t *testing.T) {
		t.Parallel()
		s := script(t, answer(200, ""), func(p *cloudflare.Params) { p.RootCAs = nil })
		if got := class(s.Upload(t.Context(), release())); got != unreachable || len(s.seen()) != 0 {
			t.Errorf("got %q", got)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		p, err := newProvider(gone.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := class(p.Upload(t.Context(), release())); got != unreachable {
			t.Errorf("got %q", got)
		}
	})
	t.Run("no handshake", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1)) // the hello is there
			cancel()
			_, _ = io.Copy(io.Discard, conn)
		}()
		p, err := newProvider("https://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := class(p.Upload(ctx, release())); got != unreachable {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a foreign script name", func(t *testing.T) {
		t.Parallel()
		s := script(t, answer(200, ""), nil)
		for _, name := range []string{"", "dispatcher", "dw-" + strings.Repeat("A", 48), "dw-" + strings.Repeat("a", 48) + "\n", "../x"} {
			r := release()
			r.ScriptName = name
			if got := class(s.Upload(t.Context(), r)); got != "terminal cloudflare_upload_rejected" {
				t.Errorf("%q: got %q", name, got)
			}
			if s.ReadBack(t.Context(), r) == nil {
				t.Errorf("%q was read back", name)
			}
		}
		if seen := s.seen(); len(seen) != 0 {
			t.Errorf("sent: %v", seen)
		}
	})
}

// environmentProxy is one for all runs: net/http reads the environment once.
var environmentProxy = sync.OnceValues(func() (*httptest.Server, *atomic.Int64) {
	asked := &atomic.Int64{}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	})), asked
})

// The environment's proxy never sees a call. It cannot run beside other tests:
// it sets the process's environment.
func TestEnvironmentProxyIsNotUsed(t *testing.T) {
	proxy, asked := environmentProxy()
	before := asked.Load()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	p, err := newProvider("https://cloud.invalid", func(p *cloudflare.Params) { p.UploadTimeout, p.ReadTimeout = 5*time.Second, 5*time.Second })
	if err != nil {
		t.Fatal(err)
	}
	if got := class(p.Upload(t.Context(), release())); got != "terminal cloudflare_unreachable" {
		t.Errorf("got %q", got)
	}
	if p.ReadBack(t.Context(), release()) == nil || p.CheckNamespace(t.Context()) == nil || asked.Load() != before {
		t.Errorf("the proxy was asked %d times", asked.Load()-before)
	}
	// The proxy would have been found.
	target, err := url.Parse("https://cloud.invalid")
	if err != nil {
		t.Fatal(err)
	}
	found, err := http.ProxyFromEnvironment(&http.Request{URL: target})
	if err != nil || found == nil || found.String() != proxy.URL {
		t.Errorf("the environment names %v, %v", found, err)
	}
}

// A namespace that is trusted, not there, or not told about is refused; only
// the first two need an operator.
func TestCheckNamespace(t *testing.T) {
	t.Parallel()
	good := `{"success":true,"errors":[],"messages":[],"result":{"namespace_id":"x","namespace_name":"edge-test","script_count":2,"trusted_workers":false}}`
	for title, c := range map[string]struct {
		answer http.HandlerFunc
		good   bool
		is     error
	}{
		"untrusted":         {answer(200, good), true, nil},
		"trusted":           {answer(200, strings.Replace(good, "false", "true", 1)), false, cloudflare.ErrTrusted},
		"not told":          {answer(200, strings.Replace(good, "trusted", "t", 1)), false, nil},
		"null":              {answer(200, strings.Replace(good, "false", "null", 1)), false, nil},
		"no truth value":    {answer(200, strings.Replace(good, "false", `"false"`, 1)), false, nil},
		"another namespace": {answer(200, strings.Replace(good, "edge-test", "other", 1)), false, nil},
		"not there":         {answer(404, `{"success":false,"errors":[{"code":10007,"message":"x"}],"result":null}`), false, cloudflare.ErrNoNamespace},
		"no such namespace": {answer(404, `{"success":false,"errors":[{"code":100119,"message":"x"}],"result":null}`), false, cloudflare.ErrNoNamespace},
		"unknown error":     {answer(404, `{"success":false,"errors":[{"code":10013,"message":"x"}],"result":null}`), false, nil},
		"wrong token":       {answer(401, `{"success":false,"errors":[{"code":10000,"message":"x"}],"result":null}`), false, nil},
		"a page":            {answer(200, "<html>"), false, nil},
		"content type":      {answer(200, good, "Content-Type", "text/html"), false, nil},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := script(t, c.answer, nil)
			err := s.CheckNamespace(t.Context())
			if c.good != (err == nil) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("got %v", err)
			}
			for _, operator := range []error{cloudflare.ErrTrusted, cloudflare.ErrNoNamespace} {
				if errors.Is(err, operator) && !errors.Is(c.is, operator) {
					t.Errorf("got %v", err)
				}
			}
			if seen := s.seen(); len(seen) != 1 || seen[0] != "GET "+pathPrefix {
				t.Errorf("requests %v", seen)
			}
		})
	}
}
