package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// The issuer and audience of tokens that are made from a local key. Production
// tokens come from the identity provider and carry its own.
const (
	LocalIssuer   = "edge-workers-local"
	LocalAudience = "edge-workers"
)

// MaxLifetime bounds tokens made by an Issuer: a year, for a developer's own machine.
const MaxLifetime = 366 * 24 * time.Hour

const maxKeyFileSize = 16 << 10

// Issuer makes tokens from a local key, for development and for the command line.
type Issuer struct {
	key      ed25519.PrivateKey
	expected Expected
}

// NewIssuer makes an issuer whose tokens NewLocalVerifier accepts when it is
// given the same key and the same expectations.
func NewIssuer(key ed25519.PrivateKey, expected Expected) (*Issuer, error) {
	if err := expected.validate(); err != nil {
		return nil, err
	}
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("the token key is not an Ed25519 private key")
	}
	if expected.Now == nil {
		expected.Now = time.Now
	}
	return &Issuer{key: key, expected: expected}, nil
}

// Issue makes a token for the principal that lives for the given time, at most
// MaxLifetime. It fails for a principal that Verify would refuse.
func (i *Issuer) Issue(principal Principal, lifetime time.Duration) (string, error) {
	if err := principal.Validate(); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	if lifetime <= 0 || lifetime > MaxLifetime {
		return "", fmt.Errorf("make token: the lifetime must be more than 0 and at most %s", MaxLifetime)
	}
	now := i.expected.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.expected.Issuer,
			Audience:  jwt.ClaimStrings{i.expected.Audience},
			Subject:   principal.Subject,
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
			ID:        uuid.NewString(),
		},
		CompanyID:    principal.CompanyID,
		DepartmentID: principal.DepartmentID,
		Roles:        principal.Roles,
	})
	token.Header["kid"] = KeyID(publicOf(i.key))
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

// publicOf gives the second half of the key, which is the public key (RFC 8032).
func publicOf(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}

// KeyID gives the key's kid: the first 16 hex characters of the SHA-256 of the
// raw public key.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])[:16]
}

// GenerateKeyFile makes a new Ed25519 key and writes it to a new file that
// only its owner can read (PKCS #8 PEM). It never replaces a file.
func GenerateKeyFile(name string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate token key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode token key: %w", err)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, fmt.Errorf("create token key file: %w", err)
	}
	err = pem.Encode(file, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write token key file: %w", err), os.Remove(name))
	}
	return key, nil
}

// LoadPrivateKey reads an Ed25519 private key from a PKCS #8 PEM file.
func LoadPrivateKey(name string) (ed25519.PrivateKey, error) {
	block, err := readPEM(name, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("parse token key %s: not a PKCS #8 key", name)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("token key %s is not an Ed25519 key", name)
	}
	return key, nil
}

// LoadPublicKey reads an Ed25519 public key from a PKIX PEM file.
func LoadPublicKey(name string) (ed25519.PublicKey, error) {
	block, err := readPEM(name, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return nil, fmt.Errorf("parse token key %s: not a PKIX key", name)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("token key %s is not an Ed25519 key", name)
	}
	return key, nil
}

func readPEM(name, kind string) ([]byte, error) {
	file, err := os.Open(name) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, fmt.Errorf("open token key: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxKeyFileSize))
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, fmt.Errorf("read token key %s: %w", name, err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("token key %s holds no PEM block %q", name, kind)
	}
	return block.Bytes, nil
}
