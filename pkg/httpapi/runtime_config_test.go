package httpapi_test

import (
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

const configPath = "/worker/runtime-config"

// D6: the configuration is read, replaced and emptied. Its canonical form and
// the digest of that are what is shown.
func TestRuntimeConfig(t *testing.T) {
	l := onLive(t)
	shown := func(value, revision, at string) string {
		return `{"value":` + value + `,"sha256":"` + canonical.SHA256([]byte(value)) + `","revision":` + revision + `,"updated_at":` + at + `}`
	}
	l.get(configPath).shows(200, shown(`{}`, "0", "null"))
	l.send("PUT", configPath, `{"base_revision":0,"value": {"b": [1, {"x": null}], "a": "é"} }`).shows(200, shown(`{"a":"é","b":[1,{"x":null}]}`, "1", `"T"`))
	l.get(configPath).shows(200, shown(`{"a":"é","b":[1,{"x":null}]}`, "1", `"T"`))
	// Numbers are doubles in canonical form (RFC 8785); a text keeps its digits.
	numbers := `{"big":9007199254740992,"e":1000,"half":0.5,"n":1.1,"text":"9007199254740993","zero":0}`
	l.send("PUT", configPath, `{"base_revision":1,"value":{"text":"9007199254740993","big":9007199254740993,"n":1.10,"e":1e3,"half":0.5,"zero":-0}}`).
		shows(200, shown(numbers, "2", `"T"`))
	for _, value := range []string{`{"q":"'; DROP TABLE edge_workers; --"}`, `{"m":"<script>&</script>","\"":"\\","` + "\u2028" + `":"` + "\u2029" + `"}`} {
		l.remove(configPath + "?base_revision=" + revisionOf(l, configPath))
		base := revisionOf(l, configPath)
		if got := l.send("PUT", configPath, `{"base_revision":`+base+`,"value":`+value+`}`); got.code != 200 {
			t.Errorf("%s: %d %s", value, got.code, got.body)
		}
		form, err := canonical.Transform([]byte(value))
		l.must(err)
		l.get(configPath).shows(200, shown(string(form), revisionOf(l, configPath), `"T"`))
	}
	if got := l.count("SELECT COUNT(*) FROM edge_workers"); got != 1 {
		t.Errorf("%d Workers", got)
	}
	base := revisionOf(l, configPath)
	stale := `{"detail":{"code":"revision_stale","message":"Runtime-configuration revision is stale"}}`
	for _, other := range []string{"0", "1", base + "0"} {
		l.send("PUT", configPath, `{"base_revision":`+other+`,"value":{}}`).is(409, stale)
		l.remove(configPath+"?base_revision="+other).is(409, stale)
	}
	if revisionOf(l, configPath) != base {
		t.Error("a stale change changed something")
	}
	got := l.remove(configPath + "?base_revision=" + base)
	got.shows(200, shown(`{}`, revisionOf(l, configPath), `"T"`))
}

// revisionOf is the revision that the state has now, as JSON.
func revisionOf(l *liveAPI, target string) string {
	l.t.Helper()
	_, rest, _ := strings.Cut(string(l.get(target).body), `"revision":`)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	return rest[:end]
}

// What the Worker would not read is refused before it is recorded.
func TestRuntimeConfigBodies(t *testing.T) {
	l := onLive(t)
	at := func(kind, name string) problem { return problem{kind, `["body","` + name + `"]`} }
	nested := func(levels int) string {
		return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
	}
	long := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-8) + `"}` }
	put := func(value string) answer { return l.send("PUT", configPath, `{"base_revision":0,"value":`+value+`}`) }
	for value, want := range map[string]problem{
		`null`: at("type_error", "value"), `7`: at("value_invalid", "value"), `"{}"`: at("value_invalid", "value"), `[]`: at("value_invalid", "value"),
		`{"a":1,"a":1}`: at("value_invalid", "value"), `{"a":{"b":1,"\u0062":2}}`: at("value_invalid", "value"), `{"a":[{"b":1,"b":2}]}`: at("value_invalid", "value"),
		`{"__proto__":{}}`: at("value_invalid", "value"), `{"a":[{"\u005f_proto__":1}]}`: at("value_invalid", "value"),
		`{"a":1e400}`: at("value_invalid", "value"), `{"a":"\ud800"}`: at("value_invalid", "value"), `{"\udc00":1}`: at("value_invalid", "value"),
		nested(102): at("value_invalid", "value"), nested(9000): at("value_invalid", "value"), long(65_537): at("value_invalid", "value"),
		`{` + strings.Repeat(" ", 65_535) + `}`: at("value_invalid", "value"),
	} {
		put(value).problems(want)
	}
	put(`{"a":` + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + `}`).problems(problem{"json_invalid", `["body"]`})
	l.send("PUT", configPath, `{"base_revision":0,"value":{},"sha256":"x"}`).problems(at("extra_forbidden", "sha256"))
	l.send("PUT", configPath, `{}`).problems(at("missing", "base_revision"), at("missing", "value"))
	l.revisions("PUT", configPath, `,"value":{}`)
	l.noJSON("PUT", configPath, 72<<10)
	for _, query := range []string{"?base_revision=", "?base_revision=x", "?base_revision=1.0", "?base_revision=-1", "?base_revision=%2B1", "?base_revision=9007199254740992", "?base_revision=0&base_revision=0", "?base_revision=01"} {
		l.remove(configPath + query).problems(problem{"type_error", `["query","base_revision"]`})
	}
	l.remove(configPath).problems(problem{"missing", `["query","base_revision"]`})
	l.do("DELETE", configPath+"?base_revision=0", request{token: l.manager(), media: "application/json", body: strings.NewReader(`{"base_revision":0}`)}).
		is(413, `{"detail":"Request body is too large"}`)
	if l.mutations() != 0 || l.rows() != 0 {
		t.Errorf("a refused body left %d rows", l.rows())
	}
	for i, value := range []string{nested(101), long(65_536)} { // the controls: the Worker takes them
		got := l.send("PUT", configPath, `{"base_revision":`+string(rune('0'+i))+`,"value":`+value+`}`)
		if got.code != 200 || l.mutations() != 1 {
			t.Errorf("%.20s: %d %.200s", value, got.code, got.body)
		}
	}
}
