package builder

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/runtime"
)

// publicKey is a key as bundles carry it.
type publicKey struct {
	KeyID string `json:"kid"`
	Key   string `json:"key"` // raw, base64url without padding
}

// KeyID is the `kid` under which a bundle knows a key: the first 16 hex digits
// of the SHA-256 of the raw key.
func KeyID(key ed25519.PublicKey) string { return canonical.SHA256(key)[:16] }

func describeKeys(keys []ed25519.PublicKey) ([]publicKey, error) {
	if len(keys) == 0 || len(keys) > MaxPublicKeys {
		return nil, fmt.Errorf("builder: %d public keys given, 1 or %d are needed", len(keys), MaxPublicKeys)
	}
	var all []publicKey
	for _, key := range keys {
		if len(key) != ed25519.PublicKeySize {
			return nil, errors.New("builder: a public key is not an Ed25519 key")
		}
		all = append(all, publicKey{KeyID(key), base64.RawURLEncoding.EncodeToString(key)})
	}
	if len(all) == 2 && all[0].KeyID == all[1].KeyID {
		return nil, errors.New("builder: the same public key is given twice")
	}
	return all, nil
}

// runtimeDigest covers all code in a bundle that is not the author's, and the
// keys that open its doors.
func runtimeDigest(keys []publicKey) (string, error) {
	digest, err := canonical.JSONDigest(runtimeDomain, map[string]any{
		"entry":      canonical.SHA256([]byte(entryTemplate)),
		"module":     canonical.SHA256([]byte(runtime.Module())),
		"publicKeys": keys,
	})
	if err != nil {
		return "", fmt.Errorf("runtime digest: %w", err)
	}
	return digest, nil
}
