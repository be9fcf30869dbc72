package auth_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/teamsync/edge-workers/pkg/auth"
)

var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	expected = auth.Expected{Issuer: "issuer", Audience: "edge-workers", Now: func() time.Time { return now }}
	manager  = auth.Principal{Subject: "user:1", CompanyID: "company", DepartmentID: "department", Roles: []auth.Role{auth.DepartmentManager}}
)

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return ed25519.PublicKey(key[32:]) }

func localVerifier(t testing.TB, key ed25519.PublicKey) *auth.Verifier {
	t.Helper()
	verifier, err := auth.NewLocalVerifier(key, expected)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

// goodClaims are accepted by every verifier of these tests.
func goodClaims() jwt.MapClaims {
	return jwt.MapClaims{
		"iss": "issuer", "aud": "edge-workers", "sub": "user:1",
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
		"company_id": "company", "department_id": "department", "roles": []string{"department_manager"},
	}
}

func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, kid any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != nil {
		token.Header["kid"] = kid
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func wantRefused(t testing.TB, name string, verifier *auth.Verifier, token string) {
	t.Helper()
	principal, err := verifier.Verify(t.Context(), token)
	if !errors.Is(err, auth.ErrNotAuthenticated) {
		t.Errorf("%s: error %v, want ErrNotAuthenticated", name, err)
	}
	if !reflect.DeepEqual(principal, auth.Principal{}) {
		t.Errorf("%s: a refused token gives the principal %+v", name, principal)
	}
}

func wantAccepted(t testing.TB, name string, verifier *auth.Verifier, token string) {
	t.Helper()
	principal, err := verifier.Verify(t.Context(), token)
	if err != nil || !reflect.DeepEqual(principal, manager) {
		t.Errorf("%s: %+v, %v", name, principal, err)
	}
}

func TestVerifyClaims(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	verifier := localVerifier(t, public(key))
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	cases := map[string]struct {
		claim    string
		value    any // nil removes the claim
		accepted bool
	}{
		"unchanged":                       {"sub", "user:1", true},
		"expired within the leeway":       {"exp", at(-29 * time.Second), true},
		"expired":                         {"exp", at(-31 * time.Second), false},
		"no exp":                          {"exp", nil, false},
		"exp is a text":                   {"exp", "tomorrow", false},
		"issued in the future":            {"iat", at(31 * time.Second), false},
		"issued slightly in the future":   {"iat", at(29 * time.Second), true},
		"no iat":                          {"iat", nil, true},
		"not yet valid":                   {"nbf", at(31 * time.Second), false},
		"other issuer":                    {"iss", "other", false},
		"no issuer":                       {"iss", nil, false},
		"other audience":                  {"aud", "other", false},
		"no audience":                     {"aud", nil, false},
		"one of several audiences":        {"aud", []string{"other", "edge-workers"}, true},
		"no subject":                      {"sub", nil, false},
		"no company":                      {"company_id", nil, false},
		"no department for a manager":     {"department_id", nil, false},
		"company that is a number":        {"company_id", 7, false},
		"company with a slash":            {"company_id", "a/b", false},
		"unknown role":                    {"roles", []string{"department_manager", "root"}, false},
		"role in another case":            {"roles", []string{"Department_Manager"}, false},
		"roles as one text":               {"roles", "department_manager", false},
		"empty text as a role":            {"roles", []string{""}, false},
		"role that is null":               {"roles", []any{nil}, false},
		"role that is no text":            {"roles", []any{1}, false},
		"unknown claims are of no matter": {"email", "a@b.example", true},
	}
	for name, c := range cases {
		claims := goodClaims()
		claims[c.claim] = c.value
		if c.value == nil {
			delete(claims, c.claim)
		}
		token := sign(t, jwt.SigningMethodEdDSA, key, claims, nil)
		if c.accepted {
			wantAccepted(t, name, verifier, token)
		} else {
			wantRefused(t, name, verifier, token)
		}
	}
}

func TestVerifyMemberWithoutRoles(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	claims := goodClaims()
	delete(claims, "roles")
	principal, err := localVerifier(t, public(key)).Verify(t.Context(), sign(t, jwt.SigningMethodEdDSA, key, claims, nil))
	if err != nil || len(principal.Roles) != 0 || principal.CompanyID != "company" {
		t.Errorf("got %+v, %v", principal, err)
	}
	if principal.Require(auth.DepartmentManager) == nil {
		t.Error("a member without roles passes as a manager")
	}
}

func TestVerifyForgedTokens(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	verifier := localVerifier(t, public(key))
	good := sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), nil)
	wantAccepted(t, "control", verifier, good)

	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	forged := strings.Replace(mustDecode(t, parts[1]), `"company_id":"company"`, `"company_id":"another"`, 1)
	none := jwt.NewWithClaims(jwt.SigningMethodNone, goodClaims())
	unsigned, err := none.SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"empty":                           "",
		"garbage":                         "garbage",
		"two dots":                        "..",
		"signature removed":               parts[0] + "." + parts[1] + ".",
		"signature of another token":      parts[0] + "." + encode([]byte(forged)) + "." + parts[2],
		"key of another issuer":           sign(t, jwt.SigningMethodEdDSA, newKey(t), goodClaims(), nil),
		"alg none":                        unsigned,
		"alg None":                        encode([]byte(`{"alg":"None","typ":"JWT"}`)) + "." + parts[1] + ".",
		"HS256 with the public key":       sign(t, jwt.SigningMethodHS256, []byte(public(key)), goodClaims(), nil),
		"HS512 with the public key":       sign(t, jwt.SigningMethodHS512, []byte(public(key)), goodClaims(), nil),
		"header of RS256, key of Ed25519": encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + parts[1] + "." + parts[2],
		"no alg":                          encode([]byte(`{"typ":"JWT"}`)) + "." + parts[1] + "." + parts[2],
		"padding":                         good + "=",
		"white space":                     " " + good,
	} {
		wantRefused(t, name, verifier, token)
	}
}

func mustDecode(t testing.TB, part string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestVerifyBoundsTheToken(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	verifier := localVerifier(t, public(key))
	tokenOf := func(padding int) string {
		claims := goodClaims()
		claims["padding"] = strings.Repeat("x", padding)
		return sign(t, jwt.SigningMethodEdDSA, key, claims, nil)
	}
	padding := (auth.MaxTokenSize - len(tokenOf(0))) / 4 * 3
	fits := tokenOf(padding)
	if len(fits) > auth.MaxTokenSize || len(fits) < auth.MaxTokenSize-8 {
		t.Fatalf("the control token has %d bytes", len(fits))
	}
	wantAccepted(t, "at the bound", verifier, fits)
	wantRefused(t, "over the bound", verifier, tokenOf(padding+8))
}

func TestNewVerifierRefusesIncompleteSettings(t *testing.T) {
	t.Parallel()
	key := public(newKey(t))
	for name, e := range map[string]auth.Expected{"no issuer": {Audience: "a"}, "no audience": {Issuer: "i"}} {
		if _, err := auth.NewLocalVerifier(key, e); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := auth.NewLocalVerifier(key[:31], expected); err == nil {
		t.Error("a short key is accepted")
	}
	verifier, err := auth.NewLocalVerifier(key, expected)
	if err != nil || verifier.Ready(context.Background()) != nil {
		t.Errorf("a local verifier is not ready: %v", err)
	}
}

func TestIssuer(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "token.key")
	made, err := auth.GenerateKeyFile(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := auth.LoadPrivateKey(name)
	if err != nil || !key.Equal(made) {
		t.Fatalf("the key read is not the key written: %v", err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file mode is %v, %v", info.Mode(), err)
	}
	if _, err := auth.GenerateKeyFile(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("an existing key file: %v", err)
	}
	issuer, err := auth.NewIssuer(key, expected)
	if err != nil {
		t.Fatal(err)
	}
	token, err := issuer.Issue(manager, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	wantAccepted(t, "issued token", localVerifier(t, public(key)), token)
	for name, lifetime := range map[string]time.Duration{"zero": 0, "negative": -1, "too long": auth.MaxLifetime + 1} {
		if _, err := issuer.Issue(manager, lifetime); err == nil {
			t.Errorf("lifetime %s is accepted", name)
		}
	}
	if _, err := issuer.Issue(auth.Principal{Subject: "x", Roles: []auth.Role{"root"}}, time.Minute); err == nil {
		t.Error("a token for an unknown role is made")
	}
}

func TestLoadKeyRefusals(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"empty":     "",
		"no PEM":    "secret",
		"wrong PEM": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
		"not a key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
	} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auth.LoadPrivateKey(file)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := auth.LoadPublicKey(file); err == nil {
			t.Errorf("%s is accepted as a public key", name)
		}
	}
	if _, err := auth.LoadPrivateKey(filepath.Join(folder, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
