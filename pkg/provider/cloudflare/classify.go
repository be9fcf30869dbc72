package cloudflare

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/scriptapi"
)

// The error codes that this provider stores.
const (
	CodeUncertain   = "cloudflare_upload_uncertain"      // it may have been applied
	CodeRateLimited = "cloudflare_rate_limited"          // refused twice for the rate limit
	CodeUnreachable = "cloudflare_unreachable"           // no byte of the request left
	CodeAuth        = "cloudflare_authentication_failed" // the token, or what it may do
	CodeEntitlement = "cloudflare_not_entitled"          // the account's plan or its number of Workers
	CodeTooLarge    = "cloudflare_bundle_too_large"
	CodeExports     = "cloudflare_exports_conflict" // the Durable Object class's life cycle
	CodeRejected    = "cloudflare_upload_rejected"  // any other definite refusal
)

// What the numbers in errors[].code mean for a write. A definite refusal with
// none of them is CodeRejected.
var (
	// codesAmbiguous are internal errors of the provider: a write that ends so
	// may have been applied, whatever the status is.
	codesAmbiguous   = []string{"10002", "10013", "10014"}
	codesEntitlement = []string{"10015", "10037", "10075"}
	codesTooLarge    = []string{"10027"}
	codesExports     = []string{"10061", "10064", "10074", "10079", "10123", "10211", "100402", "100405", "100406"}
	codesAuth        = []string{"9109", "10000", "10023"}
)

// classify decides what a failed upload proves (S2-200, S2-206 to S2-208,
// S2-217). Only a definite refusal is terminal, and only 429 is a rate limit.
func classify(err error) error {
	failure, ok := errors.AsType[*scriptapi.Failure](err)
	switch {
	case !ok: // the release was not complete: nothing was sent
		return &provider.TerminalError{Code: CodeRejected, Cause: err}
	case failure.NothingSent:
		return &provider.TerminalError{Code: CodeUnreachable, Cause: err}
	case failure.Status == http.StatusTooManyRequests:
		return &provider.RateLimitedError{Code: CodeRateLimited, RetryAfter: retryAfter(failure), Cause: err}
	case !definite(failure):
		return &provider.UncertainError{Code: CodeUncertain, Cause: err}
	}
	return &provider.TerminalError{Code: refusalCode(failure), Cause: err}
}

// definite tells whether the provider has refused and changed nothing: a 4xx
// but 408 and 409, which may come after it began to apply the upload.
func definite(f *scriptapi.Failure) bool {
	return f.Status >= 400 && f.Status < 500 &&
		f.Status != http.StatusRequestTimeout && f.Status != http.StatusConflict && !hasAny(f, codesAmbiguous)
}

// refusalCode prefers what the body says to what the status says: a lacking
// entitlement also comes with 403.
func refusalCode(f *scriptapi.Failure) string {
	switch {
	case hasAny(f, codesEntitlement):
		return CodeEntitlement
	case hasAny(f, codesTooLarge):
		return CodeTooLarge
	case hasAny(f, codesExports):
		return CodeExports
	case hasAny(f, codesAuth), f.Status == http.StatusUnauthorized, f.Status == http.StatusForbidden:
		return CodeAuth
	case f.Status == http.StatusRequestEntityTooLarge:
		return CodeTooLarge
	}
	return CodeRejected
}

// codeNoNamespace says that the dispatch namespace does not exist.
const codeNoNamespace = "100119"

func hasCode(err error, code string) bool {
	failure, ok := errors.AsType[*scriptapi.Failure](err)
	return ok && failure.Has(code)
}

func hasAny(f *scriptapi.Failure, codes []string) bool { return slices.ContainsFunc(codes, f.Has) }

// limited finds a refusal for the rate limit in err, that of one of two reads
// included.
func limited(err error) *scriptapi.Failure {
	switch e := err.(type) { //nolint:errorlint // the tree is walked here, branch by branch
	case nil:
		return nil
	case *scriptapi.Failure:
		if e.Status == http.StatusTooManyRequests {
			return e
		}
	case interface{ Unwrap() []error }:
		for _, branch := range e.Unwrap() {
			if failure := limited(branch); failure != nil {
				return failure
			}
		}
	}
	return limited(errors.Unwrap(err))
}

// retryAfter is what the provider said, or what it documents when it said
// nothing.
func retryAfter(f *scriptapi.Failure) time.Duration {
	if f.RetryAfter <= 0 {
		return defaultBlock
	}
	return min(f.RetryAfter, maxBlock)
}
