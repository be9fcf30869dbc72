package invoke

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/control"
)

// D11: inputs that are made to hurt are refused with their fault, run nothing,
// and the Worker goes on.
func TestHostileInputs(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	w := s.Deploy(program())
	w.Policy("public")
	put := func(body string, headers ...string) Answer {
		return s.Call("POST", "/w/"+w.ScriptName+"/put", body, headers...)
	}
	deep := func(n int) string { return `{"n":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for name, c := range map[string]struct {
		body   string
		status int
		text   string
	}{
		"nested to the bound": {deep(520_000), 422, `"detail"`},
		"nested in objects":   {`{"n":` + strings.Repeat(`{"a":`, 150_000) + "1" + strings.Repeat("}", 150_000) + "}", 422, `"detail"`},
		"__proto__":           {`{"n":1,"__proto__":{"admin":true}}`, 422, `"input_key_forbidden"`},
		"__proto__ below":     {`{"n":{"a":[{"__proto__":{"kind":"member"}}]}}`, 422, `"input_key_forbidden"`},
		"__proto__, escaped":  {`{"n":1,"\u005f_proto__":{"admin":true}}`, 422, `"input_key_forbidden"`},
		"over the bound":      {`{"n":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "Request body is too large"},
		"not JSON":            {`{"n":`, 422, `"json_invalid"`},
		"two values":          {`{"n":1}{"n":2}`, 422, `"json_invalid"`},
		"against the schema":  {`{"m":1}`, 422, `"schema_violation"`},
	} {
		put(c.body).is(name, c.status, c.text, "")
	}
	put(`{"n":1}`, "Content-Type", "text/plain").is("another type", 415, "application/json", "")
	// constructor and prototype are keys like any other.
	put(`{"n":{"constructor":{"prototype":{"polluted":1}}}}`).is("constructor", 200, `"puts":1`, "")
	put(`{"n":1}`).is("the Worker goes on", 200, `"input":{"n":1}`, "")
}

// D11: what a client sends in headers is no assertion, no mark and no version.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	w := s.Deploy(program())
	// A good assertion of the platform itself, signed with the real key, is no
	// token: it opens nothing at the gateway.
	caller := control.Caller{Kind: "system", Subject: "system:x", RequestID: "r"}
	genuine, err := s.Signer.SignInvoke(control.Assertion{Script: w.ScriptName, Subject: "system:x", Operation: "me", Generation: w.Generation}, caller)
	s.Must(err)
	path := "/w/" + w.ScriptName + "/me"
	s.Call("GET", path, "", "Authorization", "Bearer "+genuine).is("an assertion as a token", 401, "Not authenticated", "Bearer")
	s.Call("GET", path, "", "Authorization", "Bearer "+genuine, "Authorization", "Bearer "+s.Token(w.Tenant)).is("two tokens", 401, "Not authenticated", "Bearer")
	marks := []string{
		"X-Edge-Workers-Refusal", "access", "X-Shared-Version", "0", "X-Request-Id", "r-" + uuid.NewString(),
		"X-Caller", `{"kind":"member"}`, "Proxy-Authorization", "Bearer " + genuine,
	}
	s.Call("GET", path, "", marks...).is("marks of nobody", 401, `"sign_in_required"`, "Bearer")
	got := s.Call("GET", path, "", append(marks, "Authorization", "Bearer "+s.Token(w.Tenant))...)
	got.as("marks of a member", "member", "user:1", w.Tenant.CompanyID)
	if got.Header.Get("X-Request-Id") != marks[5] || !strings.Contains(got.Body, marks[5]) {
		t.Errorf("request id: %v, %s", got.Header, got.Body)
	}
	for _, other := range []string{"/__control", "/__invoke/me", "/__internal/context"} {
		s.Call("POST", "/w/"+w.ScriptName+other, "{}", "Authorization", "Bearer "+s.Token(w.Tenant)).is(other, 404, noOperate, "")
	}
}

// D11: the eleventh wrong key from an address does not reach the Worker; the
// author's own refusals that look the same do not count.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	s := Start(t, map[string]string{
		"EDGE_WORKERS_TRUSTED_PROXIES": "127.0.0.0/8", "EDGE_WORKERS_CLIENT_ADDRESS_HEADER": "X-Real-IP",
	})
	w := s.Deploy(program())
	key, digest := newKey()
	w.Key(digest)
	w.Policy("api_key")
	path := "/w/" + w.ScriptName
	for range 12 {
		got := s.Call("POST", path+"/put", `{"n":"refuse"}`, "X-Api-Key", key, "X-Real-IP", "203.0.113.1")
		got.is("an author's", 401, "an author's own", "")
	}
	for range 10 {
		wrong, _ := newKey()
		s.Call("GET", path+"/me", "", "X-Api-Key", wrong, "X-Real-IP", "203.0.113.1").is("wrong", 401, `"api_key_invalid"`, apiKey)
	}
	got := s.Call("GET", path+"/me", "", "X-Api-Key", key, "X-Real-IP", "203.0.113.1")
	got.is("the eleventh", 429, `"api_key_failures"`, "")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.Call("GET", path+"/me", "", "X-Api-Key", key, "X-Real-IP", "203.0.113.2").as("another address", "api_key", "", "")
	s.Call("GET", path+"/me", "", "X-Real-IP", "203.0.113.1").is("without key", 401, `"api_key_required"`, apiKey)
	s.Call("GET", path+"/me", "", "Authorization", "Bearer "+s.Token(w.Tenant), "X-Api-Key", key, "X-Real-IP", "203.0.113.1").as("a member", "member", "user:1", w.Tenant.CompanyID)
}
