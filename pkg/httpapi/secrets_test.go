package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

const secretsPath = "/worker/secrets"

// odd are texts that something on the way could take for something else.
var odd = []string{
	"'; DROP TABLE edge_workers; --", `" OR 1=1`, "${jndi:ldap://x}", "{{7*7}}", "<script>&</script>", "%s%n", "\\u0000 \\", "a\x00b",
	"line\r\nline", "é 💩 \u2028 \ufeff", " leading and trailing ", "null", "{}",
}

// D6: a secret is set, listed without its value, replaced and removed; what the
// handler reads is what was sent.
func TestSecrets(t *testing.T) {
	l := onLive(t)
	l.get(secretsPath).shows(200, `{"secrets":[]}`)
	shown := func(name, value string) string {
		return `{"name":"` + name + `","sha256":"` + canonical.SHA256([]byte(value)) + `","updated_at":"T"}`
	}
	for _, value := range append(odd, strings.Repeat("é", 2_560), "x") {
		body, err := json.Marshal(map[string]string{"value": value})
		l.must(err)
		l.send("PUT", secretsPath+"/TOKEN", string(body)).shows(200, shown("TOKEN", value))
		if got := l.secret(); got != value {
			t.Errorf("the handler reads %q, sent was %q", got, value)
		}
	}
	escaped := strings.Repeat(`\u0001`, 5_120) // the longest good body
	l.send("PUT", secretsPath+"/A1_", `{"value":"`+escaped+`"}`).shows(200, shown("A1_", strings.Repeat("\x01", 5_120)))
	l.get(secretsPath).shows(200, `{"secrets":[`+shown("A1_", strings.Repeat("\x01", 5_120))+`,`+shown("TOKEN", "x")+`]}`)
	l.remove(secretsPath+"/A1_").shows(200, `{"name":"A1_","deleted":true}`)
	l.remove(secretsPath+"/A1_").shows(200, `{"name":"A1_","deleted":false}`)
	l.get(secretsPath).shows(200, `{"secrets":[`+shown("TOKEN", "x")+`]}`)
	if n := l.count("SELECT COUNT(*) FROM edge_worker_audit_logs WHERE action = 'secrets.delete.noop'"); n != 1 {
		t.Errorf("%d facts of the deletion that found nothing", n)
	}
	for i := range 63 {
		l.must(putSecretOf(l, fmt.Sprintf("S%d", i)))
	}
	l.send("PUT", secretsPath+"/ONE_MORE", `{"value":"x"}`).is(409, `{"detail":{"code":"secret_limit_reached","message":"A Worker has at most 64 secrets"}}`)
	if got := l.send("PUT", secretsPath+"/S62", `{"value":"y"}`); got.code != 200 { // the control
		t.Errorf("one of the 64: %d %s", got.code, got.body)
	}
}

func putSecretOf(l *liveAPI, name string) error {
	got := l.send("PUT", secretsPath+"/"+name, `{"value":"x"}`)
	if got.code != 200 {
		return fmt.Errorf("%s: %d %s", name, got.code, got.body)
	}
	return nil
}

// Names and values of another form are refused and reach nothing.
func TestSecretBodies(t *testing.T) {
	l := onLive(t)
	at := func(kind string) problem { return problem{kind, `["body","value"]`} }
	for body, want := range map[string][]problem{
		`{}`: {at("missing")}, `{"value":null}`: {at("type_error")}, `{"value":7}`: {at("type_error")}, `{"value":["x"]}`: {at("type_error")},
		`{"value":""}`: {at("value_invalid")}, `{"value":"` + strings.Repeat("x", 5_121) + `"}`: {at("value_invalid")},
		`{"value":"` + strings.Repeat("é", 2_561) + `"}`: {at("value_invalid")},
		`{"value":"\ud800"}`:                             {at("type_error")}, `{"value":"a\udc00b"}`: {at("type_error")}, `{"value":"\ud83d\ud83d"}`: {at("type_error")},
		`{"value":"x","value":"y"}`:       {at("duplicate_key")},
		`{"value":"x","base_revision":0}`: {{"extra_forbidden", `["body","base_revision"]`}},
	} {
		l.send("PUT", secretsPath+"/TOKEN", body).problems(want...)
	}
	for _, name := range []string{"token", "1A", "_A", "A-B", "A.B", "A%20", "A%00", "%FF", "%27%3B--", strings.Repeat("A", 65), "T%C3%89", "%41", "A/B", "A%2FB"} {
		wrong := problem{"value_invalid", `["path","name"]`}
		l.send("PUT", secretsPath+"/"+name, `{"value":"x"}`).problems(wrong)
		l.remove(secretsPath + "/" + name).problems(wrong)
	}
	l.noJSON("PUT", secretsPath+"/TOKEN", 32<<10)
	if l.mutations() != 0 || l.rows() != 0 {
		t.Errorf("a refused request left %d rows", l.rows())
	}
	l.must(putSecretOf(l, strings.Repeat("A", 64))) // the control
	if l.mutations() != 1 || l.rows() != 1 {
		t.Errorf("%d rows", l.rows())
	}
}
