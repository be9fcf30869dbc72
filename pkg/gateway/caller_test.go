package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
)

const goodKey = "ewk_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO-_"

// D11: a key is its digest from the start; what cannot be a key has a digest
// that no key has.
func TestKeyDigest(t *testing.T) {
	t.Parallel()
	digest := func(values ...string) string { return gateway.KeyDigest(http.Header{"X-Api-Key": values}) }
	if got := digest(); got != "" {
		t.Errorf("no key: %q", got)
	}
	if len(goodKey) != 47 || digest(goodKey) != canonical.SHA256([]byte(goodKey)) {
		t.Errorf("a key of %d: %q", len(goodKey), digest(goodKey))
	}
	bad := digest("")
	if !canonical.IsSHA256(bad) || bad == canonical.SHA256(nil) {
		t.Errorf("an empty key: %q", bad)
	}
	for _, values := range [][]string{
		{goodKey + "a"}, {goodKey[:46]}, {goodKey + " "}, {goodKey + "\n"}, {"EWK_" + goodKey[4:]}, {"ewk_" + strings.Repeat("+", 43)},
		{goodKey + ", " + goodKey}, {goodKey, goodKey}, {goodKey, ""}, {strings.Repeat("a", 1<<20)},
	} {
		if got := digest(values...); got != bad {
			t.Errorf("%.60q: %s", values, got)
		}
	}
}

// refusing answers as the runtime refuses a caller.
func refusing(status int, code string) http.HandlerFunc {
	return answering(status, coded(code), doorHeader, "access")
}

// who is a caller of a test.
func (h *host) who(change func(*gateway.Caller)) gateway.Caller {
	c := h.caller
	c.ClientAddress = "203.0.113." + fmt.Sprint(1+len(h.requests())%250)
	change(&c)
	return c
}

func (h *host) stranger(key string) gateway.Caller {
	return h.who(func(c *gateway.Caller) {
		c.CompanyID, c.DepartmentID, c.Roles, c.APIKeySHA256 = "other", "theirs", []string{"company_admin"}, key
	})
}

func (h *host) anonymous(key string) gateway.Caller {
	return h.who(func(c *gateway.Caller) { c.APIKeySHA256 = key }).Anonymous()
}

// D4, D11: what a Worker learns of its caller. A member stays one, with their
// key beside; of everyone else it learns the key and the address, and nothing
// of where they are signed in.
func TestWhoTheWorkerSees(t *testing.T) {
	h := one(t)
	key := canonical.SHA256([]byte(goodKey))
	sent := func(c gateway.Caller) gateway.Caller {
		in := h.call("POST", "/say", "{}")
		in.Caller = c
		_, err := h.routed(t.Context(), in)
		must(t, err)
		return h.signer.last.Caller
	}
	member := h.who(func(c *gateway.Caller) { c.APIKeySHA256 = key })
	if got := sent(member); got.Kind != "member" || got.Subject != "user:x" || got.APIKeySHA256 != key || got.ClientAddress != member.ClientAddress {
		t.Errorf("member: %+v", got)
	}
	for name, c := range map[string]gateway.Caller{
		"anonymous": h.anonymous(key), "another company's": h.stranger(key), "without key": h.anonymous(""),
		"of no company": h.who(func(c *gateway.Caller) { c.CompanyID = "" }),
	} {
		got := sent(c)
		if got.Kind != "public" || got.Subject+got.CompanyID+got.DepartmentID != "" || got.Roles == nil || len(got.Roles) != 0 ||
			got.APIKeySHA256 != c.APIKeySHA256 || got.ClientAddress != c.ClientAddress || got.RequestID != "req-1" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// D4: to a member of another company a Worker that does not let them in does
// not exist, whatever they call and whatever happens; one that does is there.
func TestStrangers(t *testing.T) {
	h := one(t)
	call := func(method, path string) error {
		in := h.call(method, path, "{}")
		in.Caller = h.stranger(canonical.SHA256([]byte(goodKey)))
		_, err := h.routed(t.Context(), in)
		return err
	}
	must(t, call("POST", "/say"))
	asked := len(h.requests())
	for _, c := range [][2]string{{"POST", "/nothing"}, {"DELETE", "/say"}} {
		refused(t, c[1], call(c[0], c[1]), fault.NotFound, "", "Department Worker not found")
	}
	if len(h.requests()) != asked {
		t.Error("a call without an operation was sent")
	}
	for name, answer := range map[string]http.HandlerFunc{
		"signed in": refusing(401, "sign_in_required"), "no key": refusing(401, "api_key_required"), "wrong key": refusing(401, "api_key_invalid"),
		"address": refusing(403, "address_not_allowed"), "disabled": answering(404, `{"detail":"Operation not found"}`, doorHeader, "access"),
		"crashed": answering(502, coded("worker_crashed"), doorHeader, "host"), "changing": answering(409, coded("release_generation_mismatch"), doorHeader, "door"),
		"overloaded": answering(503, coded("worker_overloaded")), "no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		h.say(answer)
		refused(t, name, call("POST", "/say"), fault.NotFound, "", "Department Worker not found")
	}
	h.say(answering(409, coded("order_not_open"))) // the Worker's own: it has let them in
	in := h.call("POST", "/say", "{}")
	in.Caller = h.stranger("")
	if got, err := h.routed(t.Context(), in); err != nil || got.Status != 409 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A caller without a place in the company learns what is wrong with an input
// only when the Worker has let them in: until then it is asked with an input
// that it cannot run.
func TestProblemsAreToldAfterAccess(t *testing.T) {
	h := one(t)
	faulty := map[string]func(*gateway.Call){
		"media type": func(c *gateway.Call) { c.Header = http.Header{"Content-Type": {"text/plain"}} },
		"JSON":       func(c *gateway.Call) { c.Body = []byte("{") },
		"conflict":   func(c *gateway.Call) { c.Body, c.Query = []byte(`{"a":1}`), "a=2" },
		"query":      func(c *gateway.Call) { c.Query = "%zz" },
		"too large": func(c *gateway.Call) {
			c.Body, c.Query = []byte(`{"a":"`+strings.Repeat("a", gateway.MaxInput-10)+`"}`), "b=12"
		},
	}
	for name, change := range faulty {
		call := func(c gateway.Caller) (whole, error) {
			in := h.call("POST", "/say", "{}")
			in.Caller = c
			change(&in)
			return h.routed(t.Context(), in)
		}
		h.say(refusing(401, "sign_in_required"))
		before := len(h.requests())
		if got, err := call(h.anonymous("")); err != nil || got.Status != 401 || got.Challenge != "Bearer" {
			t.Errorf("%s, anonymous: %+v, %v", name, got, err)
		}
		_, err := call(h.stranger(""))
		refused(t, name+", a stranger", err, fault.NotFound, "", "Department Worker not found")
		h.say(answering(422, `{"detail":[{"type":"json_invalid","loc":["body"],"msg":"m"}]}`))
		for _, c := range []gateway.Caller{h.anonymous(""), h.stranger("")} {
			_, err = call(c)
			var f *fault.Error
			if !errors.As(err, &f) || (f.Kind != fault.Invalid && f.Kind != fault.UnsupportedType && f.Kind != fault.TooLarge) {
				t.Errorf("%s, let in: %v", name, err)
			}
		}
		sent := h.requests()[before:]
		for _, s := range sent {
			if s.body != "!" {
				t.Errorf("%s: the Worker got %.20s", name, s.body)
			}
		}
		_, err = call(h.caller) // a member is told at once
		if err == nil || len(sent) != 4 || len(h.requests()) != before+4 {
			t.Errorf("%s, a member: %v, %d requests", name, err, len(h.requests())-before)
		}
	}
}

// Refusals of the caller pass as they are, with what could help; the door's
// and those that no runtime gives never do.
func TestRefusedCallers(t *testing.T) {
	h := one(t)
	call := func() (whole, error) {
		in := h.call("POST", "/say", "{}")
		in.Caller = h.anonymous("")
		return h.routed(t.Context(), in)
	}
	const withKey = `ApiKey header="X-Api-Key"`
	for _, c := range []struct {
		status          int
		body, challenge string
	}{
		{401, coded("sign_in_required"), "Bearer"}, {401, coded("api_key_required"), withKey}, {401, coded("api_key_invalid"), withKey},
		{403, coded("address_not_allowed"), ""}, {404, `{"detail":"Operation not found"}`, ""},
	} {
		h.say(answering(c.status, c.body, doorHeader, "access"))
		if got, err := call(); err != nil || got != (whole{c.status, c.body, c.challenge}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, answer := range []http.HandlerFunc{
		answering(401, coded("sign_in_required"), doorHeader, "door"), answering(200, `{}`, doorHeader, "access"),
		answering(500, coded("sign_in_required"), doorHeader, "access"), answering(401, "no JSON", doorHeader, "access"),
	} {
		h.say(answer)
		_, err := call()
		refused(t, "no refusal", err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	}
	h.say(answering(401, coded("api_key_invalid"))) // an author's own
	if got, err := call(); err != nil || got.Challenge != "" || got.Status != 401 {
		t.Errorf("an author's: %+v, %v", got, err)
	}
}

// D11: the eleventh wrong key does not reach the Worker; members, callers
// without a key and other addresses do, and a good key changes no count.
func TestFailedKeysAreLimited(t *testing.T) {
	h := one(t)
	key, address := canonical.SHA256([]byte(uuid.NewString())), uuid.NewString()
	call := func(c gateway.Caller) (whole, error) {
		in := h.call("POST", "/say", "{}")
		in.Caller = c
		in.Caller.ClientAddress = address
		return h.routed(t.Context(), in)
	}
	wrong := refusing(401, "api_key_invalid")
	for i := range 10 {
		h.say(wrong)
		got, err := call(h.anonymous(key))
		if err != nil || got.Status != 401 {
			t.Fatalf("try %d: %+v, %v", i, got, err)
		}
		h.say(nil)
		_, err = call(h.anonymous(canonical.SHA256([]byte("good"))))
		if i < 9 {
			must(t, err)
		}
		h.say(answering(401, coded("api_key_invalid"))) // an author's own counts for nothing
		_, _ = call(h.anonymous(key))
		h.say(wrong)
		_, err = call(h.who(func(c *gateway.Caller) { c.APIKeySHA256 = key }))
		must(t, err)
		_, err = call(h.anonymous(""))
		must(t, err)
	}
	h.say(nil)
	before := len(h.requests())
	_, err := call(h.anonymous(key))
	refused(t, "the eleventh", err, fault.RateLimited, "api_key_failures", "Too many calls with a wrong API key; try again later")
	var limited *gateway.LimitedError
	if !errors.As(err, &limited) || limited.Wait <= 0 || limited.Wait.Minutes() > 1 {
		t.Errorf("%v", err)
	}
	_, err = call(h.stranger(key))
	refused(t, "a stranger", err, fault.NotFound, "", "Department Worker not found")
	if n := len(h.requests()); n != before {
		t.Errorf("%d refused calls reached the Worker", n-before)
	}
	_, err = call(h.anonymous(""))
	must(t, err)
	_, err = call(h.who(func(c *gateway.Caller) { c.APIKeySHA256 = key }))
	must(t, err)
	address = uuid.NewString()
	_, err = call(h.anonymous(key))
	must(t, err)
}
