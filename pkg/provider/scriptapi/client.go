// Package scriptapi is the client core for the cloud provider's script API and
// the edge host's subset of it: one upload, two reads, strict answers. It
// makes one attempt for each call, follows no redirects and classifies
// nothing: adapters turn its Failure into the port's error classes.
package scriptapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
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
	// RequireJSON makes a 2xx answer whose Content-Type is not JSON unusable:
	// what a gateway in between answers is never taken for the API's word.
	RequireJSON bool
}

// Client is safe for concurrent use.
type Client struct {
	p       Params // without the token
	bearer  func() string
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
	// A function keeps the token out of whatever prints the client.
	bearer := "Bearer " + p.Token
	p.Token = ""
	return &Client{
		p: p, bearer: func() string { return bearer },
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
	Message     string        // of the first error; of a body that is not JSON its first 100 bytes
	Ray         string        // Cf-Ray header: with it the provider finds the request
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
		return fmt.Sprintf("script API: status %d%s with an unusable answer: %v %s", f.Status, f.ray(), f.Cause, f.Message)
	}
	return fmt.Sprintf("script API: status %d%s %s: %s", f.Status, f.ray(), strings.Join(f.Codes, ","), f.Message)
}

func (f *Failure) ray() string {
	if f.Ray == "" {
		return ""
	}
	return fmt.Sprintf(" (ray %.64s)", f.Ray)
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

// reply is a 2xx answer whose body has not been looked at yet.
type reply struct {
	status int
	ray    string
	raw    []byte
}

// malformed says why a reply is not what the API gives.
func (r reply) malformed(cause error) *Failure {
	f := &Failure{Status: r.status, Ray: r.ray, Malformed: true, Cause: cause}
	if len(r.raw) > 0 && !json.Valid(r.raw) {
		f.Message = fmt.Sprintf("%.100q", r.raw)
	}
	return f
}

// call sends one request and returns a 2xx answer.
func (c *Client) call(ctx context.Context, timeout time.Duration, req *http.Request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req = req.WithContext(ctx)
	req.Header.Set("Authorization", c.bearer())
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		// Without a connection nothing can have been written (after TLS, for
		// https). Anything later may have reached the server.
		return reply{}, &Failure{NothingSent: !connected.Load(), Cause: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(raw) > maxAnswer {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return reply{}, refusal(resp, raw)
	}
	got := reply{status: resp.StatusCode, ray: resp.Header.Get("Cf-Ray"), raw: raw}
	if err == nil && c.p.RequireJSON && len(raw) > 0 {
		err = jsonType(resp.Header.Get("Content-Type"))
	}
	if err != nil {
		return reply{}, got.malformed(err)
	}
	return got, nil
}

func jsonType(header string) error {
	media, _, err := mime.ParseMediaType(header)
	if err != nil || media != "application/json" {
		return fmt.Errorf("the answer's content type is %.60q", header)
	}
	return nil
}

// refusal reads what a refusal tells; gateways in front answer without JSON.
func refusal(resp *http.Response, raw []byte) *Failure {
	f := &Failure{Status: resp.StatusCode, Ray: resp.Header.Get("Cf-Ray"), RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
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
