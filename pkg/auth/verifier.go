package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/teamsync/edge-workers/pkg/fault"
)

const (
	// MaxTokenSize bounds a token in bytes, before anything of it is parsed.
	MaxTokenSize = 8 << 10
	// Leeway is the clock difference that is tolerated for exp, nbf and iat.
	Leeway = 30 * time.Second
	// minRSABits refuses keys that a set may still hold from long ago.
	minRSABits = 2048
)

// algorithms are the accepted signatures. They are pinned so that a token can
// choose neither "none" nor a symmetric one with a public key as its secret.
var algorithms = []string{"EdDSA", "ES256", "RS256"}

// ErrNotAuthenticated is what every refused token is answered with. Why it was
// refused is in the cause, for logs only.
var ErrNotAuthenticated = fault.New(fault.Unauthenticated, "Not authenticated")

// keySource finds the public key that a token names.
type keySource interface {
	key(ctx context.Context, token *jwt.Token) (any, error)
	ready(ctx context.Context) error
}

// Expected is what a token must say of itself.
type Expected struct {
	Issuer   string           // the exact iss
	Audience string           // one of the entries of aud
	Now      func() time.Time // nil: the system's clock
}

func (e Expected) validate() error {
	if e.Issuer == "" || e.Audience == "" {
		return errors.New("token issuer and audience must be set")
	}
	return nil
}

// Verifier checks bearer tokens. It is safe for concurrent use.
type Verifier struct {
	keys   keySource
	parser *jwt.Parser
}

func newVerifier(keys keySource, expected Expected) *Verifier {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms),
		jwt.WithIssuer(expected.Issuer),
		jwt.WithAudience(expected.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(Leeway),
		jwt.WithStrictDecoding(),
	}
	if expected.Now != nil {
		options = append(options, jwt.WithTimeFunc(expected.Now))
	}
	return &Verifier{keys: keys, parser: jwt.NewParser(options...)}
}

// NewLocalVerifier checks tokens against one Ed25519 public key.
func NewLocalVerifier(key ed25519.PublicKey, expected Expected) (*Verifier, error) {
	if err := expected.validate(); err != nil {
		return nil, err
	}
	if len(key) != ed25519.PublicKeySize {
		return nil, errors.New("the token key is not an Ed25519 public key")
	}
	return newVerifier(localKey(key), expected), nil
}

type localKey ed25519.PublicKey

func (k localKey) key(context.Context, *jwt.Token) (any, error) { return ed25519.PublicKey(k), nil }
func (k localKey) ready(context.Context) error                  { return nil }

// claims are those that a principal is made of.
type claims struct {
	jwt.RegisteredClaims
	CompanyID    string `json:"company_id,omitempty"`
	DepartmentID string `json:"department_id,omitempty"`
	Roles        []Role `json:"roles,omitempty"`
}

// Verify gives the principal of a compact JWS. Each failure is
// ErrNotAuthenticated with its reason as the cause.
func (v *Verifier) Verify(ctx context.Context, token string) (Principal, error) {
	principal, err := v.verify(ctx, token)
	if err != nil {
		return Principal{}, ErrNotAuthenticated.Because(err)
	}
	return principal, nil
}

func (v *Verifier) verify(ctx context.Context, token string) (Principal, error) {
	if token == "" {
		return Principal{}, errors.New("no token")
	}
	if len(token) > MaxTokenSize {
		return Principal{}, fmt.Errorf("token is longer than %d bytes", MaxTokenSize)
	}
	var c claims
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		key, err := v.keys.key(ctx, t)
		if err != nil {
			return nil, err
		}
		return key, strongEnough(key)
	})
	if err != nil {
		return Principal{}, err
	}
	principal := Principal{Subject: c.Subject, CompanyID: c.CompanyID, DepartmentID: c.DepartmentID, Roles: c.Roles}
	return principal, principal.Validate()
}

// Ready fails while no key is known, so that a process without its key set is
// not given traffic.
func (v *Verifier) Ready(ctx context.Context) error { return v.keys.ready(ctx) }

func strongEnough(key crypto.PublicKey) error {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return errors.New("the elliptic curve of the key is not P-256")
		}
		return nil
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("the RSA key has fewer than %d bits", minRSABits)
		}
		return nil
	}
	return fmt.Errorf("keys of type %T are not accepted", key)
}
