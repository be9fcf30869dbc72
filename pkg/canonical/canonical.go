// Package canonical makes the byte forms that are hashed: JSON in the form of
// RFC 8785 and SHA-256 digests with a domain in front.
package canonical

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/gowebpki/jcs"
)

// JSON encodes v and returns its RFC 8785 form: sorted keys, no white space,
// ECMAScript numbers (integers are exact within ±2^53 only). It fails for what
// JSON cannot hold, such as NaN.
func JSON(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode for canonical form: %w", err)
	}
	return Transform(raw)
}

// Transform returns the RFC 8785 form of JSON text.
func Transform(raw []byte) ([]byte, error) {
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return out, nil
}

// SHA256 returns the lower-case hex SHA-256 of data: 64 characters.
func SHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Digest returns the hex SHA-256 of domain, one NUL byte and data. The domain
// keeps digests that are made for one purpose from ever equalling those made
// for another.
func Digest(domain string, data []byte) string {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write([]byte{0})
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// JSONDigest returns Digest(domain, JSON(v)).
func JSONDigest(domain string, v any) (string, error) {
	raw, err := JSON(v)
	if err != nil {
		return "", err
	}
	return Digest(domain, raw), nil
}

var hex64 = regexp.MustCompile(`\A[0-9a-f]{64}\z`)

// IsSHA256 reports whether s has the form of a hex SHA-256: 64 lower-case
// hex digits and nothing else.
func IsSHA256(s string) bool { return hex64.MatchString(s) }
