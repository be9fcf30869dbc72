package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/teamsync/edge-workers/pkg/auth"
)

// keyServer is an issuer's key set over TLS, with its answer under control.
type keyServer struct {
	*httptest.Server
	mu      sync.Mutex
	answer  http.HandlerFunc
	fetches int
}

func newKeyServer(t testing.TB) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.fetches++
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *keyServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

// publish makes the server answer with the public keys, by key id.
func (s *keyServer) publish(t testing.TB, keys map[string]crypto.PublicKey) {
	t.Helper()
	body := keySet(t, keys)
	s.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
}

func keySet(t testing.TB, keys map[string]crypto.PublicKey) []byte {
	t.Helper()
	storage := jwkset.NewMemoryStorage()
	for kid, key := range keys {
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}, Marshal: jwkset.JWKMarshalOptions{Private: true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := storage.KeyWrite(t.Context(), jwk); err != nil {
			t.Fatal(err)
		}
	}
	body, err := storage.JSONPrivate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// params trusts the server's certificate and refreshes only on demand.
func (s *keyServer) params() auth.JWKSParams {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return auth.JWKSParams{
		URL: s.URL, Expected: expected, Log: slog.New(slog.DiscardHandler),
		TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Refresh: time.Hour, UnknownKeyEvery: time.Hour,
	}
}

func jwksVerifier(t testing.TB, params auth.JWKSParams) *auth.Verifier {
	t.Helper()
	verifier, err := auth.NewJWKSVerifier(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func TestJWKSAlgorithms(t *testing.T) {
	t.Parallel()
	edKey := newKey(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("a secret that the set wrongly publishes")
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{
		"ed": edKey.Public(), "p256": p256.Public(), "p384": p384.Public(), "rsa": rsaKey.Public(), "weak": weak.Public(), "oct": secret,
	})
	verifier := jwksVerifier(t, server.params())
	if err := verifier.Ready(t.Context()); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	wantAccepted(t, "EdDSA", verifier, sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), "ed"))
	wantAccepted(t, "ES256", verifier, sign(t, jwt.SigningMethodES256, p256, goodClaims(), "p256"))
	wantAccepted(t, "RS256", verifier, sign(t, jwt.SigningMethodRS256, rsaKey, goodClaims(), "rsa"))

	spki, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"ES384":                         sign(t, jwt.SigningMethodES384, p384, goodClaims(), "p384"),
		"RS512":                         sign(t, jwt.SigningMethodRS512, rsaKey, goodClaims(), "rsa"),
		"PS256":                         sign(t, jwt.SigningMethodPS256, rsaKey, goodClaims(), "rsa"),
		"RSA key of 1024 bits":          sign(t, jwt.SigningMethodRS256, weak, goodClaims(), "weak"),
		"HS256 with a published secret": sign(t, jwt.SigningMethodHS256, secret, goodClaims(), "oct"),
		"HS256 with the public RSA key": sign(t, jwt.SigningMethodHS256, spki, goodClaims(), "rsa"),
		"another key's id":              sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), "rsa"),
		"no key id":                     sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), nil),
		"empty key id":                  sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), ""),
		"key id that is a number":       sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), 7),
		"long key id":                   sign(t, jwt.SigningMethodEdDSA, edKey, goodClaims(), strings.Repeat("k", 257)),
	} {
		wantRefused(t, name, verifier, token)
	}
	if n := server.count(); n != 1 {
		t.Errorf("%d fetches of the key set, want 1", n)
	}
}

func TestJWKSRotation(t *testing.T) {
	t.Parallel()
	oldKey, newerKey := newKey(t), newKey(t)
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{"old": oldKey.Public()})
	verifier := jwksVerifier(t, server.params())
	oldToken := sign(t, jwt.SigningMethodEdDSA, oldKey, goodClaims(), "old")
	wantAccepted(t, "before", verifier, oldToken)

	server.publish(t, map[string]crypto.PublicKey{"new": newerKey.Public()})
	wantAccepted(t, "a new key id is fetched", verifier, sign(t, jwt.SigningMethodEdDSA, newerKey, goodClaims(), "new"))
	wantRefused(t, "a key that was taken out", verifier, oldToken)
}

func TestJWKSUnknownKeysAreLimited(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{"known": key.Public()})
	verifier := jwksVerifier(t, server.params())
	for range 20 {
		wantRefused(t, "unknown key id", verifier, sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), "unknown"))
	}
	if n := server.count(); n != 2 { // the first read, and one for all unknown ids
		t.Errorf("%d fetches of the key set, want 2", n)
	}
	wantAccepted(t, "known keys go on", verifier, sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), "known"))
}

func TestJWKSGarbage(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	good := keySet(t, map[string]crypto.PublicKey{"known": key.Public()})
	token := sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), "known")
	var pad strings.Builder
	pad.WriteString(`{"padding":"` + strings.Repeat("x", 300<<10) + `",`)
	pad.Write(good[1:])
	cases := map[string]struct {
		answer http.HandlerFunc
		ready  bool
	}{
		"control":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(good) }, true},
		"not JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, false},
		"empty":       {func(http.ResponseWriter, *http.Request) {}, false},
		"no keys":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) }, false},
		"over bounds": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(pad.String())) }, false},
		"error":       {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, string(good), 500) }, false},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/moved" {
				_, _ = w.Write(good)
				return
			}
			http.Redirect(w, r, "/moved", http.StatusFound)
		}, false},
	}
	for name, c := range cases {
		server := newKeyServer(t)
		server.set(c.answer)
		verifier := jwksVerifier(t, server.params())
		if err := verifier.Ready(t.Context()); (err == nil) != c.ready {
			t.Errorf("%s: ready %v, want %v", name, err, c.ready)
		}
		if c.ready {
			wantAccepted(t, name, verifier, token)
		} else {
			wantRefused(t, name, verifier, token)
		}
	}
}

func TestJWKSSecretKeysAreNotReadiness(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{"oct": []byte("a secret that the set wrongly publishes")})
	if jwksVerifier(t, server.params()).Ready(t.Context()) == nil {
		t.Error("a set of secrets counts as ready")
	}
}

// A stalled issuer must not hold a request that names a known key.
func TestJWKSStalledIssuer(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{"known": key.Public()})
	verifier := jwksVerifier(t, server.params())

	stalled, release := make(chan struct{}), make(chan struct{})
	server.set(func(http.ResponseWriter, *http.Request) { close(stalled); <-release })
	done := make(chan error, 1)
	go func() {
		_, err := verifier.Verify(context.Background(), sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), "unknown"))
		done <- err
	}()
	<-stalled
	wantAccepted(t, "while the issuer stalls", verifier, sign(t, jwt.SigningMethodEdDSA, key, goodClaims(), "known"))
	close(release)
	if err := <-done; err == nil {
		t.Error("an unknown key is accepted")
	}
}

func TestJWKSUntrustedCertificate(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	server.publish(t, map[string]crypto.PublicKey{"known": newKey(t).Public()})
	params := server.params()
	params.TLS = nil
	if jwksVerifier(t, params).Ready(t.Context()) == nil {
		t.Error("a key set from an untrusted server is used")
	}
}

func TestJWKSParams(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for name, params := range map[string]auth.JWKSParams{
		"http":        {URL: "http://issuer.example/keys", Expected: expected, Log: log},
		"no URL":      {Expected: expected, Log: log},
		"credentials": {URL: "https://user:secret@issuer.example/keys", Expected: expected, Log: log},
		"no logger":   {URL: "https://issuer.example/keys", Expected: expected},
		"no issuer":   {URL: "https://issuer.example/keys", Expected: auth.Expected{Audience: "a"}, Log: log},
	} {
		_, err := auth.NewJWKSVerifier(t.Context(), params)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
