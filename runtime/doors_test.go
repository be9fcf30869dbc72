package runtime_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// change makes a good assertion into another one.
type change func(*assertion)

func claim(name string, value any) change { return func(a *assertion) { a.claims[name] = value } }

func without(name string) change { return func(a *assertion) { delete(a.claims, name) } }

// inherited moves a claim to where a careless reader finds it.
func inherited(name string) change {
	return func(a *assertion) {
		for _, key := range []string{"__proto__", "constructor", "prototype"} {
			a.claims[key] = map[string]any{name: a.claims[name]}
		}
		delete(a.claims, name)
	}
}

func header(name string, value any) change { return func(a *assertion) { a.header[name] = value } }

func times(issued, expires time.Duration) change {
	return func(a *assertion) {
		now := time.Now()
		a.claims["iat"], a.claims["exp"] = now.Add(issued).Unix(), now.Add(expires).Unix()
	}
}

func signed(method jwt.SigningMethod, key any) change {
	return func(a *assertion) { a.method, a.key = method, key }
}

// refusals are the assertions that each door must refuse, and, as positive
// controls, those beside them that it must accept.
func refusals(door string) []struct {
	name   string
	change change
	status int
	code   string
} {
	other := map[string]string{"control": "invoke", "invoke": "control"}[door]
	secret := []byte(public(currentKey))
	return []struct {
		name   string
		change change
		status int
		code   string
	}{
		{"good", func(*assertion) {}, 200, ""},
		{"signed with the next key", func(a *assertion) {
			a.key, a.header["kid"] = nextKey, builder.KeyID(public(nextKey))
		}, 200, ""},
		{"forged: a foreign key under a known id", signed(jwt.SigningMethodEdDSA, foreignKey), 401, "assertion_invalid"},
		{"forged: a foreign key under its own id", func(a *assertion) {
			a.key, a.header["kid"] = foreignKey, builder.KeyID(public(foreignKey))
		}, 401, "assertion_invalid"},
		{"the id of the other key", header("kid", builder.KeyID(public(nextKey))), 401, "assertion_invalid"},
		{"no key id", header("kid", nil), 401, "assertion_invalid"},
		{"an inherited key id", header("kid", "constructor"), 401, "assertion_invalid"},
		{"algorithm none", signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), 401, "assertion_invalid"},
		{"algorithm HS256 with the public key", signed(jwt.SigningMethodHS256, secret), 401, "assertion_invalid"},
		{"algorithm named none, signed well", header("alg", "none"), 401, "assertion_invalid"},
		{"algorithm named Ed25519", header("alg", "Ed25519"), 401, "assertion_invalid"},
		{"another type", header("typ", "JOSE"), 401, "assertion_invalid"},
		{"an extra header", header("crit", []string{"exp"}), 401, "assertion_invalid"},
		{"expired", times(-70*time.Second, -10*time.Second), 401, "assertion_invalid"},
		{"expired within the skew", times(-40*time.Second, -2*time.Second), 200, ""},
		{"issued in the future", times(20*time.Second, 40*time.Second), 401, "assertion_invalid"},
		{"issued in the future within the skew", times(2*time.Second, 40*time.Second), 200, ""},
		{"not valid yet", claim("nbf", time.Now().Add(20*time.Second).Unix()), 401, "assertion_invalid"},
		{"valid from a text", claim("nbf", "0"), 401, "assertion_invalid"},
		{"valid from null", claim("nbf", nil), 401, "assertion_invalid"},
		{"valid since before", claim("nbf", time.Now().Add(-20*time.Second).Unix()), 200, ""},
		{"the longest life", times(0, 60*time.Second), 200, ""},
		{"a longer life", times(0, 61*time.Second), 401, "assertion_invalid"},
		{"no life", times(0, 0), 401, "assertion_invalid"},
		{"expiry as text", claim("exp", "9999999999"), 401, "assertion_invalid"},
		{"expiry as fraction", claim("exp", float64(time.Now().Unix())+20.5), 401, "assertion_invalid"},
		{"no expiry", without("exp"), 401, "assertion_invalid"},
		{"no issue time", without("iat"), 401, "assertion_invalid"},
		{"another issuer", claim("iss", "edge-worker"), 401, "assertion_invalid"},
		{"no subject", claim("sub", ""), 401, "assertion_invalid"},
		{"no id", without("jti"), 401, "assertion_invalid"},
		{"an id that is not a UUID", claim("jti", "1"), 401, "assertion_invalid"},
		{"the other door", claim("door", other), 401, "assertion_invalid"},
		{"no door", without("door"), 401, "assertion_invalid"},
		{"another operation", claim("op", "orders.get"), 401, "assertion_invalid"},
		{"another body", claim("bsh", canonical.SHA256([]byte("other"))), 401, "assertion_invalid"},
		{"no body hash", without("bsh"), 401, "assertion_invalid"},
		{"another audience", claim("aud", scriptName[:50]+"0"), 403, "assertion_audience"},
		{"audiences as a list", claim("aud", []string{scriptName}), 401, "assertion_invalid"},
		{"no audience", without("aud"), 401, "assertion_invalid"},
		{"another generation", claim("gen", strings.Repeat("0", 64)), 409, "release_generation_mismatch"},
		{"no generation", without("gen"), 401, "assertion_invalid"},
		{"a subject that is inherited", inherited("sub"), 401, "assertion_invalid"},
		{"a door that is inherited", inherited("door"), 401, "assertion_invalid"},
		{"a generation that is inherited", inherited("gen"), 401, "assertion_invalid"},
		{"an inherited header", func(a *assertion) {
			a.header["__proto__"], a.header["typ"] = map[string]any{"typ": "JWT"}, nil
		}, 401, "assertion_invalid"},
		{"a polluting header beside the good ones", header("__proto__", map[string]any{"alg": "none"}), 401, "assertion_invalid"},
		{"polluting claims beside the good ones", func(a *assertion) {
			for _, key := range []string{"__proto__", "constructor", "prototype"} {
				a.claims[key] = map[string]any{"gen": strings.Repeat("0", 64), "door": other}
			}
		}, 200, ""},
	}
}

func TestDoorsRefuse(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	doors := []struct{ door, op, path, body string }{
		{"control", "access_policy.get", "/__control", b.envelope(t, "access_policy.get", "{}")},
		{"invoke", "orders.list", "/__invoke/orders.list", `{}`},
	}
	for _, d := range doors {
		for _, c := range refusals(d.door) {
			t.Run(d.door+"/"+c.name, func(t *testing.T) {
				a := b.assertion(d.door, d.op, d.body)
				c.change(a)
				got := w.do(t, "POST", d.path, a.bearer(t), strings.NewReader(d.body))
				if got.status != c.status || (c.code != "" && got.code(t) != c.code) {
					t.Errorf("got %d %s, want %d %s", got.status, got.body, c.status, c.code)
				}
				if want := map[bool]string{true: "door"}[c.code != ""]; got.refusal != want {
					t.Errorf("the answer is marked %q, want %q", got.refusal, want)
				}
			})
		}
		t.Run(d.door+"/no assertion", func(t *testing.T) {
			for _, authorization := range []string{"", "Bearer ", "Bearer a.b.c", "Bearer a.b", "Basic YTpi", "Bearer " + strings.Repeat("a", 20_000)} {
				got := w.do(t, "POST", d.path, authorization, strings.NewReader(d.body))
				if got.status != 401 && got.status != 431 {
					t.Errorf("%.20q: %v", authorization, got)
				}
			}
		})
		t.Run(d.door+"/a second spelling of the signature", func(t *testing.T) {
			good := b.assertion(d.door, d.op, d.body).bearer(t)
			got := w.do(t, "POST", d.path, respell(good), strings.NewReader(d.body))
			if got.status != 401 {
				t.Errorf("respelled: %v", got)
			}
			if got = w.do(t, "POST", d.path, good, strings.NewReader(d.body)); got.status != 200 {
				t.Errorf("as signed: %v", got)
			}
		})
		t.Run(d.door+"/replayed", func(t *testing.T) {
			bearer := b.assertion(d.door, d.op, d.body).bearer(t)
			if got := w.do(t, "POST", d.path, bearer, strings.NewReader(d.body)); got.status != 200 {
				t.Fatalf("first: %v", got)
			}
			got := w.do(t, "POST", d.path, bearer, strings.NewReader(d.body))
			if got.status != 409 || got.code(t) != "assertion_replayed" || got.refusal != "door" {
				t.Errorf("second: %v", got)
			}
		})
	}
}

// respell sets a bit of the last character that base64 does not use.
func respell(bearer string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, bearer[len(bearer)-1])
	return bearer[:len(bearer)-1] + string(alphabet[last|1])
}

// An assertion whose request failed for another reason is not used up by it.
func TestSwappedBodyDoesNotUseUpTheAssertion(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	bearer := b.assertion("invoke", "orders.list", `{}`).bearer(t)
	got := w.do(t, "POST", "/__invoke/orders.list", bearer, strings.NewReader(`{"limit":"1"}`))
	if got.status != 401 {
		t.Errorf("swapped: %v", got)
	}
	got = w.do(t, "POST", "/__invoke/orders.list", bearer, strings.NewReader(`{}`))
	if got.status != 200 {
		t.Errorf("its own body: %v", got)
	}
}

// The ids that the control door has seen survive a restart.
func TestControlReplayAfterRestart(t *testing.T) {
	t.Parallel()
	b := example(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	body := b.envelope(t, "access_policy.get", "{}")
	bearer := b.assertion("control", "access_policy.get", body).bearer(t)
	if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)); got.status != 200 {
		t.Fatalf("first: %v", got)
	}
	w.kill()
	w = mustStart(t, b.out.Bundle, storage)
	if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)); got.status != 409 || got.code(t) != "assertion_replayed" {
		t.Errorf("after the restart: %v", got)
	}
	if got := b.command(t, w, "access_policy.get", "{}"); got.status != 200 {
		t.Errorf("a new assertion: %v", got)
	}
}

func TestBodyBounds(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	sized := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	cases := []struct {
		door, op, path string
		size, status   int
	}{
		{"invoke", "echo", "/__invoke/echo", 1 << 20, 200},
		{"invoke", "echo", "/__invoke/echo", 1<<20 + 1, 413},
		// Not an object, but read: the bound is not what refuses it.
		{"control", "access_policy.get", "/__control", 256 << 10, 422},
		{"control", "access_policy.get", "/__control", 256<<10 + 1, 413},
	}
	for _, c := range cases {
		body := sized(c.size)
		for name, reader := range map[string]io.Reader{
			"with a length": strings.NewReader(body),
			"chunked":       io.MultiReader(strings.NewReader(body)),
		} {
			got := w.do(t, "POST", c.path, b.assertion(c.door, c.op, body).bearer(t), reader)
			if got.status != c.status || (c.status == 413 && got.code(t) != "body_too_large") {
				t.Errorf("%s, %d bytes %s: %d %.200s", c.door, c.size, name, got.status, got.body)
			}
		}
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	bearer := b.assertion("invoke", "orders.list", "").bearer(t)
	for _, path := range []string{
		"/", "/__internal/context", "/__control/", "/__control?x=1", "/__invoke/", "/__invoke/Orders", "/__invoke/a/b",
		"/__invoke/%6Frders.list", "/orders", "/__invoke/../__internal/context", "//__control",
	} {
		got := w.do(t, "POST", path, bearer, nil)
		if got.status != 404 || got.body != `{"detail":"Not Found"}` {
			t.Errorf("%s: %v", path, got)
		}
	}
	for _, path := range []string{"/__control", "/__invoke/orders.list"} {
		got := w.do(t, "GET", path, bearer, nil)
		if got.status != 404 {
			t.Errorf("GET %s: %v", path, got)
		}
	}
	if got := w.do(t, "POST", "/__invoke/orders.list", bearer, nil); got.status != 422 {
		t.Errorf("the assertion was not good: %v", got)
	}
}

func TestCallerIsChecked(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	good := func() map[string]any {
		return map[string]any{"kind": "member", "sub": "user:1", "company_id": "c", "department_id": "d", "roles": []string{}, "request_id": "r"}
	}
	callers := map[string]any{"none": nil, "a text": "user", "a list": []string{}}
	for _, key := range []string{"kind", "sub", "company_id", "department_id", "roles", "request_id"} {
		missing, number := good(), good()
		delete(missing, key)
		number[key] = 1
		callers["no "+key], callers[key+" as number"] = missing, number
	}
	unknown := good()
	unknown["kind"] = "root"
	callers["an unknown kind"] = unknown
	for name, faulty := range map[string]any{
		"api_key_sha256": strings.ToUpper(digestA), "client_address": "10.0.0.1:443",
	} {
		text, number := good(), good()
		text[name], number[name] = faulty, 1
		callers["a faulty "+name], callers[name+" as number"] = text, number
	}
	for name, caller := range callers {
		a := b.assertion("invoke", "orders.list", "{}")
		a.claims["caller"] = caller
		if got := w.do(t, "POST", "/__invoke/orders.list", a.bearer(t), strings.NewReader("{}")); got.status != 401 {
			t.Errorf("%s: %v", name, got)
		}
	}
	a := b.assertion("invoke", "orders.list", "{}")
	a.claims["caller"] = good()
	if got := w.do(t, "POST", "/__invoke/orders.list", a.bearer(t), strings.NewReader("{}")); got.status != 200 {
		t.Errorf("the good caller: %v", got)
	}
}

// The contract's kid: the first 16 hex digits of the raw key's SHA-256.
func TestKeyID(t *testing.T) {
	t.Parallel()
	raw, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo") // RFC 8037, A.2
	if err != nil {
		t.Fatal(err)
	}
	if got := builder.KeyID(ed25519.PublicKey(raw)); got != "21fe31dfa154a261" {
		t.Errorf("kid %s", got)
	}
	if bytes.Equal(public(currentKey), public(nextKey)) {
		t.Error("the test keys are equal")
	}
}
