package httpapi_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const policyPath = "/worker/access-policy"

// D6, D11: the policy is read and replaced, its key rotated and revoked; each
// answer is the whole state.
func TestAccessPolicy(t *testing.T) {
	l := onLive(t)
	l.get(policyPath).shows(200, `{"mode":"private","ip_allowlist":[],"api_key_configured":false,"api_key_last_four":null,"revision":0,"updated_at":null}`)
	want := `{"mode":"api_key","ip_allowlist":["192.0.2.0/24","2001:db8::/32"],"api_key_configured":false,"api_key_last_four":null,"revision":1,"updated_at":"T"}`
	l.send("PUT", policyPath, `{"base_revision":0,"mode":"api_key","ip_allowlist":["192.0.2.0/24","2001:db8::/32"]}`).shows(200, want)
	l.get(policyPath).shows(200, want)

	var first, second gen.AccessPolicyKey
	rotated := l.send("POST", policyPath+"/api-key/rotate", `{"base_revision":1}`)
	rotated.into(200, &first)
	with := `{"mode":"api_key","ip_allowlist":["192.0.2.0/24","2001:db8::/32"],"api_key_configured":true,"api_key_last_four":%q,"revision":%d,"updated_at":"T"}`
	lastFour := first.APIKey[len(first.APIKey)-4:]
	rotated.shows(200, `{"api_key":"K","policy":`+fmt.Sprintf(with, lastFour, 2)+`}`)
	l.get(policyPath).shows(200, fmt.Sprintf(with, lastFour, 2))
	l.send("POST", policyPath+"/api-key/rotate", `{"base_revision":2}`).into(200, &second)
	if first.APIKey == second.APIKey || !strings.HasSuffix(second.APIKey, *second.Policy.APIKeyLastFour) {
		t.Errorf("the second key's last four are %s", *second.Policy.APIKeyLastFour)
	}
	without := `{"mode":"api_key","ip_allowlist":["192.0.2.0/24","2001:db8::/32"],"api_key_configured":false,"api_key_last_four":null,"revision":4,"updated_at":"T"}`
	l.send("POST", policyPath+"/api-key/revoke", `{"base_revision":3}`).shows(200, `{"revoked":true,"policy":`+without+`}`)
	l.send("POST", policyPath+"/api-key/revoke", `{"base_revision":4}`).shows(200, `{"revoked":false,"policy":`+without+`}`)
	if n := l.mutations(); n != 5 || l.rows() != 5 {
		t.Errorf("%d commands, %d rows", n, l.rows())
	}

	stale := `{"detail":{"code":"revision_stale","message":"Access-policy revision is stale"}}`
	for _, base := range []string{"0", "3", "5", "9007199254740991"} {
		l.send("PUT", policyPath, `{"base_revision":`+base+`,"mode":"public","ip_allowlist":[]}`).is(409, stale)
		l.send("POST", policyPath+"/api-key/rotate", `{"base_revision":`+base+`}`).is(409, stale)
		l.send("POST", policyPath+"/api-key/revoke", `{"base_revision":`+base+`}`).is(409, stale)
	}
	l.get(policyPath).shows(200, without)
	l.send("PUT", policyPath, `{"base_revision":4,"mode":"public","ip_allowlist":[]}`).
		shows(200, `{"mode":"public","ip_allowlist":[],"api_key_configured":false,"api_key_last_four":null,"revision":5,"updated_at":"T"}`)
}

// Every fault of a body has its place, and none of them reaches the Worker.
func TestAccessPolicyBodies(t *testing.T) {
	l := onLive(t)
	at := func(kind string, place ...string) problem {
		return problem{kind, `["body","` + strings.Join(place, `","`) + `"]`}
	}
	networks := func(list string) string { return `{"base_revision":0,"mode":"private","ip_allowlist":` + list + `}` }
	many := ""
	for i := range 65 {
		many += fmt.Sprintf(`"10.0.%d.0/24",`, i)
	}
	for body, want := range map[string][]problem{
		`{}`: {at("missing", "base_revision"), at("missing", "ip_allowlist"), at("missing", "mode")},
		`{"base_revision":0,"mode":1,"ip_allowlist":{}}`:                              {at("type_error", "ip_allowlist"), at("type_error", "mode")},
		`{"base_revision":0,"mode":null,"ip_allowlist":null}`:                         {at("type_error", "ip_allowlist"), at("type_error", "mode")},
		`{"base_revision":0,"mode":"private","ip_allowlist":[],"api_key":"x"}`:        {at("extra_forbidden", "api_key")},
		`{"base_revision":0,"mode":"private","ip_allowlist":[],"mode":"public"}`:      {at("duplicate_key", "mode")},
		`{"base_revision":0,"mode":"private","ip_allowlist":[],"mod\u0065":"public"}`: {at("duplicate_key", "mode")},
		`{"base_revision":0,"mode":"PUBLIC","ip_allowlist":[]}`:                       {at("value_invalid", "mode")},
		`{"base_revision":0,"mode":"inherit","ip_allowlist":[]}`:                      {at("value_invalid", "mode")},
		`{"base_revision":0,"mode":"\ud800","ip_allowlist":[]}`:                       {at("type_error", "mode")},
		networks(`["192.0.2.0/24",7]`):                                                {at("type_error", "ip_allowlist")},
		networks(`["192.0.2.0/24",null]`):                                             {at("type_error", "ip_allowlist")},
		networks(`["192.0.2.1/24"]`):                                                  {at("value_invalid", "ip_allowlist")},
		networks(`["192.0.2.1"]`):                                                     {at("value_invalid", "ip_allowlist")},
		networks(`["::ffff:192.0.2.0/120"]`):                                          {at("value_invalid", "ip_allowlist")},
		networks(`["192.0.2.0/24","192.0.2.0/24"]`):                                   {at("value_invalid", "ip_allowlist")},
		networks(`["' OR 1=1 --"]`):                                                   {at("value_invalid", "ip_allowlist")},
		networks(`[` + strings.TrimSuffix(many, ",") + `]`):                           {at("value_invalid", "ip_allowlist")},
	} {
		l.send("PUT", policyPath, body).problems(want...)
	}
	l.revisions("POST", policyPath+"/api-key/rotate", "")
	l.revisions("POST", policyPath+"/api-key/revoke", "")
	l.revisions("PUT", policyPath, `,"mode":"private","ip_allowlist":[]`)
	l.noJSON("PUT", policyPath, 32<<10)
	l.noJSON("POST", policyPath+"/api-key/rotate", 1<<10)
	l.noJSON("POST", policyPath+"/api-key/revoke", 1<<10)
	if l.mutations() != 0 || l.rows() != 0 {
		t.Errorf("a refused body left %d rows", l.rows())
	}
	most := `{"base_revision":0,"mode":"private","ip_allowlist":[` + strings.TrimSuffix(many, `,"10.0.64.0/24",`) + `]}`
	if got := l.send("PUT", policyPath, most); got.code != 200 || l.mutations() != 1 || l.rows() != 1 { // the control
		t.Errorf("64 networks: %d %s", got.code, got.body)
	}
}

// revisions sends base revisions that are no true integers of 0 to 2^53−1;
// rest is what else the body has.
func (l *liveAPI) revisions(method, target, rest string) {
	l.t.Helper()
	for _, base := range []string{`"0"`, `1.0`, `1e0`, `-0`, `-1`, `0.5`, `true`, `null`, `[]`, `{}`, `9007199254740992`, `18446744073709551616`, `1e400`, `""`} {
		l.send(method, target, `{"base_revision":`+base+rest+`}`).problems(problem{"type_error", `["body","base_revision"]`})
	}
	l.send(method, target, `{"base_revision":0,"base_revision":1`+rest+`}`).problems(problem{"duplicate_key", `["body","base_revision"]`})
	l.send(method, target, `{"Base_revision":0`+rest+`}`).problems(problem{"missing", `["body","base_revision"]`}, problem{"extra_forbidden", `["body","Base_revision"]`})
}

// noJSON sends what is no JSON object, and one that is over the route's bound.
func (l *liveAPI) noJSON(method, target string, limit int) {
	l.t.Helper()
	for _, body := range []string{"", "null", "[]", "7", `"x"`, "{", "{}{}", "{}x", `{"value":}`, "{\"\xff\":1}", `{"value":"` + "\xc3" + `"}`, `{"a":` + strings.Repeat("[", 300), "\xef\xbb\xbf{}"} {
		l.send(method, target, body).problems(problem{"json_invalid", `["body"]`})
	}
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"} {
		l.do(method, target, request{token: l.manager(), media: media, body: strings.NewReader("{}")}).
			is(415, `{"detail":"The request body must be application/json"}`)
	}
	long := "{" + strings.Repeat(" ", limit-1) + "}"
	l.send(method, target, long).is(413, `{"detail":"Request body is too large"}`)
	if got := l.send(method, target, strings.Replace(long, " ", "", 1)); got.code == 413 {
		l.t.Errorf("%s %s: a body at the bound is too large", method, target)
	}
	l.do(method, target, request{token: l.manager(), media: "application/json", body: iotest.ErrReader(io.ErrUnexpectedEOF)}).is(400, `{"detail":"The request body could not be read"}`)
}
