package cloudflare

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultOrigin is where Cloudflare's API is; /client/v4 follows it.
const DefaultOrigin = "https://api.cloudflare.com"

// Params is what the provider needs. AccountID, Namespace and Token are
// required. It never prints the token.
type Params struct {
	AccountID string // 32 lower-case hex digits
	Namespace string // this environment's own dispatch namespace
	// Shared are the namespaces that all environments serve (D15).
	Shared []string
	// Token is an API token with the permission Workers Scripts: Edit of this
	// account and no other.
	Token string
	// Origin is DefaultOrigin, but in tests. It must be https, unless it is an
	// address of this very machine.
	Origin string
	// UploadTimeout (120 s: the provider validates within the call) and
	// ReadTimeout (30 s) bound one call; connecting takes at most 10 s of it.
	UploadTimeout time.Duration
	ReadTimeout   time.Duration
	RootCAs       *x509.CertPool   // nil: the system's
	Now           func() time.Time // nil: time.Now; the clock of the rate limit
}

// String leaves out the token.
func (p Params) String() string {
	return "Cloudflare account " + p.AccountID + ", namespace " + p.Namespace
}

// GoString leaves out the token.
func (p Params) GoString() string { return p.String() }

var (
	accountPattern   = regexp.MustCompile(`\A[0-9a-f]{32}\z`)
	namespacePattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\z`)
)

// CheckAccountID refuses what is not a Cloudflare account id.
func CheckAccountID(id string) error {
	if !accountPattern.MatchString(id) {
		return errors.New("the account id is not 32 lower-case hex digits")
	}
	return nil
}

// CheckNamespace refuses what cannot be the name of a dispatch namespace: 1 to
// 64 lower-case letters, digits, hyphens and underscores, with a letter or a
// digit at both ends. An environment without a usable name claims nothing
// (S1-042).
func CheckNamespace(name string) error {
	if !namespacePattern.MatchString(name) {
		return errors.New("the dispatch namespace is not a name of lower-case letters, digits, hyphens and underscores")
	}
	return nil
}

// CheckToken refuses an empty token and what cannot stand in a header. The
// error does not repeat the token.
func CheckToken(token string) error {
	if token == "" {
		return errors.New("the API token is not set")
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("the API token has a character that no token has")
		}
	}
	return nil
}

func (p Params) withDefaults() (Params, error) {
	faults := []error{CheckAccountID(p.AccountID), CheckNamespace(p.Namespace), CheckToken(p.Token)}
	for i, shared := range p.Shared {
		faults = append(faults, CheckNamespace(shared))
		if shared == p.Namespace || slices.Contains(p.Shared[:i], shared) {
			faults = append(faults, errors.New("a dispatch namespace is named twice"))
		}
	}
	err := errors.Join(faults...)
	if err != nil {
		return p, err
	}
	if p.Origin == "" {
		p.Origin = DefaultOrigin
	}
	err = checkOrigin(p.Origin)
	if err != nil {
		return p, err
	}
	if p.UploadTimeout < 0 || p.ReadTimeout < 0 {
		return p, errors.New("a time limit is negative")
	}
	if p.UploadTimeout == 0 {
		p.UploadTimeout = 120 * time.Second
	}
	if p.ReadTimeout == 0 {
		p.ReadTimeout = 30 * time.Second
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	return p, nil
}

// checkOrigin keeps the token off plain connections. scriptapi checks the rest
// of the form.
func checkOrigin(origin string) error {
	parsed, err := url.Parse(origin)
	if err != nil {
		return errors.New("the API origin is not a URL")
	}
	if strings.EqualFold(parsed.Scheme, "https") || isLoopback(parsed.Hostname()) {
		return nil
	}
	return errors.New("the API origin must begin with https://")
}

// isLoopback takes the name by itself, without asking the DNS.
func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || (address != nil && address.IsLoopback())
}
