package runtime_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The keys of the tests: fixed, so that bundles and digests are repeatable.
var (
	currentKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("c", ed25519.SeedSize)))
	nextKey    = ed25519.NewKeyFromSeed([]byte(strings.Repeat("n", ed25519.SeedSize)))
	foreignKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("f", ed25519.SeedSize)))
)

const scriptName = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// assertion is what a test signs; a test changes what it is about.
type assertion struct {
	claims jwt.MapClaims
	header map[string]any
	method jwt.SigningMethod
	key    any
}

func (b *built) assertion(door, op, body string) *assertion {
	now := time.Now().Unix()
	claims := jwt.MapClaims{
		"iss": "edge-workers", "aud": scriptName, "sub": "user:42", "iat": now, "exp": now + 30, "jti": uuid.NewString(),
		"op": op, "gen": b.out.ReleaseGeneration, "bsh": canonical.SHA256([]byte(body)), "door": door,
	}
	if door == "invoke" {
		claims["caller"] = map[string]any{
			"kind": "member", "sub": "user:42", "company_id": "c1", "department_id": "d1",
			"roles": []string{"department_manager"}, "request_id": "req-1",
		}
	}
	return &assertion{
		claims: claims,
		header: map[string]any{"kid": builder.KeyID(public(currentKey))},
		method: jwt.SigningMethodEdDSA,
		key:    currentKey,
	}
}

// bearer signs the assertion.
func (a *assertion) bearer(t testing.TB) string {
	t.Helper()
	token := jwt.NewWithClaims(a.method, a.claims)
	for name, value := range a.header {
		if value == nil {
			delete(token.Header, name)
			continue
		}
		token.Header[name] = value
	}
	signed, err := token.SignedString(a.key)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + signed
}
