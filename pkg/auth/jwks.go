package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

const (
	// jwksRefresh is how often the key set is read again; a key that was
	// taken out of the set is trusted for at most this long.
	jwksRefresh = 10 * time.Minute
	// jwksTimeout bounds one fetch, so that no request waits longer for a slow issuer.
	jwksTimeout = 5 * time.Second
	// jwksUnknownKeyEvery limits fetches that tokens with unknown key ids
	// cause: without it any caller could make this service hammer the issuer.
	jwksUnknownKeyEvery = time.Minute
	// maxKeySetSize in bytes; sets of real issuers have a few KiB.
	maxKeySetSize = 256 << 10
	// maxKeyIDLength in bytes.
	maxKeyIDLength = 256
)

// JWKSParams describes an issuer that publishes its keys.
type JWKSParams struct {
	URL      string // https only
	Expected Expected
	Log      *slog.Logger
	TLS      *tls.Config // nil: the system's roots
	// Refresh and UnknownKeyEvery override the constants above; 0 keeps them.
	Refresh         time.Duration
	UnknownKeyEvery time.Duration
}

func (p JWKSParams) validate() error {
	if err := p.Expected.validate(); err != nil {
		return err
	}
	parsed, err := url.Parse(p.URL)
	if err != nil {
		return errors.New("the key set URL cannot be parsed") // its text may hold credentials
	}
	if parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil {
		return errors.New("the key set URL must be an https URL without credentials")
	}
	if p.Log == nil {
		return errors.New("a logger is needed")
	}
	return nil
}

// NewJWKSVerifier checks tokens against a published key set. The set is read
// once at the start, then every ten minutes, and at most once a minute for an
// unknown key id. A first read that fails is logged, not fatal: Ready tells.
// The refresh ends with ctx.
func NewJWKSVerifier(ctx context.Context, params JWKSParams) (*Verifier, error) {
	if err := params.validate(); err != nil {
		return nil, err
	}
	if params.Refresh == 0 {
		params.Refresh = jwksRefresh
	}
	if params.UnknownKeyEvery == 0 {
		params.UnknownKeyEvery = jwksUnknownKeyEvery
	}
	tolerateFirst := true
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{params.URL}, keyfunc.Override{
		Client:                    boundedClient(params.TLS),
		HTTPTimeout:               jwksTimeout,
		NoErrorReturnFirstHTTPReq: &tolerateFirst,
		RateLimitWaitMax:          jwksTimeout,
		RefreshErrorHandlerFunc:   refreshLogger(params.Log),
		RefreshInterval:           params.Refresh,
		RefreshUnknownKID:         rate.NewLimiter(rate.Every(params.UnknownKeyEvery), 1),
	})
	if err != nil {
		return nil, fmt.Errorf("open key set: %w", err)
	}
	return newVerifier(publishedKeys{keys}, params.Expected), nil
}

func refreshLogger(log *slog.Logger) func(string) func(context.Context, error) {
	return func(address string) func(context.Context, error) {
		return func(ctx context.Context, err error) {
			log.WarnContext(ctx, "the token issuer's key set could not be read", "url", address, "error", err)
		}
	}
}

type publishedKeys struct{ set keyfunc.Keyfunc }

// key demands a key id: without one the library would try each key of the set.
func (p publishedKeys) key(ctx context.Context, token *jwt.Token) (any, error) {
	kid, ok := token.Header["kid"].(string)
	if !ok || kid == "" || len(kid) > maxKeyIDLength {
		return nil, errors.New("token names no key")
	}
	// A caller that goes away must not cancel a fetch that all others wait for;
	// the library bounds it by jwksTimeout.
	return p.set.KeyfuncCtx(context.WithoutCancel(ctx))(token)
}

func (p publishedKeys) ready(ctx context.Context) error {
	keys, err := p.set.Storage().KeyReadAll(ctx)
	if err != nil {
		return fmt.Errorf("read known token keys: %w", err)
	}
	for _, key := range keys {
		if key.Marshal().KTY != jwkset.KtyOct {
			return nil
		}
	}
	return errors.New("no key of the token issuer is known yet")
}

// boundedClient follows no redirects, so that https cannot be left, and bounds
// what it reads.
func boundedClient(config *tls.Config) *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   jwksTimeout,
		ResponseHeaderTimeout: jwksTimeout,
		MaxIdleConns:          1,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
	}
	return &http.Client{
		Transport:     boundedTransport{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = boundedBody{Reader: io.LimitReader(response.Body, maxKeySetSize), Closer: response.Body}
	return response, nil
}

type boundedBody struct {
	io.Reader
	io.Closer
}
