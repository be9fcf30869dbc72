package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

const accountsPath = "/worker/service-accounts"

// D6, D11: an account is there as long as its credentials are. No answer has the
// password or a digest of it.
func TestServiceAccounts(t *testing.T) {
	l := onLive(t)
	l.get(accountsPath).shows(200, `{"service_accounts":[]}`)
	put := func(id, username, password string) answer {
		body, err := json.Marshal(map[string]string{"username": username, "password": password})
		l.must(err)
		return l.send("PUT", accountsPath+"/"+id+"/credentials", string(body))
	}
	shown := func(id, username string) string {
		name, err := json.Marshal(username)
		l.must(err)
		return `{"service_account_id":"` + id + `","username":` + string(name) + `,"updated_at":"T"}`
	}
	put("robot", "user", "password").shows(200, shown("robot", "user"))
	bound := l.send("PUT", "/worker/operation-settings", `{"base_revision":0,"operations":{"a":{"access":"inherit","service_account_id":"robot"},"b":{"access":"inherit"}}}`)
	if bound.code != 200 {
		t.Fatalf("%d %s", bound.code, bound.body)
	}
	for _, text := range odd {
		if strings.ContainsFunc(text, unicode.IsControl) {
			put("robot", text, "x").problems(problem{"value_invalid", `["body","username"]`})
			put("robot", "u", text).shows(200, shown("robot", "u"))
			l.account("u", text)
			continue
		}
		put("robot", text, text).shows(200, shown("robot", text))
		l.account(text, text)
	}
	put("robot", strings.Repeat("é", 128), strings.Repeat("é", 512)).shows(200, shown("robot", strings.Repeat("é", 128)))
	put("A.b-c_9", "other", strings.Repeat("\x01", 1_024)).shows(200, shown("A.b-c_9", "other"))
	l.get(accountsPath).shows(200, `{"service_accounts":[`+shown("A.b-c_9", "other")+`,`+shown("robot", strings.Repeat("é", 128))+`]}`)
	l.remove(accountsPath+"/A.b-c_9/credentials").shows(200, `{"service_account_id":"A.b-c_9","deleted":true}`)
	l.remove(accountsPath+"/A.b-c_9/credentials").shows(200, `{"service_account_id":"A.b-c_9","deleted":false}`)
	l.get(accountsPath).shows(200, `{"service_accounts":[`+shown("robot", strings.Repeat("é", 128))+`]}`)
}

// Ids, names and passwords of another form are refused and reach nothing.
func TestCredentialBodies(t *testing.T) {
	l := onLive(t)
	target := accountsPath + "/robot/credentials"
	at := func(kind, name string) problem { return problem{kind, `["body","` + name + `"]`} }
	for body, want := range map[string][]problem{
		`{}`:                                                               {at("missing", "password"), at("missing", "username")},
		`{"username":1,"password":null}`:                                   {at("type_error", "password"), at("type_error", "username")},
		`{"username":"","password":"p"}`:                                   {at("value_invalid", "username")},
		`{"username":"u","password":""}`:                                   {at("value_invalid", "password")},
		`{"username":"u\u007f","password":"p"}`:                            {at("value_invalid", "username")},
		`{"username":"u\n","password":"p"}`:                                {at("value_invalid", "username")},
		`{"username":"u","password":"\ud800"}`:                             {at("type_error", "password")},
		`{"username":"u","password":"p","password":"q"}`:                   {at("duplicate_key", "password")},
		`{"username":"u","password":"p","salt":"s"}`:                       {at("extra_forbidden", "salt")},
		`{"username":"` + strings.Repeat("u", 257) + `","password":"p"}`:   {at("value_invalid", "username")},
		`{"username":"u","password":"` + strings.Repeat("p", 1_025) + `"}`: {at("value_invalid", "password")},
	} {
		l.send("PUT", target, body).problems(want...)
	}
	wrong := problem{"value_invalid", `["path","service_account_id"]`}
	for _, id := range []string{"_a", ".a", "-a", "a%20", "a%00", "%FF", "%27", strings.Repeat("a", 65), "é"} {
		l.send("PUT", accountsPath+"/"+id+"/credentials", `{"username":"u","password":"p"}`).problems(wrong)
		l.remove(accountsPath + "/" + id + "/credentials").problems(wrong)
	}
	l.noJSON("PUT", target, 16<<10)
	if l.mutations() != 0 || l.rows() != 0 {
		t.Errorf("a refused request left %d rows", l.rows())
	}
	escaped := `{"username":"` + strings.Repeat(`\u0041`, 256) + `","password":"` + strings.Repeat(`\u0001`, 1_024) + `"}` // the longest good body
	if got := l.send("PUT", accountsPath+"/"+strings.Repeat("a", 64)+"/credentials", escaped); got.code != 200 || l.mutations() != 1 {
		t.Errorf("control: %d %s", got.code, got.body)
	}
}
