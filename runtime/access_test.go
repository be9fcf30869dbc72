package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/builder"
)

// The keys of the tests; what is stored and signed is their SHA-256.
const (
	workerKey    = "the Worker's key"
	operationKey = "the operation's key"
	wrongKey     = "no key of this Worker"
)

// calling is who calls, as the gateway would sign it.
type calling map[string]any

func caller(kind string) calling {
	return calling{"kind": kind, "sub": kind + ":1", "company_id": "c1", "department_id": "d1", "roles": []string{}, "request_id": "req-1"}
}

func (c calling) with(key string, value any) calling {
	out := calling{}
	for k, v := range c {
		out[k] = v
	}
	out[key] = value
	return out
}

func keyed(key string) calling { return caller("api_key").with("api_key_sha256", sha(key)) }

// invokeAs is invoke for a certain caller.
func (b *built) invokeAs(t testing.TB, w *worker, who calling, op, input string) answer {
	t.Helper()
	a := b.assertion("invoke", op, input)
	a.claims["caller"] = map[string]any(who)
	return w.do(t, "POST", "/__invoke/"+op, a.bearer(t), strings.NewReader(input))
}

const (
	notFound     = `404 access {"detail":"Operation not found"}`
	signIn       = `401 access {"detail":{"code":"sign_in_required","message":"The operation is for signed-in members only"}}`
	keyRequired  = `401 access {"detail":{"code":"api_key_required","message":"The operation needs an API key"}}`
	keyInvalid   = `401 access {"detail":{"code":"api_key_invalid","message":"The API key is not valid for the operation"}}`
	wrongAddress = `403 access {"detail":{"code":"address_not_allowed","message":"Calls from this address are not allowed"}}`
)

func said(a answer) string {
	return strings.Join(strings.Fields(fmt.Sprint(a.status, " ", a.refusal, " ", a.body)), " ")
}

// ran is the answer of the operation that tells its caller.
func ran(kind, sub string) string { return fmt.Sprintf(`200 {"kind":%q,"sub":%q}`, kind, sub) }

func whoami(t testing.TB) *built {
	t.Helper()
	return files(t, `[{"id":"me","method":"POST","path":"/me","input_schema":{"type":["object","null"]}}]`, map[string]string{
		"index.js": `export default { me: (_, ctx) => ({ kind: ctx.caller.kind, sub: ctx.caller.sub }) };`})
}

// D11: the operation's setting decides, else the Worker's policy.
func TestWhoMayInvoke(t *testing.T) {
	t.Parallel()
	b := whoami(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	gen := b.out.ReleaseGeneration
	policyRevision, settingsRevision := 0, 0
	mutate := func(op, payload string, revision *int) {
		t.Helper()
		tell(t, b, w, []step{{op, payload, `{"conflict":false,…`}})
		*revision++
	}
	callers := map[string]calling{
		"member": caller("member"), "member with a wrong key": caller("member").with("api_key_sha256", sha(wrongKey)), "system": caller("system"),
		"nobody": caller("public"), "worker key": keyed(workerKey), "operation key": keyed(operationKey), "wrong key": keyed(wrongKey),
		"says api_key": caller("api_key"), "null key": caller("api_key").with("api_key_sha256", nil),
	}
	passes := func(name, kind string) string {
		switch {
		case kind != "":
			return ran(kind, map[string]string{"public": "", "api_key": "api_key:1"}[kind])
		case name == "system":
			return ran("system", "system:1")
		default:
			return ran("member", "member:1")
		}
	}
	// want: what each caller gets; members and the system pass unless it is said otherwise.
	all := func(refusal string) map[string]string {
		out := map[string]string{}
		for name := range callers {
			out[name] = refusal
		}
		out["member"], out["member with a wrong key"], out["system"] = "", "", ""
		return out
	}
	withKeys := func(good ...string) map[string]string {
		out := all(keyInvalid)
		for _, name := range []string{"nobody", "says api_key", "null key"} {
			out[name] = keyRequired
		}
		for _, name := range good {
			out[name] = "api_key"
		}
		return out
	}
	open := func(good ...string) map[string]string {
		out := all("public")
		for _, name := range good {
			out[name] = "api_key"
		}
		return out
	}
	nowhere := map[string]string{}
	for name := range callers {
		nowhere[name] = notFound
	}
	cases := []struct {
		mode, access      string
		workerKey, ownKey bool
		want              map[string]string
	}{
		{"private", "", false, false, all(signIn)},
		{"private", "", true, true, all(signIn)},
		{"api_key", "", false, false, withKeys()},
		{"api_key", "", true, false, withKeys("worker key")},
		{"public", "", true, false, open("worker key")},
		{"private", "inherit", true, true, all(signIn)},
		{"api_key", "inherit", true, true, withKeys("worker key")},
		{"public", "private", true, true, all(signIn)},
		{"private", "api_key", false, false, withKeys()},
		{"private", "api_key", true, false, withKeys("worker key")},
		{"public", "api_key", true, true, withKeys("operation key")},
		{"private", "api_key", false, true, withKeys("operation key")},
		{"private", "public", true, true, open("operation key")},
		{"public", "disabled", true, true, nowhere},
		{"private", "disabled", false, false, nowhere},
	}
	for _, c := range cases {
		mutate("access_policy.replace", fmt.Sprintf(`{"baseRevision":%d,"ipAllowlist":[],"mode":%q}`, policyRevision, c.mode), &policyRevision)
		if c.workerKey {
			mutate("access_policy.api_key.rotate", fmt.Sprintf(`{"baseRevision":%d,"keyDigest":%q,"lastFour":"abcd"}`, policyRevision, sha(workerKey)), &policyRevision)
		} else if got := b.either(t, w, "access_policy.api_key.revoke", fmt.Sprintf(`{"baseRevision":%d}`, policyRevision)); strings.Contains(got.body, `"revoked":true`) {
			policyRevision++
		}
		if c.access == "" {
			mutate("operation_settings.replace", wanted("baseRevision", settingsRevision, gen, "null", `{}`), &settingsRevision)
		} else {
			mutate("operation_settings.replace", wanted("baseRevision", settingsRevision, gen, "null",
				`{"me":{"access":"`+c.access+`","service_account_id":null}}`), &settingsRevision)
		}
		if c.ownKey && c.access != "" {
			mutate("operation_settings.api_key.rotate", rotate(settingsRevision, "me", sha(operationKey), "abcd"), &settingsRevision)
		} else if got := b.either(t, w, "operation_settings.api_key.revoke", revoke(settingsRevision, "me")); strings.Contains(got.body, `"revoked":true`) {
			settingsRevision++
		}
		for name, who := range callers {
			want := c.want[name]
			if !strings.HasPrefix(want, "4") {
				want = passes(name, want)
			}
			if got := said(b.invokeAs(t, w, who, "me", "")); got != want {
				t.Errorf("%+v: %s: got %s, want %s", c, name, got, want)
			}
		}
	}
}

// Who may not invoke learns nothing of the operation, and the refusal cannot be
// taken for the Worker's own.
func TestAccessComesBeforeTheInput(t *testing.T) {
	t.Parallel()
	b := whoami(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	for _, input := range []string{`1`, `{`, `{"__proto__":1}`} {
		if got := said(b.invokeAs(t, w, caller("public"), "me", input)); got != signIn {
			t.Errorf("%s: %s", input, got)
		}
		if got := b.invokeAs(t, w, caller("member"), "me", input); got.status != 422 {
			t.Errorf("%s, a member: %v", input, got)
		}
	}
}

// The list is compared with the signed address only; headers say nothing.
func TestAddressAllowlist(t *testing.T) {
	t.Parallel()
	b := whoami(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{{"access_policy.replace",
		`{"baseRevision":0,"ipAllowlist":["192.0.2.0/25","2001:db8:0:8000::/49","203.0.113.7/32"],"mode":"public"}`, `{"conflict":false,…`}})
	for address, inside := range map[string]bool{
		"192.0.2.0": true, "192.0.2.127": true, "192.0.2.128": false, "192.0.3.0": false, "::ffff:192.0.2.1": true, "::ffff:c000:201": true,
		"::192.0.2.1": false, "203.0.113.7": true, "203.0.113.6": false, "2001:db8:0:8000::": true, "2001:DB8:0:ffff::1": true,
		"2001:db8:0:7fff:ffff::": false, "2001:db8:1:8000::": false, "::": false, "127.0.0.1": false,
	} {
		for _, kind := range []string{"public", "member", "api_key"} {
			got := b.invokeAs(t, w, caller(kind).with("client_address", address), "me", "")
			if (got.status == 200) != inside || (!inside && said(got) != wrongAddress) {
				t.Errorf("%s, %s: %v", address, kind, got)
			}
		}
	}
	// Without an address nobody is inside; the system has none and needs none.
	for _, who := range []calling{caller("public"), caller("member"), caller("public").with("client_address", nil)} {
		if got := said(b.invokeAs(t, w, who, "me", "")); got != wrongAddress {
			t.Errorf("no address: %s", got)
		}
	}
	if got := b.invokeAs(t, w, caller("system"), "me", ""); got.status != 200 {
		t.Errorf("system: %v", got)
	}
	if got := said(b.invokeAs(t, w, keyed(wrongKey).with("client_address", "192.0.2.1"), "me", "")); got != ran("public", "") {
		t.Errorf("inside, with a wrong key: %s", got)
	}
}

// A caller chooses the headers of the request but not the claims.
func TestHeadersOpenNothing(t *testing.T) {
	t.Parallel()
	b := whoami(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":["192.0.2.0/24"],"mode":"api_key"}`, `{"conflict":false,…`},
		{"access_policy.api_key.rotate", `{"baseRevision":1,"keyDigest":"` + sha(workerKey) + `","lastFour":"abcd"}`, `{"conflict":false,…`},
	})
	spoofed := map[string]string{
		"X-Forwarded-For": "192.0.2.1", "CF-Connecting-IP": "192.0.2.1", "X-Real-IP": "192.0.2.1", "Forwarded": "for=192.0.2.1", "X-Client-Address": "192.0.2.1",
		"X-API-Key": workerKey, "X-Edge-Key-Digest": sha(workerKey), "X-Shared-Version": "0", "X-Edge-Workers-Refusal": "",
	}
	for _, c := range []struct {
		who  calling
		want string
	}{
		{caller("public"), wrongAddress},
		{caller("public").with("client_address", "198.51.100.1"), wrongAddress},
		{caller("public").with("client_address", "192.0.2.9"), keyRequired},
		{keyed(wrongKey).with("client_address", "192.0.2.9"), keyInvalid},
		{keyed(workerKey).with("client_address", "192.0.2.9"), ran("api_key", "api_key:1")},
	} {
		a := b.assertion("invoke", "me", "")
		a.claims["caller"] = map[string]any(c.who)
		if got := said(w.doWith(t, "/__invoke/me", a.bearer(t), spoofed)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.who, got, c.want)
		}
	}
}

// A change holds from the next invocation on, and after a restart.
func TestAccessSurvivesRestart(t *testing.T) {
	t.Parallel()
	b := whoami(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	tell(t, b, w, []step{
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":[],"mode":"public"}`, `{"conflict":false,…`},
		{"operation_settings.replace", wanted("baseRevision", 0, b.out.ReleaseGeneration, "null", `{"me":{"access":"disabled","service_account_id":null}}`), `{"conflict":false,…`},
	})
	for range 2 {
		if got := said(b.invokeAs(t, w, caller("member"), "me", "")); got != notFound {
			t.Errorf("disabled: %s", got)
		}
		w.kill()
		w = mustStart(t, b.out.Bundle, storage)
	}
	b.mutate(t, w, "operation_settings.replace", uuid.NewString(), wanted("baseRevision", 1, b.out.ReleaseGeneration, "null", `{}`))
	if got := said(b.invokeAs(t, w, caller("public"), "me", "")); got != ran("public", "") {
		t.Errorf("inherit: %s", got)
	}
}

// D8, D11: the access policy holds in every release; operation settings are of v2.8.
func TestOlderPoliciesObeyTheAccessPolicy(t *testing.T) {
	t.Parallel()
	storage := t.TempDir()
	now := settingsProject(t, "")
	w := mustStart(t, now.out.Bundle, storage)
	tell(t, now, w, []step{
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":["192.0.2.0/24"],"mode":"api_key"}`, `{"conflict":false,…`},
		{"access_policy.api_key.rotate", `{"baseRevision":1,"keyDigest":"` + sha(workerKey) + `","lastFour":"abcd"}`, `{"conflict":false,…`},
	})
	for _, policy := range builder.Policies() {
		w.kill()
		b := policyOf(t, policy)
		w = mustStart(t, b.out.Bundle, storage)
		for _, c := range []struct {
			who  calling
			want string
		}{
			{keyed(workerKey), wrongAddress},
			{caller("public").with("client_address", "192.0.2.1"), keyRequired},
			{keyed(wrongKey).with("client_address", "192.0.2.1"), keyInvalid},
			{keyed(workerKey).with("client_address", "192.0.2.1"), "200 1"},
		} {
			if got := said(b.invokeAs(t, w, c.who, "one", "")); got != c.want {
				t.Errorf("%s, %v: got %s, want %s", policy, c.who, got, c.want)
			}
		}
	}
}
