package runtime_test

import (
	"strings"
	"testing"
)

// The probe is a project whose operations each show one property of the
// runtime.
const probeOperations = `[
  {"id":"echo","method":"POST","path":"/echo"},
  {"id":"boom","method":"POST","path":"/boom"},
  {"id":"refuse","method":"POST","path":"/refuse"},
  {"id":"pose","method":"POST","path":"/pose"},
  {"id":"mismatch","method":"POST","path":"/mismatch"},
  {"id":"status500","method":"POST","path":"/status500"},
  {"id":"shape","method":"POST","path":"/shape","output_schema":{"type":"object","properties":{"n":{"type":"integer"}}}},
  {"id":"bigint","method":"POST","path":"/bigint"},
  {"id":"nothing","method":"POST","path":"/nothing","output_schema":{"type":"null"}},
  {"id":"context","method":"POST","path":"/context"},
  {"id":"statics","method":"POST","path":"/statics"},
  {"id":"frozen","method":"POST","path":"/frozen"},
  {"id":"rows","method":"POST","path":"/rows"},
  {"id":"rollback","method":"POST","path":"/rollback"},
  {"id":"asynctx","method":"POST","path":"/asynctx"},
  {"id":"tables","method":"POST","path":"/tables"},
  {"id":"platform","method":"POST","path":"/platform"},
  {"id":"merge","method":"POST","path":"/merge"},
  {"id":"strict","method":"POST","path":"/strict","input_schema":{"type":"object","required":["toString"],"additionalProperties":false,"properties":{"toString":{"type":"string"}}}}
]`

const probeSource = `
import { defineWorker, OperationError } from "@teamsync/edge-worker";
const attempt = (work) => { try { work(); return "done"; } catch (error) { return error.name; } };
export default defineWorker({
  echo: (input) => input,
  boom: () => { throw new Error("the private text"); },
  refuse: () => { throw new OperationError(418, "teapot", "short and stout"); },
  pose: () => { throw Object.assign(new Error("x"), { name: "OperationError", status: 200, code: "posed" }); },
  mismatch: () => { throw new OperationError(409, "release_generation_mismatch", "says the author"); },
  status500: () => { throw new OperationError(500, "x", "y"); },
  shape: (input) => input,
  bigint: () => 1n,
  nothing: () => {},
  async context(_, ctx) {
    ctx.log.warn("a line", { n: 1 });
    return { keys: Object.keys(ctx).sort(), self: typeof this, config: ctx.config, caller: ctx.caller,
      operation: ctx.operation, requestId: ctx.requestId, frozen: Object.isFrozen(ctx) };
  },
  statics: (_, ctx) => ctx.staticData,
  frozen: (_, ctx) => [
    attempt(() => { ctx.staticData["deep/a.json"].list.push(1); }),
    attempt(() => { ctx.staticData.more = 1; }),
    attempt(() => { ctx.config.more = 1; }),
    attempt(() => { ctx.caller.roles.push("company_admin"); }),
    attempt(() => { ctx.storage.sql = null; }),
  ],
  rows: (count, ctx) => ctx.storage.sql.exec(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n", count).length,
  rollback(_, ctx) {
    const { sql } = ctx.storage;
    sql.exec("CREATE TABLE IF NOT EXISTS t (n INTEGER)");
    ctx.storage.transaction(() => sql.exec("INSERT INTO t VALUES (1)"));
    const outcome = attempt(() => ctx.storage.transaction(() => { sql.exec("INSERT INTO t VALUES (2)"); throw new TypeError(); }));
    return { outcome, rows: sql.exec("SELECT n FROM t").toArray() };
  },
  asynctx: (_, ctx) => ctx.storage.transaction(async () => {}),
  tables: (_, ctx) => ctx.storage.sql.exec("SELECT name FROM sqlite_master WHERE name NOT LIKE '\\_cf%' ESCAPE '\\'").toArray(),
  platform: (_, ctx) => ctx.storage.sql.exec("CREATE TABLE _cf_mine (n INTEGER)").length,
  merge(input) {
    const merge = (into, from) => {
      for (const key of Object.keys(from)) {
        if (typeof from[key] === "object") merge(into[key] ??= {}, from[key]); else into[key] = from[key];
      }
      return into;
    };
    const outcome = attempt(() => merge({}, input));
    return { outcome, polluted: typeof {}.polluted };
  },
  strict: (input) => input,
});
`

func probe(t testing.TB) *built {
	t.Helper()
	return files(t, probeOperations, map[string]string{
		"index.js":           probeSource,
		"static/deep/a.json": `{"list":[1,2],"__proto__":{"x":1}}`,
		"static/hello.txt":   "Grüße\u2028</script>",
	})
}

func TestOperations(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	cases := []struct {
		name, op, input string
		status          int
		body            string
	}{
		{"echo", "echo", `{"a":[1,null,"ü"]}`, 200, `{"a":[1,null,"ü"]}`},
		{"an empty body is null", "echo", ``, 200, `null`},
		{"any JSON value", "echo", `"text"`, 200, `"text"`},
		{"not JSON", "echo", `{`, 422, `{"detail":[{"type":"json_invalid","loc":["body"],"msg":"The body is not JSON in UTF-8"}]}`},
		{"not UTF-8", "echo", "\"\xff\"", 422, `{"detail":[{"type":"json_invalid","loc":["body"],"msg":"The body is not JSON in UTF-8"}]}`},
		{"a throwing handler", "boom", ``, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"the author's refusal", "refuse", ``, 418, `{"detail":{"code":"teapot","message":"short and stout"}}`},
		{"an error that poses as one", "pose", ``, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"a code of the door's", "mismatch", ``, 409, `{"detail":{"code":"release_generation_mismatch","message":"says the author"}}`},
		{"a refusal out of range", "status500", ``, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"a good output", "shape", `{"n":1}`, 200, `{"n":1}`},
		{"a bad output", "shape", `{"n":"x"}`, 500, `{"detail":{"code":"output_invalid","message":"The operation returned an invalid output"}}`},
		{"an output that is not JSON", "bigint", ``, 500, `{"detail":{"code":"output_invalid","message":"The operation returned an invalid output"}}`},
		{"no output is null", "nothing", ``, 200, `null`},
		{"static data", "statics", ``, 200, `{"deep/a.json":{"list":[1,2],"__proto__":{"x":1}},"hello.txt":"Grüße` + "\u2028" + `</script>"}`},
		{"what ctx holds is frozen", "frozen", ``, 200, `["TypeError","TypeError","TypeError","TypeError","TypeError"]`},
		{"rows at the bound", "rows", `10000`, 200, `10000`},
		{"rows over the bound", "rows", `10001`, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"a transaction rolls back", "rollback", ``, 200, `{"outcome":"TypeError","rows":[{"n":1}]}`},
		{"an async transaction", "asynctx", ``, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"the platform's tables", "platform", ``, 500, `{"detail":{"code":"operation_failed","message":"The operation failed"}}`},
		{"a polluting key", "echo", `{"a":[{"__proto__":{"polluted":1}}]}`, 422,
			`{"detail":[{"type":"input_key_forbidden","loc":["body","a",0,"__proto__"],"msg":"The key __proto__ is not allowed"}]}`},
		{"a polluting path", "merge", `{"constructor":{"prototype":{"polluted":"yes"}}}`, 200, `{"outcome":"TypeError","polluted":"undefined"}`},
		{"a harmless merge", "merge", `{"a":{"b":1}}`, 200, `{"outcome":"done","polluted":"undefined"}`},
		{"an inherited key is not there", "strict", `{}`, 422,
			`{"detail":[{"type":"schema_violation","loc":["body"],"msg":"Instance does not have required property \"toString\"."}]}`},
		{"an own key of that name is", "strict", `{"toString":"x"}`, 200, `{"toString":"x"}`},
		{"an unknown operation", "missing", ``, 404, `{"detail":{"code":"operation_unknown","message":"The Worker's release has no such operation"}}`},
		{"an inherited name is no operation", "constructor", ``, 404, `{"detail":{"code":"operation_unknown","message":"The Worker's release has no such operation"}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := b.invoke(t, w, c.op, c.input)
			if got.status != c.status || got.body != c.body {
				t.Errorf("got  %d %s\nwant %d %s", got.status, got.body, c.status, c.body)
			}
			if got.refusal != "" {
				t.Errorf("an answer of the Worker is marked as the %s's own", got.refusal)
			}
		})
	}
}

func TestDeepInputIsRefused(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	if got := b.invoke(t, w, "echo", nested(101)); got.status != 200 {
		t.Errorf("at the bound: %v", got)
	}
	if got := b.invoke(t, w, "echo", nested(102)); got.status != 422 || !strings.Contains(got.body, "input_too_deep") {
		t.Errorf("over the bound: %v", got)
	}
	got := b.invoke(t, w, "echo", nested(100_000))
	if got.status != 422 {
		t.Errorf("100,000 levels: %d %.200s", got.status, got.body)
	}
}
