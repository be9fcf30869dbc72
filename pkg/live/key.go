package live

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// keyPrefix marks an API key, so that people and scanners know one at sight.
const keyPrefix = "ewk_"

// apiKey is a fresh key of 256 bits. It is shown once and kept as its SHA-256
// and last four characters (D11).
type apiKey struct{ text, digest, lastFour string }

func newKey() (apiKey, error) {
	raw := make([]byte, 32)
	_, err := rand.Read(raw)
	if err != nil {
		return apiKey{}, fmt.Errorf("make a key: %w", err)
	}
	text := keyPrefix + base64.RawURLEncoding.EncodeToString(raw)
	return apiKey{text: text, digest: canonical.SHA256([]byte(text)), lastFour: text[len(text)-4:]}, nil
}
