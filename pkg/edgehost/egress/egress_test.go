package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCheckRefusesWhatIsNotPublic(t *testing.T) {
	t.Parallel()
	var strict Policy
	for _, text := range []string{
		"127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"100.64.0.1", "100.127.255.255", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1",
		"240.0.0.1", "255.255.255.255", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
		"64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "fec0::1", "100::1", "::127.0.0.1",
	} {
		err := strict.Check(netip.MustParseAddr(text))
		if _, ok := errors.AsType[*Refusal](err); !ok {
			t.Errorf("%s passed", text)
		}
	}
	for _, text := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001::200e", "::ffff:1.1.1.1"} {
		if err := strict.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := strict.Check(netip.Addr{}); err == nil {
		t.Error("no address passed")
	}
	if err := (Policy{DenyAll: true, Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}).Check(netip.MustParseAddr("1.1.1.1")); err == nil {
		t.Error("DenyAll let an address pass")
	}
	allowed := Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	if allowed.Check(netip.MustParseAddr("10.1.2.3")) != nil || allowed.Check(netip.MustParseAddr("10.2.0.1")) == nil {
		t.Error("Allow does not decide by its ranges")
	}
}

// resolver answers what each test wants, another answer at each question.
type resolver struct {
	answers [][]netip.Addr
	asked   atomic.Int32
}

func (r *resolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n := int(r.asked.Add(1)) - 1
	if n >= len(r.answers) {
		return nil, errors.New("no such host")
	}
	return r.answers[n], nil
}

func addrs(texts ...string) []netip.Addr {
	out := []netip.Addr{}
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// received is a response that was read to its end.
type received struct {
	status int
	text   string
}

// front is a proxy on a real listener with the client that workerd is.
func front(t *testing.T, policy Policy, names Resolver) func(method, target, body string) (received, error) {
	t.Helper()
	proxy := NewProxy(policy, names, slog.New(slog.DiscardHandler))
	t.Cleanup(proxy.Close)
	server := httptest.NewServer(proxy.Handler("dw-test"))
	t.Cleanup(server.Close)
	return func(method, target, body string) (received, error) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			return received{}, err
		}
		defer conn.Close()
		// Absolute form for https as well, as workerd sends it.
		req, err := http.NewRequest(method, target, strings.NewReader(body))
		if err != nil {
			return received{}, err
		}
		req.URL.Opaque = target
		req.Header.Set("Proxy-Authorization", "secret")
		if err := req.WriteProxy(conn); err != nil {
			return received{}, err
		}
		return readResponse(conn, req)
	}
}

// readResponse gives what was read also with an error.
func readResponse(conn net.Conn, req *http.Request) (received, error) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return received{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return received{status: resp.StatusCode, text: string(raw)}, err
}

func portOf(t *testing.T, text string) uint16 {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(port)
}

func local(t *testing.T, target string) Policy {
	return Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Ports: []uint16{portOf(t, target)}}
}

// A name that first resolves to an allowed address and then inward is asked
// once for each connection, and the checked answer is the one dialled.
func TestNoRebinding(t *testing.T) {
	t.Parallel()
	hits := atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, r.Host+r.Header.Get("Proxy-Authorization"))
	}))
	t.Cleanup(server.Close)
	port := strconv.Itoa(int(portOf(t, server.URL)))
	names := &resolver{answers: [][]netip.Addr{addrs("127.0.0.1"), addrs("10.0.0.1"), addrs("127.0.0.1", "10.0.0.1")}}
	do := front(t, local(t, server.URL), names)
	target := "http://name.example:" + port + "/x"
	got, err := do(http.MethodGet, target, "")
	if err != nil || got.status != 200 || got.text != "name.example:"+port {
		t.Fatalf("first: %+v %v", got, err)
	}
	for _, what := range []string{"rebound", "mixed answer"} {
		got, err = do(http.MethodGet, target, "")
		if err != nil || got.status != http.StatusForbidden || !strings.Contains(got.text, "not public") {
			t.Fatalf("%s: %+v %v", what, got, err)
		}
	}
	got, err = do(http.MethodGet, target, "")
	if err != nil || got.status != http.StatusBadGateway {
		t.Fatalf("unknown name: %+v %v", got, err)
	}
	if hits.Load() != 1 || names.asked.Load() != 4 {
		t.Fatalf("%d requests, %d questions", hits.Load(), names.asked.Load())
	}
}

func TestTLSIsDoneByTheProxy(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+string(body))
	}))
	t.Cleanup(server.Close)
	policy := local(t, server.URL)
	got, err := front(t, policy, nil)(http.MethodPost, server.URL+"/", "body")
	if err != nil || got.status != http.StatusBadGateway {
		t.Fatalf("unknown authority: %+v %v", got, err)
	}
	policy.RootCAs = x509.NewCertPool()
	policy.RootCAs.AddCert(server.Certificate())
	got, err = front(t, policy, nil)(http.MethodPost, server.URL+"/", "body")
	if err != nil || got.status != 200 || got.text != "POST body" {
		t.Fatalf("known authority: %+v %v", got, err)
	}
}

func TestBoundsAndForms(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
		case "/large":
			w.Header().Set("Content-Length", "2000")
			_, _ = w.Write(bytes.Repeat([]byte("x"), 2000))
		case "/endless":
			for range 100 {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 100))
				_ = http.NewResponseController(w).Flush()
			}
		case "/slow":
			<-release
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "ok")
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	policy := local(t, server.URL)
	policy.MaxRequestBytes, policy.MaxResponseBytes, policy.Timeout = 1000, 1000, 500*time.Millisecond
	do := front(t, policy, nil)
	for what, c := range map[string]struct {
		method, target, body string
		status               int
	}{
		"within":                {http.MethodPost, server.URL + "/", strings.Repeat("x", 1000), 200},
		"request too large":     {http.MethodPost, server.URL + "/", strings.Repeat("x", 1001), 413},
		"response too large":    {http.MethodGet, server.URL + "/large", "", 502},
		"too slow":              {http.MethodGet, server.URL + "/slow", "", 504},
		"redirect not followed": {http.MethodGet, server.URL + "/redirect", "", 302},
		"other port":            {http.MethodGet, "http://127.0.0.1:1/", "", 403},
		"other scheme":          {http.MethodGet, "ftp://127.0.0.1/", "", 403},
	} {
		got, err := do(c.method, c.target, c.body)
		if err != nil || got.status != c.status {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	if got, err := do(http.MethodGet, server.URL+"/endless", ""); err == nil {
		t.Errorf("an endless response ended well after %d bytes", len(got.text))
	}
}

// connect() in a Worker arrives as CONNECT, a WebSocket as an upgrade.
func TestTunnelsAreRefused(t *testing.T) {
	t.Parallel()
	proxy := NewProxy(Policy{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, nil, slog.New(slog.DiscardHandler))
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Method = http.MethodConnect },
		func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		func(r *http.Request) { r.URL.Host = "" },
	} {
		r := httptest.NewRequest(http.MethodGet, "http://example.com/", nil)
		change(r)
		w := httptest.NewRecorder()
		proxy.Handler("dw-test").ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || w.Header().Get("X-Edge-Host-Egress") != "egress_denied" {
			t.Errorf("%s %v: %d", r.Method, r.Header, w.Code)
		}
	}
}
