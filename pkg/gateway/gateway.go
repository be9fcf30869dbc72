// Package gateway admits invocations and sends them, with a signed assertion,
// to where the Worker is served (D11). Admission reads the Worker's status
// from the database each time: a paused Worker is gone at once.
package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// Limits of one forwarded invocation.
const (
	connectTimeout = 5 * time.Second
	// InvokeTimeout bounds an invocation from the first byte sent to the last
	// byte of the answer.
	InvokeTimeout = 60 * time.Second
	maxOutput     = 8 << 20 // bytes of an answer
	maxIdlePerUp  = 256
)

// The refusals of the gateway.
var (
	errNoOperation = fault.New(fault.NotFound, "Operation not found")
	errUnreachable = fault.Coded(fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	errTooSlow     = fault.Coded(fault.Timeout, "worker_timeout", "The Worker did not answer in time")
	errChanging    = fault.Coded(fault.Unavailable, "worker_changing", "The Worker is being changed; try again")
	errTooMuch     = fault.Coded(fault.Upstream, "worker_output_too_large", "The Worker's answer is larger than 8 MiB")
)

// Assertion is what the signer vouches for.
type Assertion struct {
	ScriptName string
	Generation string
	Operation  string
	Caller     Caller
	Body       []byte
}

// Signer makes the short-lived token of the invoke door.
type Signer interface {
	SignInvocation(a Assertion) (string, error)
}

// Params is what a Gateway is made of.
type Params struct {
	DB     *database.DB
	Signer Signer
	// DispatchURL is the base of the data plane: {base}/{script_name}/__invoke/….
	DispatchURL string
	Failures    *Failures
}

// Gateway forwards invocations.
type Gateway struct {
	p      Params
	base   string
	client *http.Client
	cache  routeCache
}

// New checks p.
func New(p Params) (*Gateway, error) {
	if p.DB == nil || p.Signer == nil || p.Failures == nil {
		return nil, errors.New("gateway: database, signer and the counter of failed keys are required")
	}
	base, err := url.Parse(p.DispatchURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" {
		return nil, fmt.Errorf("gateway: dispatch URL %q is not an http(s) base", p.DispatchURL)
	}
	transport := &http.Transport{ // no proxy from the environment
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout, MaxIdleConnsPerHost: maxIdlePerUp, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true,
	}
	return &Gateway{p: p, base: strings.TrimSuffix(p.DispatchURL, "/"), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}
