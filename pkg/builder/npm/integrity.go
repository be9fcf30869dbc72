package npm

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// Integrity is the SHA-512 of a package's tarball as the registry published it.
type Integrity [sha512.Size]byte

// Hex is the digest as 128 lower-case hex digits.
func (i Integrity) Hex() string { return hex.EncodeToString(i[:]) }

// String is the digest as lock files spell it.
func (i Integrity) String() string { return "sha512-" + base64.StdEncoding.EncodeToString(i[:]) }

// Matches reports whether content has the digest.
func (i Integrity) Matches(content []byte) bool { return sha512.Sum512(content) == i }

// parseIntegrity reads the integrity of a lock file: hashes with blanks between
// them (W3C Subresource Integrity). Exactly one must be a sha512; weaker ones
// beside it are not looked at.
func parseIntegrity(text string) (Integrity, error) {
	var found []string
	for _, hash := range strings.Fields(text) {
		if value, ok := strings.CutPrefix(hash, "sha512-"); ok {
			found = append(found, value)
		}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return Integrity{}, errors.New("it has no integrity")
	case len(found) == 0:
		return Integrity{}, errors.New("its integrity is not a sha512: weaker hashes are not accepted")
	case len(found) > 1:
		return Integrity{}, errors.New("its integrity has several sha512 hashes")
	}
	sum, err := base64.StdEncoding.Strict().DecodeString(found[0])
	if err != nil || len(sum) != sha512.Size {
		return Integrity{}, errors.New("its sha512 integrity is malformed")
	}
	return Integrity(sum), nil
}
