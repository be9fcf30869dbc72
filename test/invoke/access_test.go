package invoke

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// program has two operations that tell their caller, and one with a schema.
func program() map[string]string {
	return map[string]string{
		"worker.json": `{"schema_version":1,"name":"access","language":"javascript","entry":"index.js","compatibility_date":"2026-01-01","operations":[
			{"id":"me","method":"GET","path":"/me"},
			{"id":"other","method":"GET","path":"/other"},
			{"id":"put","method":"POST","path":"/put","input_schema":{"type":"object","required":["n"]}}]}`,
		"index.js": `import { OperationError } from "@teamsync/edge-worker";
const me = (_, ctx) => ({ caller: ctx.caller, requestId: ctx.requestId });
let puts = 0;
export default { me, other: me, put: (input) => {
  if (input.n === "refuse") throw new OperationError(401, "api_key_invalid", "an author's own");
  return { puts: ++puts, input };
} };
`,
	}
}

func newKey() (string, string) {
	key := ("ewk_" + uuid.NewString() + uuid.NewString())[:47]
	return key, canonical.SHA256([]byte(key))
}

// seen is what the operation saw of its caller.
type seen struct {
	Caller struct {
		Kind, Sub, CompanyID, DepartmentID string
		Roles                              []string
	}
	RequestID string
}

// as checks an answer of the operation `me`.
func (a Answer) as(name, kind, sub, company string) {
	a.t.Helper()
	var got seen
	if a.Status != 200 || json.Unmarshal([]byte(a.Body), &got) != nil {
		a.t.Errorf("%s: %d %s", name, a.Status, a.Body)
		return
	}
	if c := got.Caller; c.Kind != kind || c.Sub != sub || c.CompanyID != company || (company == "" && c.DepartmentID+strings.Join(c.Roles, "") != "") {
		a.t.Errorf("%s: the Worker saw %s", name, a.Body)
	}
	for _, hidden := range []string{"ewk_", "127.0.0.1", "sha256", "address"} {
		if strings.Contains(a.Body, hidden) {
			a.t.Errorf("%s: the Worker saw %s in %s", name, hidden, a.Body)
		}
	}
}

// is checks a refusal.
func (a Answer) is(name string, status int, text, challenge string) {
	a.t.Helper()
	if a.Status != status || !strings.Contains(a.Body, text) || a.Header.Get("WWW-Authenticate") != challenge || a.Header.Get("X-Edge-Workers-Refusal") != "" {
		a.t.Errorf("%s: %d %s, challenge %q", name, a.Status, a.Body, a.Header.Get("WWW-Authenticate"))
	}
}

const (
	apiKey    = `ApiKey header="X-Api-Key"`
	noWorker  = `{"detail":"Department Worker not found"}`
	noOperate = `{"detail":"Operation not found"}`
)

// D4, D11: modes, keys, operations' own settings and who is what, on real
// workerd through the whole way in.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	w, foreign := s.Deploy(program()), s.Deploy(program())
	base := "/w/" + w.ScriptName
	key, digest := newKey()
	theirs, theirDigest := newKey()
	operationKey, operationDigest := newKey()
	w.Key(digest)
	foreign.Key(theirDigest)
	member, stranger := "Bearer "+s.Token(w.Tenant), "Bearer "+s.Token(foreign.Tenant, auth.CompanyAdmin)
	colleague := "Bearer " + s.Token(models.Tenant{CompanyID: w.Tenant.CompanyID, DepartmentID: "colleagues"})
	me := func(headers ...string) Answer { return s.Call("GET", base+"/me", "", headers...) }

	// private, the default
	me("Authorization", member).as("member", "member", "user:1", w.Tenant.CompanyID)
	me("Authorization", colleague).as("colleague", "member", "user:1", w.Tenant.CompanyID)
	me("Authorization", member, "X-Api-Key", theirs).as("member with a wrong key", "member", "user:1", w.Tenant.CompanyID)
	me().is("nobody", 401, `"sign_in_required"`, "Bearer")
	me("X-Api-Key", key).is("a key", 401, `"sign_in_required"`, "Bearer")
	unknown := "/w/" + models.ScriptName("no", "body")
	for name, path := range map[string]string{"me": "/me", "no operation": "/nothing", "no such path": "/me/more"} {
		for _, headers := range [][]string{{"Authorization", stranger}, {"Authorization", stranger, "X-Api-Key", key}} {
			got, want := s.Call("GET", base+path, "", headers...), s.Call("GET", unknown+path, "", headers...)
			if got.Status != 404 || got.Body != noWorker || got.Body != want.Body || got.Header.Get("WWW-Authenticate") != "" || len(got.Header) != len(want.Header) {
				t.Errorf("%s of a stranger: %d %s %v, of no Worker %d %s %v", name, got.Status, got.Body, got.Header, want.Status, want.Body, want.Header)
			}
		}
	}

	w.Policy("api_key")
	me("X-Api-Key", key).as("a key", "api_key", "", "")
	me("X-Api-Key", key, "Authorization", stranger).as("a stranger with the key", "api_key", "", "")
	me("X-Api-Key", key, "Authorization", member).as("a member with the key", "member", "user:1", w.Tenant.CompanyID)
	me().is("no key", 401, `"api_key_required"`, apiKey)
	me("X-Api-Key", theirs).is("the key of another Worker", 401, `"api_key_invalid"`, apiKey)
	me("X-Api-Key", key+"x").is("a malformed key", 401, `"api_key_invalid"`, apiKey)
	me("X-Api-Key", key, "X-Api-Key", key).is("two keys", 401, `"api_key_invalid"`, apiKey)
	me("X-Api-Key", digest).is("the digest", 401, `"api_key_invalid"`, apiKey)
	me("Authorization", stranger).is("a stranger without key", 404, noWorker, "")
	me("Authorization", stranger, "X-Api-Key", theirs).is("a stranger with another key", 404, noWorker, "")
	me("Authorization", "Bearer "+key).is("the key as a token", 401, "Not authenticated", "Bearer")

	w.Policy("public")
	me().as("nobody", "public", "", "")
	me("Authorization", stranger).as("a stranger", "public", "", "")
	me("X-Api-Key", key).as("a key", "api_key", "", "")
	me("X-Api-Key", theirs).as("a wrong key", "public", "", "")

	// operations of their own mind
	w.Operations(map[string]string{"me": "disabled", "other": "api_key"})
	w.OperationKey("other", operationDigest)
	for name, headers := range map[string][]string{"nobody": nil, "member": {"Authorization", member}, "key": {"X-Api-Key", key}} {
		me(headers...).is("disabled, "+name, 404, noOperate, "")
	}
	s.Call("POST", "/worker/invoke/me", "", "Authorization", member).is("disabled, direct", 404, noOperate, "")
	other := func(headers ...string) Answer { return s.Call("GET", base+"/other", "", headers...) }
	other("X-Api-Key", operationKey).as("the operation's key", "api_key", "", "")
	other("X-Api-Key", key).is("the Worker's key", 401, `"api_key_invalid"`, apiKey)
	s.Call("POST", base+"/put", `{"n":1}`).is("the third is open", 200, `"puts":1`, "")

	for _, secret := range []string{key, theirs, operationKey, digest, operationDigest} {
		if strings.Contains(s.Log.String(), secret) {
			t.Error("a log line holds a key or its digest")
		}
	}
	if !strings.Contains(s.Log.String(), "/w/:script_name/*") {
		t.Error("the log holds nothing of the calls")
	}
}

// D11: the allow list is compared with the address that a trusted proxy names,
// for members too; what the client writes itself counts for nothing.
func TestAllowList(t *testing.T) {
	t.Parallel()
	s := Start(t, map[string]string{
		"EDGE_WORKERS_TRUSTED_PROXIES": "127.0.0.0/8,10.0.0.0/8", "EDGE_WORKERS_CLIENT_ADDRESS_HEADER": "X-Forwarded-For",
	})
	w := s.Deploy(program())
	w.Policy("public", "203.0.113.0/24", "2001:db8::/32")
	member := "Bearer " + s.Token(w.Tenant)
	for _, c := range []struct {
		name    string
		forward []string
		in      bool
	}{
		{"in it", []string{"203.0.113.9"}, true},
		{"in it, mapped", []string{"::ffff:203.0.113.9"}, true},
		{"in it, IPv6", []string{"2001:db8::7"}, true},
		{"behind another proxy", []string{"203.0.113.9, 10.0.0.1"}, true},
		{"outside", []string{"198.51.100.1"}, false},
		{"written by the client", []string{"203.0.113.9, 198.51.100.1"}, false},
		{"written by the client, in a line before", []string{"203.0.113.9", "198.51.100.1"}, false},
		{"malformed", []string{"203.0.113.9:80"}, false},
		{"missing", nil, false},
	} {
		var headers []string
		for _, line := range c.forward {
			headers = append(headers, "X-Forwarded-For", line)
		}
		headers = append(headers, "X-Real-Ip", "203.0.113.1", "Forwarded", "for=203.0.113.1")
		for who, got := range map[string]Answer{
			"nobody":         s.Call("GET", "/w/"+w.ScriptName+"/me", "", headers...),
			"member":         s.Call("GET", "/w/"+w.ScriptName+"/me", "", append(headers, "Authorization", member)...),
			"member, direct": s.Call("POST", "/worker/invoke/me", "", append(headers, "Authorization", member)...),
		} {
			if c.in {
				got.is(c.name+", "+who, 200, `"caller"`, "")
			} else {
				got.is(c.name+", "+who, 403, `"address_not_allowed"`, "")
			}
		}
	}
}

// D11: without trusted proxies the address is the connection's, whatever the
// client says.
func TestSpoofedAddress(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	w := s.Deploy(program())
	call := func() Answer {
		return s.Call("GET", "/w/"+w.ScriptName+"/me", "", "X-Forwarded-For", "203.0.113.9", "X-Real-IP", "203.0.113.9", "CF-Connecting-IP", "203.0.113.9", "Forwarded", "for=203.0.113.9")
	}
	w.Policy("public", "203.0.113.0/24")
	call().is("spoofed", 403, `"address_not_allowed"`, "")
	w.Policy("public", "127.0.0.1/32", "::1/128")
	call().is("the connection's", 200, `"caller"`, "")
}
