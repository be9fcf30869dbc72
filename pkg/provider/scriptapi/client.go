// Package scriptapi is the client core for the cloud provider's script API and
// the edge host's subset of it: one upload, two reads, strict answers. It
// makes one attempt for each call, follows no redirects and classifies
// nothing: adapters turn its Failure into the port's error classes.
package scriptapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 4 << 20

// Params is what a Client needs. Origin, Account, Namespace and Token are
// required.
type Params struct {
	Origin    string // https://api.cloudflare.com or the edge host's, without path
	Account   string
	Namespace string // dispatch namespace
	Token     string
	// UploadTimeout bounds an upload (90 s: an edge host validates the bundle
	// and swaps processes in it), ReadTimeout one read (30 s).
	UploadTimeout time.Duration
	ReadTimeout   time.Duration
	RootCAs       *x509.CertPool // nil: the system's
}

// Client is safe for concurrent use.
type Client struct {
	p       Params
	scripts string
	http    *http.Client
}

// New checks params. Proxy settings of the environment are not used.
func New(p Params) (*Client, error) {
	u, err := url.Parse(p.Origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("script API origin %q is not an http or https origin", p.Origin)
	}
	if p.Account == "" || p.Namespace == "" || p.Token == "" {
		return nil, errors.New("script API client needs account, namespace and token")
	}
	if p.UploadTimeout == 0 {
		p.UploadTimeout = 90 * time.Second
	}
	if p.ReadTimeout == 0 {
		p.ReadTimeout = 30 * time.Second
	}
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: p.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // net/http may repeat a request on a kept connection
	}
	return &Client{
		p: p,
		scripts: fmt.Sprintf("%s/client/v4/accounts/%s/workers/dispatch/namespaces/%s/scripts/",
			strings.TrimRight(p.Origin, "/"), url.PathEscape(p.Account), url.PathEscape(p.Namespace)),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Failure is a call that did not succeed, with what is known about it.
type Failure struct {
	Status      int           // 0: no answer
	Codes       []string      // errors[].code, numbers as text
	Message     string        // of the first error
	RetryAfter  time.Duration // of the Retry-After header; 0: none
	NothingSent bool          // proven: no byte of the request left
	Malformed   bool          // an answer that is not what the API gives
	Cause       error
}

func (f *Failure) Error() string {
	switch {
	case f.Status == 0:
		return fmt.Sprintf("script API: %v", f.Cause)
	case f.Malformed:
		return fmt.Sprintf("script API: status %d with an unusable answer: %v", f.Status, f.Cause)
	}
	return fmt.Sprintf("script API: status %d %s: %s", f.Status, strings.Join(f.Codes, ","), f.Message)
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Has reports whether the answer has the error code.
func (f *Failure) Has(code string) bool {
	for _, c := range f.Codes {
		if c == code {
			return true
		}
	}
	return false
}

// call sends one request and returns the body of a 2xx answer.
func (c *Client) call(ctx context.Context, timeout time.Duration, req *http.Request) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req = req.WithContext(ctx)
	req.Header.Set("Authorization", "Bearer "+c.p.Token)
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		// Without a connection nothing can have been written (after TLS, for
		// https). Anything later may have reached the server.
		return nil, 0, &Failure{NothingSent: !connected.Load(), Cause: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(raw) > maxAnswer {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, resp.StatusCode, refusal(resp, raw)
	}
	if err != nil {
		return nil, resp.StatusCode, &Failure{Status: resp.StatusCode, Malformed: true, Cause: err}
	}
	return raw, resp.StatusCode, nil
}

// refusal reads what a refusal tells; gateways in front answer without JSON.
func refusal(resp *http.Response, raw []byte) *Failure {
	f := &Failure{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	answer, err := parseEnvelope(raw)
	if err != nil {
		f.Message = fmt.Sprintf("%.100q", raw)
		return f
	}
	for _, e := range answer.Errors {
		f.Codes = append(f.Codes, e.code())
	}
	if len(answer.Errors) > 0 {
		f.Message = fmt.Sprintf("%.1000s", answer.Errors[0].Message)
	}
	return f
}

// retryAfter reads seconds or a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
