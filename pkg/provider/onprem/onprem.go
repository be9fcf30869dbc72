// Package onprem is the provider for our own edge host. It gives each outcome
// of the script API its error class (design decision D14, on-prem column).
package onprem

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/scriptapi"
)

// The error codes that this provider stores (S2-273). CodeUncertain and
// CodeRateLimited are shared with the cloud provider: the seed has one code
// for both.
const (
	CodeRejected    = "edge_host_bundle_rejected"
	CodeUnavailable = "edge_host_unavailable"
	CodeCapacity    = "edge_host_capacity_exhausted"
	CodeFenced      = "edge_host_fenced"
	CodeUncertain   = "cloudflare_upload_uncertain"
	CodeRateLimited = "cloudflare_rate_limited"
)

// CapacityGuidance is the one text that a terminal failure shows to people; it
// is the same in every case (S2-228).
const CapacityGuidance = "The on-premises edge host has no capacity for this Worker. Ask the host's operator to free or add capacity, then deploy again."

// The path segments of an edge host that was not told others.
const (
	DefaultAccount   = "onprem"
	DefaultNamespace = "edge-workers"
)

var scriptPattern = regexp.MustCompile(`\Adw-[0-9a-f]{48}\z`)

// Params is what the provider needs. Origin and Token are required.
type Params struct {
	Origin        string // of the edge host's control listener
	Token         string
	Account       string        // default DefaultAccount
	Namespace     string        // default DefaultNamespace
	UploadTimeout time.Duration // default 90 s
	ReadTimeout   time.Duration // default 30 s
	RootCAs       *x509.CertPool
}

// Provider implements provider.Provider. It is safe for concurrent use.
type Provider struct{ api *scriptapi.Client }

// New checks params and returns a provider; it sends nothing.
func New(p Params) (*Provider, error) {
	if p.Account == "" {
		p.Account = DefaultAccount
	}
	if p.Namespace == "" {
		p.Namespace = DefaultNamespace
	}
	api, err := scriptapi.New(scriptapi.Params{
		Origin: p.Origin, Account: p.Account, Namespace: p.Namespace, Token: p.Token,
		UploadTimeout: p.UploadTimeout, ReadTimeout: p.ReadTimeout, RootCAs: p.RootCAs,
	})
	if err != nil {
		return nil, fmt.Errorf("edge host provider: %w", err)
	}
	return &Provider{api: api}, nil
}

// Upload sends the full desired state in one attempt.
func (p *Provider) Upload(ctx context.Context, release provider.Release) error {
	err := checkName(release.ScriptName)
	if err != nil {
		return &provider.TerminalError{Code: CodeRejected, Cause: err}
	}
	ack, err := p.api.Put(ctx, release)
	if err != nil {
		return classify(err)
	}
	if ack.ID != release.ScriptName || ack.ETag == "" {
		return &provider.UncertainError{Code: CodeUncertain, Cause: errors.New("the acknowledgement names another script or no etag")}
	}
	return nil
}

// ReadBack compares both ends with the release (S2-165 to S2-173).
func (p *Provider) ReadBack(ctx context.Context, release provider.Release) error {
	err := checkName(release.ScriptName)
	if err != nil {
		return &provider.UnreadableError{Cause: err}
	}
	return p.api.ReadBack(ctx, release)
}

// classify decides what a failed upload proves. Only a definite refusal is
// terminal (S2-217); 408, 409, 3xx, 5xx, silence and unusable answers are
// uncertain (S2-206 to S2-208).
func classify(err error) error {
	failure, ok := errors.AsType[*scriptapi.Failure](err)
	if !ok {
		return &provider.TerminalError{Code: CodeRejected, Cause: err} // nothing was sent
	}
	switch {
	case failure.NothingSent:
		return &provider.TerminalError{Code: CodeUnavailable, Cause: err}
	case failure.Status == 0 || failure.Malformed:
		return &provider.UncertainError{Code: CodeUncertain, Cause: err}
	case failure.Status == http.StatusTooManyRequests:
		return &provider.RateLimitedError{Code: CodeRateLimited, Cause: err}
	case failure.Status == http.StatusInsufficientStorage && failure.Has(CodeCapacity):
		return &provider.TerminalError{Code: CodeCapacity, Guidance: CapacityGuidance, Cause: err}
	case failure.Status == http.StatusLocked && failure.Has(CodeFenced):
		return &provider.DeferredError{Code: CodeFenced} // S2-223
	case failure.Status == http.StatusRequestTimeout, failure.Status == http.StatusConflict:
		return &provider.UncertainError{Code: CodeUncertain, Cause: err}
	case failure.Status == http.StatusUnauthorized, failure.Status == http.StatusForbidden:
		return &provider.TerminalError{Code: CodeUnavailable, Cause: err}
	case failure.Status >= 400 && failure.Status < 500:
		return &provider.TerminalError{Code: CodeRejected, Cause: err}
	}
	return &provider.UncertainError{Code: CodeUncertain, Cause: err}
}
