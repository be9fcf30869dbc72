package runtime_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// statements are what a careless query would execute.
var statements = []string{
	`'; DROP TABLE secrets; --`, `"; DROP TABLE receipts; --`, `x'); DELETE FROM service_accounts; --`, `' OR '1'='1`, `" OR ""="`,
	`' UNION SELECT value FROM secrets --`, `'||(SELECT value FROM secrets)||'`, `\'; ATTACH DATABASE 'x' AS y; --`, `1; PRAGMA writable_schema=1`,
	`?1`, `:name`, `@p`, `%s%n`, "'\n;DROP TABLE access_policy;\n--", "'\u0000; DROP TABLE runtime_configuration; --",
}

const shownSource = `export default {
  secret: (name, ctx) => ctx.secrets.get(name),
  account: (_, ctx) => ctx.serviceAccount && { username: ctx.serviceAccount.username, password: ctx.serviceAccount.password },
  config: (_, ctx) => ctx.config,
  who: (_, ctx) => [ctx.caller, ctx.requestId],
  echo: (input) => input,
  number: (input) => input,
  clean: () => [typeof {}.mode, typeof {}.polluted, typeof [].mode, typeof (() => {}).mode],
};`

// shown is a Worker with something in every table, and what it holds.
func shown(t *testing.T) (*built, *worker, func() []string) {
	t.Helper()
	operations := []string{}
	for _, id := range []string{"secret", "account", "config", "who", "echo", "clean"} {
		operations = append(operations, fmt.Sprintf(`{"id":%q,"method":"POST","path":"/%s"}`, id, id))
	}
	operations = append(operations, `{"id":"number","method":"POST","path":"/n","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}}`)
	b := files(t, "["+strings.Join(operations, ",")+"]", map[string]string{"index.js": shownSource})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	seed := []step{
		{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":"` + digestA + `","lastFour":"abcd"}`, `{"conflict":false,…`},
		{"runtime_config.replace", `{"baseRevision":0,"valueJson":"{\"a\":1}"}`, `{"conflict":false,…`},
		{"secrets.put", putSecret("A", "value"), `{"conflict":false,…`},
		{"secrets.put", putSecret("B", "other"), `{"conflict":false,…`},
		{"service_accounts.credentials.put", putAccount("acc", "user", "password", "salt"), `{"conflict":false,…`},
		{"operation_settings.replace", wanted("baseRevision", 0, b.out.ReleaseGeneration, `"acc"`,
			`{"echo":{"access":"public","service_account_id":"acc"}}`), `{"conflict":false,…`},
	}
	tell(t, b, w, seed)
	return b, w, func() []string {
		t.Helper()
		var state []string
		for op := range reads {
			if !strings.HasPrefix(op, "control.") {
				state = append(state, op+" "+b.command(t, w, op, "{}").result(t))
			}
		}
		state = append(state, b.invoke(t, w, "secret", `"A"`).body, b.invoke(t, w, "secret", `"B"`).body, b.invoke(t, w, "account", "").body, b.invoke(t, w, "config", "").body)
		slices.Sort(state)
		return state
	}
}

// goods are good payloads of every command; their bases are those of shown.
func goods(generation string) map[string]string {
	id := uuid.NewString()
	return map[string]string{
		"access_policy.get": `{}`, "runtime_config.get": `{}`, "secrets.list": `{}`, "secrets.purge": `{}`, "operation_settings.get": `{}`, "service_accounts.list": `{}`,
		"control.receipt.get": receiptQuery(id, digestA), "control.receipt.ack": receiptQuery(id, digestA),
		"access_policy.replace":        `{"baseRevision":1,"ipAllowlist":["192.0.2.0/24"],"mode":"api_key"}`,
		"access_policy.api_key.rotate": `{"baseRevision":1,"keyDigest":"` + digestB + `","lastFour":"wxyz"}`,
		"access_policy.api_key.revoke": `{"baseRevision":1}`,
		"runtime_config.replace":       `{"baseRevision":1,"valueJson":"{\"b\":{\"c\":[{\"d\":\"e\"}]}}"}`,
		"runtime_config.delete":        `{"baseRevision":1}`,
		"secrets.put":                  putSecret("A", "value"), "secrets.delete": `{"name":"A"}`,
		"operation_settings.stage":            wanted("liveRevision", 1, digestA, `"acc"`, `{"echo":{"access":"public","service_account_id":"acc"}}`),
		"operation_settings.replace":          wanted("baseRevision", 1, generation, `"acc"`, `{"echo":{"access":"public","service_account_id":"acc"}}`),
		"operation_settings.api_key.rotate":   rotate(1, "echo", digestA, "abcd"),
		"operation_settings.api_key.revoke":   revoke(1, "echo"),
		"service_accounts.credentials.put":    putAccount("acc", "user", "password", "salt"),
		"service_accounts.credentials.delete": `{"serviceAccountId":"acc"}`,
	}
}

// eachText puts the text in the place of each text and each key of a value,
// one at a time, and tells where.
func eachText(node any, text string, at func(place string)) {
	switch n := node.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(n)) {
			value := n[key]
			if _, ok := value.(string); ok {
				n[key] = text
				at(key)
				n[key] = value
			} else {
				eachText(value, text, at)
			}
			delete(n, key)
			n[text] = value
			at("key " + key)
			delete(n, text)
			n[key] = value
		}
	case []any:
		for i, value := range n {
			n[i] = text
			at("element")
			n[i] = value
		}
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func canonicalText(t *testing.T, value any) string {
	t.Helper()
	raw, err := canonical.JSON(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// SQL in any text of any command is refused by its form, or, in the four texts
// that may be anything, stored and shown byte for byte. Nothing else changes.
func TestSQLInCommands(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	commands := goods(b.out.ReleaseGeneration)
	if len(commands) != len(since) {
		t.Fatalf("%d of %d commands", len(commands), len(since))
	}
	stored, refused := 0, 0
	for op, good := range commands {
		for _, text := range statements {
			payload := decoded(t, good)
			eachText(payload, text, func(place string) {
				if want, free := sqlIsFree(op, place, text, payload); free {
					stored++
					if got := b.either(t, w, op, canonicalText(t, payload)); got.status != 200 {
						t.Errorf("%s %s %q: %v", op, place, text, got)
					}
					sqlIsShown(t, b, w, op, want)
					return
				}
				refused++
				if got := b.either(t, w, op, canonicalText(t, payload)); got.status != 422 || !strings.Contains(got.body, `"command_invalid"`) {
					t.Errorf("%s %s %q: %v", op, place, text, got)
				}
			})
		}
	}
	if want := 4*len(statements) - 4; stored != want || refused < 40*len(statements) {
		t.Errorf("%d stored, want %d; %d refused", stored, want, refused)
	}
	// What was overwritten is put back; the rest must be what it was.
	tell(t, b, w, []step{
		{"secrets.put", putSecret("A", "value"), `{"conflict":false,…`},
		{"service_accounts.credentials.put", putAccount("acc", "user", "password", "salt"), `{"conflict":false,…`},
	})
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	tell(t, b, w, []step{{"secrets.purge", `{}`, `{"purged":2}`}}) // the rows are there, and no others
}

// sqlIsFree reports a text that may be anything, with its digest made good, and
// what the Worker must show of it.
func sqlIsFree(op, place, text string, payload map[string]any) (string, bool) {
	switch {
	case op == "secrets.put" && place == "value":
		payload["valueDigest"] = sha(text)
		return text, true
	case op == "service_accounts.credentials.put" && (place == "password" || (slices.Contains([]string{"username", "salt"}, place) && !strings.ContainsAny(text, "\u0000\n"))):
		payload["passwordDigest"] = sha(payload["salt"].(string) + "\u0000" + payload["password"].(string))
		shown, _ := json.Marshal([]any{payload["username"], payload["password"]})
		return string(shown), true
	case op == "secrets.put":
		payload["valueDigest"] = sha("value")
	case op == "service_accounts.credentials.put":
		payload["passwordDigest"] = sha("salt\u0000password")
	}
	if place == "valueDigest" || place == "passwordDigest" {
		payload[place] = text
	}
	return "", false
}

func sqlIsShown(t *testing.T, b *built, w *worker, op, want string) {
	t.Helper()
	var got string
	if op == "secrets.put" {
		if answer := b.invoke(t, w, "secret", `"A"`); json.Unmarshal([]byte(answer.body), &got) != nil || got != want {
			t.Errorf("the secret is %v, want %q", answer, want)
		}
		return
	}
	var account struct{ Username, Password string }
	answer := b.invoke(t, w, "account", "")
	err := json.Unmarshal([]byte(answer.body), &account)
	shown, _ := json.Marshal([]any{account.Username, account.Password})
	if err != nil || string(shown) != want {
		t.Errorf("the account is %v, want %s", answer, want)
	}
}

// SQL as key and value of the configuration comes back byte for byte.
func TestSQLInConfiguration(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	for i, text := range statements {
		value := canonicalText(t, map[string]any{text: []any{text, map[string]any{"a": text}}})
		got := b.either(t, w, "runtime_config.replace", fmt.Sprintf(`{"baseRevision":%d,"valueJson":%s}`, i+1, canonicalText(t, value)))
		if got.status != 200 {
			t.Fatalf("%q: %v", text, got)
		}
		tell(t, b, w, []step{{"runtime_config.get", `{}`, `{"config":` + config(t, value, i+2) + `}`}})
		seen := b.invoke(t, w, "config", "")
		if canonicalText(t, decoded(t, seen.body)) != value {
			t.Errorf("%q: the handler sees %v", text, seen)
		}
	}
	for _, line := range state() {
		if !slices.Contains(before, line) && !strings.HasPrefix(line, "runtime_config.get") && !strings.HasPrefix(line, "{") {
			t.Errorf("changed: %s", line)
		}
	}
}

// SQL in what stands around a command or an input: the envelope, the path, and
// the claims, which the runtime does not look up but passes on.
func TestSQLAroundCommands(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	for _, text := range statements {
		for key, want := range map[string]int{"operation": 404, "mutationId": 422, "commandDigest": 409, "releaseGeneration": 409} {
			op := "secrets.delete"
			envelope := decoded(t, b.mutation(t, op, uuid.NewString(), `{"name":"B"}`))
			envelope[key] = text
			if key == "operation" {
				op = text
				envelope["commandDigest"] = canonical.Digest("teamsync-edge-worker-command",
					[]byte(canonicalText(t, map[string]any{"operation": text, "payload": envelope["payload"]})))
			}
			if got := b.sign(t, w, op, canonicalText(t, envelope)); got.status != want {
				t.Errorf("%s %q: %v, want %d", key, text, got, want)
			}
		}
		for name, claim := range map[string]change{"jti": claim("jti", text), "kid": header("kid", text), "door": claim("door", text), "aud": claim("aud", text), "gen": claim("gen", text)} {
			a := b.assertion("invoke", "echo", "1")
			claim(a)
			if got := w.do(t, "POST", "/__invoke/echo", a.bearer(t), strings.NewReader("1")); got.status == 200 || got.refusal != "door" {
				t.Errorf("%s %q: %v", name, text, got)
			}
		}
		who := calling{"kind": "member", "sub": text, "company_id": text, "department_id": text, "roles": []string{text}, "request_id": text}
		got := b.invokeAs(t, w, who, "who", "")
		want, _ := json.Marshal([]any{map[string]any{"kind": "member", "sub": text, "companyId": text, "departmentId": text, "roles": []string{text}}, text})
		if got.status != 200 || canonicalText(t, json.RawMessage(got.body)) != canonicalText(t, json.RawMessage(want)) {
			t.Errorf("caller %q: %v", text, got)
		}
		input, _ := json.Marshal(text)
		if got := b.invoke(t, w, "echo", string(input)); got.status != 200 || canonicalText(t, json.RawMessage(got.body)) != canonicalText(t, text) {
			t.Errorf("input %q: %v", text, got)
		}
	}
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
