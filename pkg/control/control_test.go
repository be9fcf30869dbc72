package control

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

const script = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

var generation = strings.Repeat("ab", 32)

func newSigner(t *testing.T) *Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claimsOf verifies a token as a bundle does and returns header and claims.
func claimsOf(t *testing.T, s *Signer, token string) (map[string]any, map[string]any) {
	t.Helper()
	parsed, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return s.PublicKeys()[0].Key, nil },
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithAudience(script), jwt.WithIssuer("edge-workers"), jwt.WithExpirationRequired())
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Header, parsed.Claims.(jwt.MapClaims)
}

func keysOf(m map[string]any) []string {
	keys := []string{}
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func TestAssertionsHaveTheContractsForm(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	now := time.Now().Truncate(time.Second)
	s.now = func() time.Time { return now.Add(700 * time.Millisecond) }
	a := Assertion{Script: script, Subject: "user:1", Operation: "access_policy.get", Generation: generation, Body: []byte("body")}
	token, err := s.SignControl(a)
	if err != nil {
		t.Fatal(err)
	}
	header, claims := claimsOf(t, s, token)
	public := s.PublicKeys()[0]
	if want := canonical.SHA256(public.Key)[:16]; header["kid"] != want || header["alg"] != "EdDSA" || header["typ"] != "JWT" || len(header) != 3 {
		t.Errorf("header %v, want kid %s", header, want)
	}
	want := []string{"aud", "bsh", "door", "exp", "gen", "iat", "iss", "jti", "op", "sub"}
	if got := keysOf(claims); !slices.Equal(got, want) {
		t.Errorf("claims %v", got)
	}
	for key, value := range map[string]any{
		"iss": "edge-workers", "aud": script, "sub": "user:1", "op": "access_policy.get", "gen": generation, "door": "control",
		"bsh": canonical.SHA256([]byte("body")), "iat": float64(now.Unix()), "exp": float64(now.Unix() + 60),
	} {
		if claims[key] != value {
			t.Errorf("%s: %v, want %v", key, claims[key], value)
		}
	}
	other, err := s.SignControl(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, again := claimsOf(t, s, other); again["jti"] == claims["jti"] {
		t.Error("two assertions have one jti")
	}
	token, err = s.SignInvoke(a, Caller{Kind: "api_key", Subject: "key:1", CompanyID: "c", DepartmentID: "d", RequestID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	_, claims = claimsOf(t, s, token)
	caller, _ := claims["caller"].(map[string]any)
	if claims["door"] != "invoke" || !slices.Equal(keysOf(caller), []string{"company_id", "department_id", "kind", "request_id", "roles", "sub"}) || caller["roles"] == nil {
		t.Errorf("invoke claims: %v", claims)
	}
	token, err = s.SignInvoke(a, Caller{Kind: "public", APIKeySHA256: generation, ClientAddress: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	_, claims = claimsOf(t, s, token)
	caller, _ = claims["caller"].(map[string]any)
	if caller["api_key_sha256"] != generation || caller["client_address"] != "192.0.2.1" || len(caller) != 8 {
		t.Errorf("invoke claims: %v", claims)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(public.Base64URL()); err != nil || !bytes.Equal(raw, public.Key) {
		t.Errorf("public key text: %v", err)
	}
}

func TestSignerRefusesHalfAssertions(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	full := Assertion{Script: script, Subject: "user:1", Operation: "x", Generation: generation}
	for what, change := range map[string]func(*Assertion){
		"script": func(a *Assertion) { a.Script = "" }, "subject": func(a *Assertion) { a.Subject = "" },
		"operation": func(a *Assertion) { a.Operation = "" }, "generation": func(a *Assertion) { a.Generation = "AB" },
	} {
		a := full
		change(&a)
		if _, err := s.SignControl(a); err == nil {
			t.Errorf("without %s: signed", what)
		}
	}
	for name, caller := range map[string]Caller{
		"a digest too short": {Kind: "public", APIKeySHA256: "abc"}, "a key in clear": {Kind: "public", APIKeySHA256: "ewk_" + strings.Repeat("a", 43)},
		"a name": {Kind: "public", ClientAddress: "localhost"}, "a port": {Kind: "public", ClientAddress: "192.0.2.1:80"},
		"a zone": {Kind: "public", ClientAddress: "fe80::1%eth0"},
	} {
		if _, err := s.SignInvoke(full, caller); err == nil {
			t.Errorf("%s was signed", name)
		}
	}
	for _, address := range []string{"", "192.0.2.1", "2001:db8::1"} {
		if _, err := s.SignInvoke(full, Caller{Kind: "public", APIKeySHA256: strings.Repeat("a", 64), ClientAddress: address}); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := s.SignInvoke(full, Caller{Kind: "root"}); err == nil {
		t.Error("unknown caller kind: signed")
	}
	if _, err := s.SignControl(full); err != nil {
		t.Errorf("full assertion: %v", err)
	}
}

func TestTwoKeys(t *testing.T) {
	t.Parallel()
	_, current, _ := ed25519.GenerateKey(rand.Reader)
	next, _, _ := ed25519.GenerateKey(rand.Reader)
	s, err := NewSigner(current, next)
	if err != nil {
		t.Fatal(err)
	}
	if keys := s.PublicKeys(); len(keys) != 2 || !keys[1].Key.Equal(next) || keys[0].KID == keys[1].KID {
		t.Fatalf("keys: %v", keys)
	}
	if _, err := NewSigner(current, current.Public().(ed25519.PublicKey)); err == nil {
		t.Error("the same key twice was taken")
	}
	for _, bad := range []ed25519.PublicKey{{}, make([]byte, 31)} {
		if _, err := NewSigner(current, bad); err == nil {
			t.Errorf("a next key of %d bytes was taken", len(bad))
		}
	}
	if _, err := NewSigner(nil, nil); err == nil {
		t.Error("no key was taken")
	}
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "signing.pem")
	found := make([]ed25519.PrivateKey, 8)
	var racing sync.WaitGroup
	for i := range found {
		racing.Go(func() {
			key, err := LoadOrCreateKey(path)
			if err != nil {
				t.Error(err)
			}
			found[i] = key
		})
	}
	racing.Wait()
	for _, key := range found {
		if !key.Equal(found[0]) {
			t.Fatal("racing processes got different keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Fatalf("%d files are left", len(left))
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKey(path); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Fatalf("readable by a group: %v", err)
	}
	for what, text := range map[string]string{"empty": "", "not PEM": "x", "not PKCS#8": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))} {
		if _, err := ParsePrivateKey([]byte(text)); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	der, err := x509.MarshalPKIXPublicKey(found[0].Public())
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParsePublicKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil || !public.Equal(found[0].Public()) {
		t.Fatalf("public key: %v", err)
	}
}

// door is a control door that answers what a test wants.
type door struct {
	mu     sync.Mutex
	bodies []string
	tokens []string
	paths  []string
	answer func(http.ResponseWriter, *http.Request)
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.bodies = append(d.bodies, string(raw))
	d.tokens = append(d.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	d.paths = append(d.paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Request-Id"))
	d.mu.Unlock()
	d.answer(w, r)
}

func (d *door) requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.bodies)
}

func answering(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func newDoor(t *testing.T) (*door, *Client, *Signer) {
	t.Helper()
	d := &door{}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	signer := newSigner(t)
	client, err := NewClient(server.URL+"/", signer)
	if err != nil {
		t.Fatal(err)
	}
	return d, client, signer
}

func good(operation, result string) string {
	return fmt.Sprintf(`{"operation":%q,"releaseGeneration":%q,"result":%s}`, operation, generation, result)
}

// Kubernetes lends a Secret's file to a process's group, owned by root with mode
// 0440: no other way of lending is taken.
func TestKeyFileOfRoot(t *testing.T) {
	t.Parallel()
	const root, process, other = 0, 65532, 1000
	for _, c := range []struct {
		mode        fs.FileMode
		owner, self int
		want        bool
	}{
		{0o440, root, process, true},
		{0o640, root, process, true},
		{0o400, root, process, true},
		{0o600, process, process, true},
		{0o444, root, process, false}, // anyone reads it
		{0o644, root, process, false}, // the default mode of a Secret's files
		{0o660, root, process, false}, // the group may replace the key
		{0o450, root, process, false},
		{0o440, process, process, false}, // the owner could have withheld it
		{0o440, other, process, false},
		{0o440, root, root, false},
		{0o440, -1, process, false},
	} {
		if got := private(c.mode, c.owner, c.self); got != c.want {
			t.Errorf("mode %o of %d read by %d: %v", c.mode, c.owner, c.self, got)
		}
	}
}

func TestCallSendsTheContractsBody(t *testing.T) {
	t.Parallel()
	d, client, signer := newDoor(t)
	d.answer = answering(200, good("secrets.put", `{"ok":true}`))
	command := Command{Script: script, Generation: generation, Subject: "user:1", Operation: "secrets.put", MutationID: "m-1", RequestID: "r-1",
		Payload: map[string]any{"value": "x", "name": "A"}}
	result, err := client.Call(t.Context(), command)
	if err != nil || string(result) != `{"ok":true}` {
		t.Fatalf("%s %v", result, err)
	}
	digest := canonical.Digest("teamsync-edge-worker-command", []byte(`{"operation":"secrets.put","payload":{"name":"A","value":"x"}}`))
	want := fmt.Sprintf(`{"commandDigest":%q,"mutationId":"m-1","operation":"secrets.put","payload":{"name":"A","value":"x"},"releaseGeneration":%q}`, digest, generation)
	if d.requests() != 1 || d.bodies[0] != want || d.paths[0] != "POST /"+script+"/__control r-1" {
		t.Fatalf("sent %v %v\nwant %s", d.paths, d.bodies, want)
	}
	if _, claims := claimsOf(t, signer, d.tokens[0]); claims["bsh"] != canonical.SHA256([]byte(d.bodies[0])) || claims["op"] != "secrets.put" {
		t.Fatalf("claims %v", claims)
	}
	d.answer = answering(200, good("x", `{}`))
	if _, err := client.Call(t.Context(), Command{Script: script, Generation: generation, Subject: "s", Operation: "x"}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(d.bodies[1], "mutationId") || !strings.Contains(d.bodies[1], `"payload":{}`) {
		t.Fatalf("sent %s", d.bodies[1])
	}
}

func TestAnswersAreClassified(t *testing.T) {
	t.Parallel()
	elsewhere := strings.Repeat("cd", 32)
	for what, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"other operation":   {answering(200, good("y", `{}`)), "malformed"},
		"other generation":  {answering(200, strings.ReplaceAll(good("x", `{}`), generation, elsewhere)), "malformed"},
		"no result":         {answering(200, fmt.Sprintf(`{"operation":"x","releaseGeneration":%q}`, generation)), "malformed"},
		"result null":       {answering(200, good("x", `null`)), "malformed"},
		"result list":       {answering(200, good("x", `[]`)), "malformed"},
		"unknown key":       {answering(200, strings.Replace(good("x", `{}`), "{", `{"more":1,`, 1)), "malformed"},
		"key in other case": {answering(200, strings.Replace(good("x", `{}`), "operation", "Operation", 1)), "malformed"},
		"key twice":         {answering(200, strings.Replace(good("x", `{}`), "{", `{"operation":"x",`, 1)), "malformed"},
		"trailing text":     {answering(200, good("x", `{}`)+"{}"), "malformed"},
		"not JSON":          {answering(200, "<html>"), "malformed"},
		"too long":          {answering(200, good("x", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`)), "malformed"},
		"201":               {answering(201, good("x", `{}`)), "malformed"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "malformed"},
		"400 of a proxy":       {answering(400, "<html>"), "malformed"},
		"403":                  {answering(403, `{"detail":{"code":"assertion_audience","message":"m"}}`), "refused 403 assertion_audience"},
		"409":                  {answering(409, `{"detail":{"code":"release_generation_mismatch","message":"m"}}`), "refused 409 release_generation_mismatch"},
		"404 of the dispatch":  {answering(404, `{"detail":"Not Found"}`), "refused 404 "},
		"422":                  {answering(422, `{"detail":[{"type":"t","loc":["body"],"msg":"m"}]}`), "refused 422 "},
		"502 crashed":          {answering(502, `{"detail":{"code":"worker_crashed","message":"m"}}`), "unreachable 502 worker_crashed"},
		"503 without a detail": {answering(503, "down"), "unreachable 503 "},
		"dropped":              {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "unreachable 0 "},
		"good":                 {answering(200, good("x", `{}`)), "answered"},
	} {
		d, client, _ := newDoor(t)
		d.answer = c.answer
		_, err := client.Call(t.Context(), Command{Script: script, Generation: generation, Subject: "s", Operation: "x"})
		if got := describe(err); got != c.want {
			t.Errorf("%s: got %q (%v), want %q", what, got, err, c.want)
		}
		if n := d.requests(); n != 1 {
			t.Errorf("%s: %d requests were sent, want 1", what, n)
		}
	}
}

func describe(err error) string {
	if e, ok := errors.AsType[*RefusedError](err); ok {
		return fmt.Sprintf("refused %d %s", e.Status, e.Code)
	}
	if e, ok := errors.AsType[*UnreachableError](err); ok {
		return fmt.Sprintf("unreachable %d %s", e.Status, e.Code)
	}
	if _, ok := errors.AsType[*MalformedError](err); ok {
		return "malformed"
	}
	if err != nil {
		return err.Error()
	}
	return "answered"
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	client, err := NewClient("http://"+address, newSigner(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AccessPolicy(t.Context(), script, generation, "system:edge-worker-deploy")
	if got := describe(err); got != "unreachable 0 " {
		t.Fatalf("got %q", got)
	}
	for _, gateway := range []string{"", "ftp://x", "http://", "http://user:pw@x", "http://x?y", "::"} {
		if _, err := NewClient(gateway, newSigner(t)); err == nil {
			t.Errorf("gateway %q was taken", gateway)
		}
	}
}

func TestAccessPolicyIsDecodedStrictly(t *testing.T) {
	t.Parallel()
	fresh := `{"api_key_configured":false,"api_key_last_four":null,"ip_allowlist":[],"mode":"private","revision":0,"updated_at":null}`
	d, client, _ := newDoor(t)
	ask := func(policy string) (AccessPolicy, error) {
		d.answer = answering(200, good(AccessPolicyGet, `{"policy":`+policy+`}`))
		return client.AccessPolicy(t.Context(), script, generation, "system:edge-worker-deploy")
	}
	policy, err := ask(fresh)
	if err != nil || policy.Mode != "private" || policy.Revision != 0 || policy.UpdatedAt != nil || policy.APIKeyLastFour != nil {
		t.Fatalf("%+v %v", policy, err)
	}
	set := `{"api_key_configured":true,"api_key_last_four":"ab12","ip_allowlist":["10.0.0.0/8"],"mode":"api_key","revision":3,"updated_at":"2026-11-30T10:00:00Z"}`
	policy, err = ask(set)
	if err != nil || *policy.APIKeyLastFour != "ab12" || policy.UpdatedAt.Year() != 2026 || len(policy.IPAllowlist) != 1 {
		t.Fatalf("%+v %v", policy, err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(fresh), &keys); err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		without := map[string]json.RawMessage{}
		for k, v := range keys {
			if k != key {
				without[k] = v
			}
		}
		raw, _ := json.Marshal(without)
		if _, err := ask(string(raw)); describe(err) != "malformed" {
			t.Errorf("without %s: %v", key, err)
		}
	}
	for _, change := range [][2]string{
		{`"private"`, `"open"`}, {`"revision":0`, `"revision":-1`}, {`"revision":0`, `"revision":"0"`}, {`[]`, `null`},
		{`false`, `true`}, {`{"api`, `{"more":1,"api`}, {`"updated_at":null`, `"updated_at":"yesterday"`},
	} {
		if _, err := ask(strings.Replace(fresh, change[0], change[1], 1)); describe(err) != "malformed" {
			t.Errorf("%s for %s: %v", change[1], change[0], err)
		}
	}
}
