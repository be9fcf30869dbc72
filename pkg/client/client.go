// Package client is the Go client of the REST API, as the command line uses it.
//
// It never repeats a request whose repetition could do something twice: reads
// are repeated, so is the creation of a deployment, which the API answers with
// the same ticket; a submission or an invocation never is.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Bounds of what is read, in bytes.
const (
	maxAnswer = 8 << 20 // a page of versions with all their operations, an invocation's output
	maxSource = 2 << 20 // an archive (D7)
)

const (
	// attempts of a request that may be repeated.
	attempts = 4
	// firstPause before a repetition; it doubles each time.
	firstPause = 500 * time.Millisecond
	// answerTimeout bounds one request.
	answerTimeout = 2 * time.Minute
	// submitTimeout bounds a submission: 90 s for packages, 30 s for the build,
	// 180 s for the store, and a little more than the API gives itself.
	submitTimeout = 330 * time.Second
)

// Params describes the API to talk to.
type Params struct {
	BaseURL string
	Token   string // bearer token; empty for routes without authentication
	// AllowHTTP lets the token travel unencrypted to a host other than this one.
	AllowHTTP bool
	UserAgent string
	// Pause waits between repetitions and polls; nil: a timer. Tests replace it.
	Pause func(context.Context, time.Duration) error
}

// Client talks to one API with one token. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	agent string
	http  *http.Client
	pause func(context.Context, time.Duration) error
}

// New makes a client. It fails for a URL that is not http or https, that holds
// credentials, a query or a fragment, or that would send the token in the
// clear to another host.
func New(params Params) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(params.BaseURL, "/"))
	if err != nil {
		return nil, errors.New("the API URL cannot be parsed")
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("the API URL must begin with http:// or https:// and name a host")
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, errors.New("the API URL must hold no credentials, query or fragment")
	case base.Scheme == "http" && !params.AllowHTTP && !loopback(base.Hostname()):
		return nil, errors.New("the API URL is http: the token would travel unencrypted")
	}
	c := &Client{base: base, token: params.Token, agent: params.UserAgent, pause: params.Pause}
	if c.pause == nil {
		c.pause = pause
	}
	// A redirect is not followed: it could take the token elsewhere.
	c.http = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// call is one request.
type call struct {
	method      string
	path        []string // segments, escaped here
	query       url.Values
	contentType string
	body        []byte
	repeatable  bool
	max         int64
	timeout     time.Duration // 0: answerTimeout
	progress    Progress      // may be nil
	status      *int          // of a 2xx answer; may be nil
}

// do sends a call and gives the body of a 2xx answer. Everything else is an
// *Error or an *Unreachable.
func (c *Client) do(ctx context.Context, call call) ([]byte, error) {
	requestID := uuid.NewString()
	wait := firstPause
	for attempt := 1; ; attempt++ {
		body, err := c.once(ctx, call, requestID)
		if err == nil || !call.repeatable || attempt == attempts || !transient(err) || ctx.Err() != nil {
			return body, err
		}
		if pauseErr := c.pause(ctx, wait); pauseErr != nil {
			return nil, err
		}
		wait *= 2
	}
}

// transient reports whether the same request may succeed a moment later: no
// answer, or one of a server that says so.
func transient(err error) bool {
	var unreachable *Unreachable
	if errors.As(err, &unreachable) {
		return true
	}
	var refused *Error
	if !errors.As(err, &refused) {
		return false
	}
	if refused.Code != "" {
		return refused.Code == codeDeploymentUnknown
	}
	switch refused.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (c *Client) once(ctx context.Context, call call, requestID string) ([]byte, error) {
	ctx, cancel := bounded(ctx, call)
	defer cancel()
	target := c.base.JoinPath(call.path...)
	target.RawQuery = call.query.Encode()
	request, err := http.NewRequestWithContext(ctx, call.method, target.String(), bytes.NewReader(call.body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if call.contentType != "" {
		request.Header.Set("Content-Type", call.contentType)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.agent != "" {
		request.Header.Set("User-Agent", c.agent)
	}
	request.Header.Set("X-Request-Id", requestID)
	response, err := c.http.Do(watch(request, call.progress))
	if err != nil {
		return nil, &Unreachable{Host: c.base.Host, NotSent: neverConnected(err), cause: err}
	}
	defer response.Body.Close()
	body, err := readBounded(response.Body, call.max)
	if err != nil {
		return nil, &Unreachable{Host: c.base.Host, cause: err}
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, parseError(response, body)
	}
	if call.status != nil {
		*call.status = response.StatusCode
	}
	return body, nil
}

// bounded ends a call after its time.
func bounded(ctx context.Context, c call) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		c.timeout = answerTimeout
	}
	return context.WithTimeout(ctx, c.timeout)
}

// neverConnected reports whether the failure came before anything was sent.
func neverConnected(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}

func readBounded(body io.Reader, max int64) ([]byte, error) {
	if max == 0 {
		max = maxAnswer
	}
	content, err := io.ReadAll(io.LimitReader(body, max+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if int64(len(content)) > max {
		return nil, fmt.Errorf("the answer is longer than %d bytes", max)
	}
	return content, nil
}

// fetch sends a call and decodes its JSON answer.
func fetch[T any](ctx context.Context, c *Client, call call) (T, error) {
	var decoded T
	body, err := c.do(ctx, call)
	if err != nil {
		return decoded, err
	}
	err = json.Unmarshal(body, &decoded)
	if err != nil {
		return decoded, &Unreachable{Host: c.base.Host, cause: errors.New("the answer is not the JSON of this API")}
	}
	return decoded, nil
}
