// Package control is the control plane's side of the signed doors of a Worker
// (design decision D10): it signs assertions, sends control commands, and
// checks their answers. A command is sent once and never replayed; whoever
// needs to know what became of a mutation asks for its receipt.
package control

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Issuer is the iss claim of every assertion; bundles accept no other.
const Issuer = "edge-workers"

// Lifetime is the time between iat and exp: the most that bundles accept.
const Lifetime = 60 * time.Second

// PublicKey is a verification key as it is compiled into bundles.
type PublicKey struct {
	KID string            // first 16 hex digits of sha256(key)
	Key ed25519.PublicKey // 32 bytes
}

// Base64URL is the raw key in unpadded base64url.
func (k PublicKey) Base64URL() string { return base64.RawURLEncoding.EncodeToString(k.Key) }

// NewPublicKey derives the key id.
func NewPublicKey(key ed25519.PublicKey) (PublicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("public key has %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	return PublicKey{KID: canonical.SHA256(key)[:16], Key: key}, nil
}

// Signer signs assertions with the current key. It is safe for concurrent use.
type Signer struct {
	private ed25519.PrivateKey
	keys    []PublicKey
	now     func() time.Time
}

// NewSigner returns a signer. next is the public half of the key that will
// follow the current one, nil when no change is planned; bundles built from
// now on accept both.
func NewSigner(current ed25519.PrivateKey, next ed25519.PublicKey) (*Signer, error) {
	if len(current) != ed25519.PrivateKeySize {
		return nil, errors.New("signing key is not an Ed25519 private key")
	}
	public, ok := current.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("signing key has no Ed25519 public key")
	}
	s := &Signer{private: current, now: time.Now}
	for _, key := range []ed25519.PublicKey{public, next} {
		if key == nil {
			continue
		}
		named, err := NewPublicKey(key)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, named)
	}
	if next != nil && public.Equal(next) {
		return nil, errors.New("the next key is the current key")
	}
	return s, nil
}

// PublicKeys returns the keys to compile into bundles: the current one and,
// when there is one, the next.
func (s *Signer) PublicKeys() []PublicKey { return append([]PublicKey(nil), s.keys...) }

// Assertion is what a signed request claims. All fields are required.
type Assertion struct {
	Script     string // audience
	Subject    string // who acts, such as user:… or system:edge-worker-deploy
	Operation  string // control operation, or operation id of an invocation
	Generation string // release generation, 64 hex digits
	Body       []byte // the exact body of the request; may be empty
}

// Caller is who invokes an operation, as the gateway established it.
type Caller struct {
	Kind         string   `json:"kind"` // member, api_key, public or system
	Subject      string   `json:"sub"`
	CompanyID    string   `json:"company_id"`
	DepartmentID string   `json:"department_id"`
	Roles        []string `json:"roles"`
	RequestID    string   `json:"request_id"`
	// APIKeySHA256 is the digest in hex of the key that was presented, which
	// the Worker compares; empty without a key.
	APIKeySHA256 string `json:"api_key_sha256,omitempty"`
	// ClientAddress is where the call came from, without port and zone; empty
	// when that is not known, which is outside of every allow list.
	ClientAddress string `json:"client_address,omitempty"`
}

func (c Caller) check() error {
	switch c.Kind {
	case "member", "api_key", "public", "system":
	default:
		return fmt.Errorf("caller kind %q is unknown", c.Kind)
	}
	if c.APIKeySHA256 != "" && !canonical.IsSHA256(c.APIKeySHA256) {
		return errors.New("caller's API key is not a SHA-256 in hex")
	}
	if c.ClientAddress == "" {
		return nil
	}
	address, err := netip.ParseAddr(c.ClientAddress)
	if err != nil || address.Zone() != "" {
		return errors.New("caller's address is not an IP address without zone")
	}
	return nil
}

// claims are those of the wire contract, no more.
type claims struct {
	Issuer     string  `json:"iss"`
	Audience   string  `json:"aud"` // one text, not a list
	Subject    string  `json:"sub"`
	IssuedAt   int64   `json:"iat"`
	Expires    int64   `json:"exp"`
	ID         string  `json:"jti"`
	Operation  string  `json:"op"`
	Generation string  `json:"gen"`
	BodyHash   string  `json:"bsh"`
	Door       string  `json:"door"`
	Caller     *Caller `json:"caller,omitempty"`
}

// The methods make claims a jwt.Claims; signing reads none of them.

func (c claims) GetExpirationTime() (*jwt.NumericDate, error) { return unix(c.Expires), nil }
func (c claims) GetIssuedAt() (*jwt.NumericDate, error)       { return unix(c.IssuedAt), nil }
func (c claims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c claims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c claims) GetSubject() (string, error)                  { return c.Subject, nil }
func (c claims) GetAudience() (jwt.ClaimStrings, error)       { return jwt.ClaimStrings{c.Audience}, nil }

func unix(seconds int64) *jwt.NumericDate { return jwt.NewNumericDate(time.Unix(seconds, 0)) }

// SignControl signs a request to the control door.
func (s *Signer) SignControl(a Assertion) (string, error) { return s.sign(a, "control", nil) }

// SignInvoke signs a request to the invoke door.
func (s *Signer) SignInvoke(a Assertion, caller Caller) (string, error) {
	err := caller.check()
	if err != nil {
		return "", err
	}
	if caller.Roles == nil {
		caller.Roles = []string{}
	}
	return s.sign(a, "invoke", &caller)
}

func (s *Signer) sign(a Assertion, door string, caller *Caller) (string, error) {
	if a.Script == "" || a.Subject == "" || a.Operation == "" || !canonical.IsSHA256(a.Generation) {
		return "", errors.New("assertion needs script, subject, operation and a release generation of 64 hex digits")
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("assertion id: %w", err)
	}
	issued := s.now().Unix()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		Issuer: Issuer, Audience: a.Script, Subject: a.Subject, IssuedAt: issued, Expires: issued + int64(Lifetime/time.Second),
		ID: id.String(), Operation: a.Operation, Generation: a.Generation, BodyHash: canonical.SHA256(a.Body), Door: door, Caller: caller,
	})
	token.Header["kid"] = s.keys[0].KID
	signed, err := token.SignedString(s.private)
	if err != nil {
		return "", fmt.Errorf("sign assertion: %w", err)
	}
	return signed, nil
}
