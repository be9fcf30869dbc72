package egress

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// Resolver gives the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Proxy forwards absolute-form HTTP requests. It does TLS itself for https
// URLs, which workerd hands over in clear on the unix socket. It follows no
// redirects, keeps no cookies and ignores the environment's proxy settings.
type Proxy struct {
	policy    Policy
	resolver  Resolver
	transport *http.Transport
	logger    *slog.Logger
}

// NewProxy returns a proxy under policy. A nil resolver is the system's.
func NewProxy(policy Policy, resolver Resolver, logger *slog.Logger) *Proxy {
	p := &Proxy{policy: policy.withDefaults(), resolver: resolver, logger: logger}
	if resolver == nil {
		p.resolver = net.DefaultResolver
	}
	p.transport = &http.Transport{
		DialContext:            p.dial,
		TLSClientConfig:        &tls.Config{RootCAs: policy.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true, // the Worker sees the body as it was sent
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
	return p
}

// Close drops idle connections.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }

// dial resolves, checks every answer, and connects to a checked address.
// Connections of the transport's pool were dialled here as well.
func (p *Proxy) dial(ctx context.Context, network, target string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return nil, &Refusal{Reason: "the target is not usable"}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, &Refusal{Reason: "the port is not usable"}
	}
	if err := p.policy.CheckPort(uint16(port)); err != nil {
		return nil, err
	}
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	var last error
	for _, addr := range addrs {
		conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// resolve returns the addresses of host when all of them are allowed. One
// forbidden answer refuses the name: a name that points inward is not split.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs := []netip.Addr{}
	if literal, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, literal.Unmap())
	} else {
		found, err := p.resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, addr := range found {
			addrs = append(addrs, addr.Unmap())
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("the name has no address")
	}
	for _, addr := range addrs {
		if err := p.policy.Check(addr); err != nil {
			return nil, err
		}
	}
	return addrs[:min(len(addrs), 4)], nil
}

// Handler serves the requests of one script; its name is logged with every
// refusal.
func (p *Proxy) Handler(script string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, p.logger.With("script", script))
	})
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, logger *slog.Logger) {
	if reason := unsupported(r); reason != "" {
		answer(w, http.StatusForbidden, "egress_denied", reason)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.policy.Timeout)
	defer cancel()
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.Host = r.URL.Host
	dropHopHeaders(out.Header)
	out.Body = http.MaxBytesReader(w, r.Body, p.policy.MaxRequestBytes)
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		refuse(w, err, logger)
		return
	}
	defer resp.Body.Close()
	if resp.ContentLength > p.policy.MaxResponseBytes {
		answer(w, http.StatusBadGateway, "egress_too_large", "the response is too large")
		return
	}
	dropHopHeaders(resp.Header)
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if err := copyBounded(w, resp.Body, p.policy.MaxResponseBytes); err != nil {
		logger.Warn("egress response cut off", "error", err.Error())
		panic(http.ErrAbortHandler) // the Worker must not take a part for the whole
	}
}

// unsupported names what this proxy does not carry: tunnels (connect() in a
// Worker), protocol upgrades, and anything but absolute http and https URLs.
func unsupported(r *http.Request) string {
	switch {
	case r.Method == http.MethodConnect:
		return "TCP connections are not allowed"
	case r.Header.Get("Upgrade") != "":
		return "protocol upgrades are not allowed"
	case r.URL.Host == "" || (r.URL.Scheme != "http" && r.URL.Scheme != "https"):
		return "only http and https URLs are allowed"
	}
	return ""
}

func refuse(w http.ResponseWriter, err error, logger *slog.Logger) {
	var refusal *Refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &refusal):
		logger.Warn("egress refused", "reason", refusal.Reason)
		answer(w, http.StatusForbidden, "egress_denied", refusal.Reason)
	case errors.As(err, &tooLarge):
		answer(w, http.StatusRequestEntityTooLarge, "egress_too_large", "the request is too large")
	case errors.Is(err, context.DeadlineExceeded):
		answer(w, http.StatusGatewayTimeout, "egress_timeout", "the target did not answer in time")
	default:
		logger.Info("egress failed", "error", err.Error())
		answer(w, http.StatusBadGateway, "egress_failed", "the target could not be reached")
	}
}

func answer(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Edge-Host-Egress", code)
	w.WriteHeader(status)
	body := map[string]any{"detail": map[string]string{"code": code, "message": message}}
	_ = json.NewEncoder(w).Encode(body)
}

func copyBounded(w http.ResponseWriter, body io.Reader, limit int64) error {
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for total := int64(0); ; {
		n, err := body.Read(buf)
		total += int64(n)
		if total > limit {
			return errors.New("the response is larger than allowed")
		}
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			_ = flusher.Flush()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func dropHopHeaders(h http.Header) {
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Forwarded", "X-Forwarded-For",
	} {
		h.Del(name)
	}
}
