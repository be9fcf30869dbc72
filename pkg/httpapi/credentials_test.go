package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi"
)

// newKey makes an API key as it is shown to a manager.
func newKey() string { return ("ewk_" + uuid.NewString() + uuid.NewString())[:47] }

// D11: with which credentials a call is what, in each mode of the policy.
func TestCredentials(t *testing.T) {
	a := on(t)
	base := "/w/" + a.live().ScriptName
	good, wrong := newKey(), newKey()
	a.host.key = canonical.SHA256([]byte(good))
	foreign := models.Tenant{CompanyID: "foreign", DepartmentID: "theirs"}
	a.Provision(foreign)
	const notFound = `{"detail":"Department Worker not found"}`
	const ok = `{"ok":true}`
	bearer, apiKey := "Bearer", `ApiKey header="X-Api-Key"`
	for _, c := range []struct {
		mode, token, key string
		code             int
		body, challenge  string
	}{
		{"", a.member(), "", 200, ok, ""}, {"", a.member(), wrong, 200, ok, ""}, {"", a.member(), "no key", 200, ok, ""},
		{"", "", "", 401, refusal("sign_in_required"), bearer}, {"", "", good, 401, refusal("sign_in_required"), bearer},
		{"", a.of(foreign), "", 404, notFound, ""}, {"", a.of(foreign), good, 404, notFound, ""},
		{"api_key", "", good, 200, ok, ""}, {"api_key", a.of(foreign), good, 200, ok, ""}, {"api_key", a.member(), wrong, 200, ok, ""},
		{"api_key", "", "", 401, refusal("api_key_required"), apiKey}, {"api_key", "", wrong, 401, refusal("api_key_invalid"), apiKey},
		{"api_key", "", "no key", 401, refusal("api_key_invalid"), apiKey}, {"api_key", "", strings.Repeat("k", 8<<10), 401, refusal("api_key_invalid"), apiKey},
		{"api_key", a.of(foreign), wrong, 404, notFound, ""},
		{"public", "", "", 200, ok, ""}, {"public", "", wrong, 200, ok, ""}, {"public", a.of(foreign), "", 200, ok, ""},
		{"public", "broken", "", 401, `{"detail":"Not authenticated"}`, bearer}, {"public", "broken", good, 401, `{"detail":"Not authenticated"}`, bearer},
	} {
		a.host.mode = c.mode
		r := request{token: c.token, header: map[string]string{}}
		if c.key != "" {
			r.header["X-Api-Key"] = c.key
		}
		got := a.do("GET", base+"/orders/1", r)
		got.is(c.code, c.body)
		if got.header.Get("WWW-Authenticate") != c.challenge {
			t.Errorf("%q, key %.10q: challenge %q", c.mode, c.key, got.header.Get("WWW-Authenticate"))
		}
	}
	for _, s := range a.host.seen {
		if strings.Contains(s.assertion+s.body, good) || s.header.Get("X-Api-Key") != "" {
			t.Errorf("the Worker saw the key: %+v", s)
		}
	}
	if log := a.log.String(); strings.Contains(log, good) || strings.Contains(log, wrong) || strings.Contains(log, a.host.key) || !strings.Contains(log, "/w/:script_name/*") {
		t.Error("the log holds a key, or nothing")
	}
	a.host.mode = "public"
	for _, authorization := range []string{"Basic dXNlcjpwYXNz", "Bearer", ""} { // it is there, so it must be good
		a.do("GET", base+"/orders/1", request{header: map[string]string{"Authorization": authorization}}).is(401, `{"detail":"Not authenticated"}`)
	}
}

// Two keys are no key, even if both are right.
func TestRepeatedKey(t *testing.T) {
	a := on(t)
	key := newKey()
	a.host.mode, a.host.key = "api_key", canonical.SHA256([]byte(key))
	in := httptest.NewRequest("GET", "/w/"+a.live().ScriptName+"/orders/1", nil)
	in.Header["X-Api-Key"] = []string{key, key}
	out := httptest.NewRecorder()
	a.echo.ServeHTTP(out, in)
	if out.Code != 401 || !strings.Contains(out.Body.String(), "api_key_invalid") {
		t.Errorf("%d %s", out.Code, out.Body)
	}
	in.Header["X-Api-Key"] = []string{key}
	out = httptest.NewRecorder()
	a.echo.ServeHTTP(out, in)
	if out.Code != 200 {
		t.Errorf("control: %d %s", out.Code, out.Body)
	}
}

// What is told to whom before the Worker has decided: an unknown operation and
// the methods of a path to anyone but a stranger, the input's faults to members.
func TestRefusalsBeforeAccess(t *testing.T) {
	a := on(t)
	base := "/w/" + a.live().ScriptName
	foreign := models.Tenant{CompanyID: "foreign", DepartmentID: "theirs"}
	a.Provision(foreign)
	faulty := request{media: "text/plain", body: strings.NewReader("{}")}
	signIn := refusal("sign_in_required")
	a.do("GET", base+"/nothing", request{}).is(404, `{"detail":"Operation not found"}`)
	got := a.do("DELETE", base+"/orders/1", request{})
	got.is(405, `{"detail":"Method Not Allowed"}`)
	if got.header.Get("Allow") != "GET" {
		t.Errorf("Allow %q", got.header.Get("Allow"))
	}
	if len(a.host.seen) != 0 {
		t.Error("a call without an operation reached the Worker")
	}
	a.do("POST", base+"/orders", faulty).is(401, signIn)
	a.do("GET", base+"/orders/1?%zz", request{}).is(401, signIn)
	for target, r := range map[string]request{base + "/nothing": {}, base + "/orders/1?%zz": {}, base + "/orders": {body: strings.NewReader("{")}} {
		r.token = a.of(foreign)
		got := a.do("GET", target, r)
		got.is(404, `{"detail":"Department Worker not found"}`)
		if got.header.Get("Allow") != "" || got.header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: %v", target, got.header)
		}
	}
	a.host.mode = "public"
	faulty.body = strings.NewReader("{}")
	a.do("POST", base+"/orders", faulty).is(415, `{"detail":"An operation takes application/json"}`)
	a.do("GET", base+"/orders/1?%zz", request{}).problems(problem{"query_invalid", `["query"]`})
	a.do("POST", base+"/orders", request{body: strings.NewReader(strings.Repeat("a", 1<<20+1))}).is(413, `{"detail":"Request body is too large"}`)
	for _, s := range a.host.seen {
		if s.body != "!" {
			t.Errorf("the Worker got %.20s", s.body)
		}
	}
}

// D11: ten wrong keys, then 429 with a time, for that address and that Worker.
func TestKeyFailures(t *testing.T) {
	t.Parallel()
	a := newAPI(t, databasetest.MySQL(t), func(p *httpapi.Params) {
		p.Edge = gateway.Edge{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Header: "X-Real-IP"}
	})
	target := "/w/" + a.live().ScriptName + "/orders/1"
	a.host.mode, a.host.key = "api_key", canonical.SHA256([]byte(newKey()))
	from := func(address, key string) answer {
		return a.do("GET", target, request{header: map[string]string{"X-Api-Key": key, "X-Real-Ip": address}})
	}
	for i := range 10 {
		from("203.0.113.1", []string{newKey(), "malformed"}[i%2]).is(401, refusal("api_key_invalid"))
	}
	got := from("203.0.113.1", newKey())
	got.is(429, `{"detail":{"code":"api_key_failures","message":"Too many calls with a wrong API key; try again later"}}`)
	if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
	from("203.0.113.2", newKey()).is(401, refusal("api_key_invalid"))
	if callers := a.host.callers(t); len(callers) != 11 || callers[0].ClientAddress != "203.0.113.1" || callers[10].ClientAddress != "203.0.113.2" {
		t.Errorf("at the Worker: %+v", callers)
	}
	a.do("GET", target, request{token: a.member(), header: map[string]string{"X-Api-Key": newKey(), "X-Real-Ip": "203.0.113.1"}}).is(200, `{"ok":true}`)
	a.do("GET", target, request{header: map[string]string{"X-Real-Ip": "203.0.113.1"}}).is(401, refusal("api_key_required"))
}

// D11: the address is the connection's, on both ways in, and nothing that the
// client sends of its own reaches the Worker.
func TestWhatTheWorkerIsSent(t *testing.T) {
	a := on(t)
	base := "/w/" + a.live().ScriptName
	spoofed := map[string]string{
		"X-Forwarded-For": "10.0.0.1", "X-Real-Ip": "10.0.0.1", "Cf-Connecting-Ip": "10.0.0.1", "Forwarded": "for=10.0.0.1",
		"X-Edge-Workers-Refusal": "access", "X-Shared-Version": "1", "X-Request-Id": "r-7", "Cookie": "a=b", "X-Mine": "x",
	}
	a.do("GET", base+"/orders/1", request{token: a.member(), header: spoofed}).is(200, `{"ok":true}`)
	got := a.do("POST", "/worker/invoke/orders.create", request{token: a.member(), header: spoofed})
	got.is(200, `{"ok":true}`)
	if got.header.Get("X-Request-Id") != "r-7" {
		t.Errorf("request id %q", got.header.Get("X-Request-Id"))
	}
	callers := a.host.callers(t)
	if len(callers) != 2 {
		t.Fatalf("%d calls", len(callers))
	}
	for i, c := range callers {
		if c.ClientAddress != "192.0.2.1" || c.RequestID != "r-7" || c.Kind != "member" {
			t.Errorf("%+v", c)
		}
		header := a.host.seen[i].header
		for name := range spoofed {
			if name != "X-Request-Id" && header.Get(name) != "" {
				t.Errorf("%s reached the Worker", name)
			}
		}
	}
}

// An answer that breaks off is broken off to the client, never closed as if it
// were whole; a whole one has its status, type and length.
func TestStreaming(t *testing.T) {
	a := on(t)
	target := "/w/" + a.live().ScriptName + "/orders/1"
	server := httptest.NewServer(a.echo)
	t.Cleanup(server.Close)
	get := func() (answer, error) {
		in, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "GET", server.URL+target, nil)
		a.must(err)
		in.Header.Set("Authorization", "Bearer "+a.member())
		response, err := server.Client().Do(in)
		a.must(err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return answer{t, response.StatusCode, response.Header, body}, err
	}
	big := `"` + strings.Repeat("a", 1<<20) + `"`
	write := func(text string, announced int, end bool) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if announced > 0 {
				w.Header().Set("Content-Length", strconv.Itoa(announced))
			}
			_, _ = io.WriteString(w, text)
			if !end {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	}
	for _, announced := range []int{0, len(big)} {
		a.host.answer = write(big, announced, true)
		got, err := get()
		a.must(err)
		got.is(200, big)
		length := got.header.Get("Content-Length")
		if got.header.Get("Content-Type") != "application/json" || (announced > 0 && length != strconv.Itoa(announced)) {
			t.Errorf("announced %d: %v", announced, got.header)
		}
	}
	for _, announced := range []int{0, 2 << 20} {
		a.host.answer = write(big, announced, false)
		got, err := get()
		if err == nil || got.code != 200 || len(got.body) > len(big) {
			t.Errorf("announced %d: a broken answer is whole: %d bytes, %v", announced, len(got.body), err)
		}
	}
	a.host.answer = func(w http.ResponseWriter) {
		for range 9 {
			_, _ = io.WriteString(w, big)
		}
	}
	if got, err := get(); err == nil || len(got.body) > 8<<20 {
		t.Errorf("over the bound: %d bytes, %v", len(got.body), err)
	}
	a.host.answer = write("", 9<<20, false)
	got, err := get()
	a.must(err)
	got.is(502, `{"detail":{"code":"worker_output_too_large","message":"The Worker's answer is larger than 8 MiB"}}`)
	a.host.answer = nil
	got, err = get()
	a.must(err)
	got.is(200, `{"ok":true}`)
	server.Close() // with it the last log line is written
	if n := strings.Count(a.log.String(), "the answer of a Worker broke off"); n != 3 {
		t.Errorf("%d broken answers in the log", n)
	}
}
