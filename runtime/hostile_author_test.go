package runtime_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// D9: what RegExp remembers of anybody's last match is not shown: with it a
// handler read the digest of its caller's API key, and, while it waited, what
// commands carried.
func TestAuthorSeesNoMatchesOfTheRuntime(t *testing.T) {
	t.Parallel()
	b := files(t, `[{"id":"see","method":"POST","path":"/see"}]`, map[string]string{"index.js": `
const names = ["$_", "$&", "$+", "$` + "`" + `", "$'", "input", "lastMatch", "lastParen", "leftContext", "rightContext", "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9"];
const refused = new Set();
class Mine extends RegExp {}
const look = () => [RegExp, Mine, /x/, RegExp.prototype].flatMap((at) => names.map((name) => { try { return at[name]; } catch (error) { refused.add(error.message); } })).filter((seen) => seen !== undefined);
export default { async see() {
  const first = look();
  const match = /b(.)/.exec("abc");
  const mine = look();
  await new Promise((done) => setTimeout(done, 200));
  return { first, mine, later: look(), match: [...match], replaced: "abc".replace(/(b)/, "[$1]"), species: RegExp[Symbol.species] === RegExp, refused: refused.size, why: [...refused].find((why) => why.includes("lastMatch")) };
} };`})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":[],"mode":"public"}`, `{"conflict":false,…`}})
	waiting := make(chan answer)
	go func() { waiting <- b.invokeAs(t, w, keyed(workerKey).with("client_address", "192.0.2.7"), "see", "") }()
	tell(t, b, w, []step{{"access_policy.api_key.rotate", `{"baseRevision":1,"keyDigest":"` + digestA + `","lastFour":"abcd"}`, `{"conflict":false,…`}})
	want := `{"first":[],"mine":[],"later":[],"match":["bc","c"],"replaced":"a[b]c","species":true,"refused":19,` +
		`"why":"RegExp[\"lastMatch\"] is not available in an Edge Worker: use what exec or match returns"}`
	for _, got := range []answer{<-waiting, b.invokeAs(t, w, keyed(workerKey), "see", "")} {
		if got.status != 200 || got.body != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	}
}

// Everything that the author tried while the module was evaluated fails in the
// same way during a request, and the doors are what they were after it.
func TestHostileAuthorDuringRequests(t *testing.T) {
	t.Parallel()
	source := strings.Replace(hostileSource, "const attempt =", "const assault = () => {\nout.length = 0;\nconst attempt =", 1)
	source = strings.Replace(source, "export default {", `
attempt("add a listener", () => { for (const kind of ["fetch", "error", "unhandledrejection", "message"]) addEventListener(kind, () => out.push("heard " + kind)); });
return out.slice();
};
export default { assault, async later() { await new Promise((done) => setTimeout(done, 5)); return assault(); },`, 1)
	b := files(t, `[{"id":"report","method":"POST","path":"/report"},{"id":"orders.get","method":"POST","path":"/get"},
		{"id":"assault","method":"POST","path":"/assault"},{"id":"later","method":"POST","path":"/later"}]`, map[string]string{"index.js": source})
	for _, op := range []string{"assault", "later"} {
		w := mustStart(t, b.out.Bundle, t.TempDir())
		got := b.invoke(t, w, op, "").list(t)
		if len(got) != 28 {
			t.Errorf("%s: %d attempts: %q", op, len(got), got)
		}
		for _, line := range got {
			name, _, harmless := strings.Cut(line, ": ")
			if harmless && !slices.Contains([]string{"define verify", "crypto", "promise", "parse", "storage", "process", "reach bindings", "reach anything", "add a listener"}, name) {
				t.Errorf("%s: %s", op, line)
			}
		}
		if !slices.Contains(got, "reach bindings: false") || !slices.Contains(got, "process: undefined") {
			t.Errorf("%s: %q", op, got)
		}
		for _, c := range refusals("control") {
			body := b.envelope(t, "access_policy.get", "{}")
			a := b.assertion("control", "access_policy.get", body)
			c.change(a)
			if answer := w.do(t, "POST", "/__control", a.bearer(t), strings.NewReader(body)); answer.status != c.status {
				t.Errorf("%s, then %s: %v", op, c.name, answer)
			}
		}
		for _, c := range refusals("invoke") {
			if c.name == "another operation" {
				c.change = claim("op", "report")
			}
			a := b.assertion("invoke", "orders.get", "{}")
			c.change(a)
			if answer := w.do(t, "POST", "/__invoke/orders.get", a.bearer(t), strings.NewReader("{}")); answer.status != c.status {
				t.Errorf("%s, then %s: %v", op, c.name, answer)
			}
		}
		if got := b.invoke(t, w, "report", ""); got.status != 200 || strings.Contains(got.body, "heard") {
			t.Errorf("a listener heard: %v", got)
		}
	}
}

// The author's SQL is theirs alone: what reaches for other files, other
// connections or the platform throws, and whatever they do to their own
// database, commands and access are as before.
func TestHostileAuthorSQL(t *testing.T) {
	t.Parallel()
	source := `const attempt = (work) => { try { return JSON.stringify(work()); } catch (error) { return "threw " + error.name; } };
export default {
  run: (query, ctx) => attempt(() => ctx.storage.sql.exec(query).toArray()),
  inside: (query, ctx) => attempt(() => ctx.storage.transaction(() => ctx.storage.sql.exec(query).toArray())),
  secret: (name, ctx) => ctx.secrets.get(name),
};`
	b := files(t, `[{"id":"run","method":"POST","path":"/run"},{"id":"inside","method":"POST","path":"/inside"},{"id":"secret","method":"POST","path":"/secret"}]`,
		map[string]string{"index.js": source})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{{"secrets.put", putSecret("A", secretCanary), `{"conflict":false,…`}})
	refused := []string{
		"ATTACH DATABASE ':memory:' AS control", "ATTACH 'file:../control.sqlite?mode=ro' AS control", "DETACH DATABASE main", "VACUUM", "VACUUM INTO '/tmp/stolen'",
		"BEGIN", "BEGIN EXCLUSIVE", "COMMIT", "ROLLBACK", "SAVEPOINT mine", "RELEASE mine",
		"PRAGMA database_list", "SELECT * FROM pragma_database_list", "PRAGMA writable_schema = 1", "PRAGMA journal_mode = OFF", "PRAGMA key = 'x'",
		"PRAGMA temp_store_directory = '/tmp'", "PRAGMA user_version = 7", "SELECT load_extension('x')", "SELECT readfile('/etc/passwd')", "SELECT writefile('/tmp/x', 'y')", "SELECT edit('x')",
		"SELECT * FROM _cf_KV", "SELECT * FROM _cf_METADATA", "CREATE TABLE _cf_mine (n)", "DROP TABLE _cf_KV",
		"SELECT * FROM control.secrets", "SELECT * FROM secrets", "SELECT * FROM main.receipts", "SELECT * FROM temp.access_policy", "DELETE FROM assertion_ids",
		"UPDATE sqlite_master SET sql = 'x'", "DELETE FROM sqlite_master", "INSERT INTO sqlite_schema VALUES (1, 2, 3, 4, 5)", "UPDATE sqlite_sequence SET seq = 1",
		"SELECT fts3_tokenizer('x')", "CREATE VIRTUAL TABLE c USING csv(filename = '/etc/passwd')", "CREATE VIRTUAL TABLE d USING dbstat", "SELECT * FROM dbstat", "EXPLAIN ATTACH ':memory:' AS x", "SELECT 1; ATTACH ':memory:' AS x", "SELECT 1; COMMIT",
	}
	for _, op := range []string{"run", "inside"} {
		for _, query := range refused {
			if got := b.invoke(t, w, op, quoted(query)); got.status != 200 || !strings.HasPrefix(got.body, `"threw `) {
				t.Errorf("%s %s: %v", op, query, got)
			}
		}
	}
	for _, query := range []string{
		"SELECT name FROM sqlite_master", "CREATE TABLE secrets (name TEXT, value TEXT)", "INSERT INTO secrets VALUES ('A', 'mine')", "CREATE TABLE receipts (n)", "CREATE TABLE access_policy (mode)",
		"INSERT INTO access_policy VALUES ('public')", "SELECT value FROM secrets",
	} {
		got := b.invoke(t, w, "run", quoted(query))
		if strings.Contains(got.body, "threw") || strings.Contains(got.body, secretCanary) || strings.Contains(got.body, "operation_rows") {
			t.Errorf("%s: %v", query, got)
		}
	}
	if got := b.invoke(t, w, "run", `"SELECT value FROM secrets"`); got.body != `"[{\"value\":\"mine\"}]"` { // the control
		t.Errorf("the author's own row: %v", got)
	}
	if got := b.invoke(t, w, "secret", `"A"`); got.body != `"`+secretCanary+`"` {
		t.Errorf("the secret: %v", got)
	}
	tell(t, b, w, []step{
		{"secrets.list", `{}`, `{"secrets":[` + secret("A", secretCanary) + `]}`},
		{"access_policy.get", `{}`, `{"policy":` + policy("private", "[]", "null", 0) + `}`},
	})
	if got := said(b.invokeAs(t, w, caller("public"), "secret", `"A"`)); got != signIn {
		t.Errorf("a public caller: %s", got)
	}
}

// No name leads from a handler's fetch into the Worker: every request leaves by
// the one way out, where this test stands.
func TestForgedInternalCallsLeave(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	outside := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Host+r.URL.Path)
		rw.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(outside.Close)
	arrived := func() []string {
		mu.Lock()
		defer mu.Unlock()
		out := seen
		seen = nil
		return out
	}
	b := files(t, `[{"id":"call","method":"POST","path":"/call"}]`, map[string]string{"index.js": `
export default { async call(urls, ctx) {
  const out = [];
  for (const url of urls) for (const send of [fetch, ctx.fetch, (...all) => new Function.prototype.constructor("return 1")])
    for (const headers of [{}, { authorization: "Bearer x", "x-shared-version": "-1", "x-edge-workers-refusal": "access", "cf-worker": "x" }])
      try { out.push((await send(url, { method: "POST", headers, body: "{}" })).status); } catch (error) { out.push("threw " + error.name); }
  return out.join(" ");
} };`})
	w := mustStartOut(t, b.out.Bundle, strings.TrimPrefix(outside.URL, "http://"))
	web := []string{
		"https://control/__internal/context", "http://control/__internal/context", "http://control/__control", "http://data/__invoke/call", "http://main/__control",
		"http://TEAMSYNC_DEPARTMENT_STORAGE/__internal/context", "http://worker/__control", "http://localhost/__internal/context", "http://127.0.0.1/__control",
		"http://[::1]/__control", "http://" + scriptName + "/__control", "http://disk/", "http://nowhere/", "http://fake-host/__internal/context",
	}
	input, _ := json.Marshal(web)
	if got := b.invoke(t, w, "call", string(input)); got.body != `"`+strings.TrimSpace(strings.Repeat("418 418 418 418 threw EvalError threw EvalError ", len(web)))+`"` {
		t.Errorf("got %v", got)
	}
	if out := arrived(); len(out) != 4*len(web) || !slices.Contains(out, "control/__internal/context") {
		t.Errorf("%d requests outside: %q", len(out), out)
	}
	for _, url := range []string{"/__internal/context", "control", "do://control/", "file:///etc/passwd", "unix:/s", "workerd://main", "service://main", "cloudflare:workers", "blob:x", "javascript:1", ""} {
		got := b.invoke(t, w, "call", `[`+quoted(url)+`]`)
		if out := arrived(); got.status != 200 || strings.Contains(got.body, "200") || len(out) != 0 {
			t.Errorf("%s: %v, outside %q", url, got, out)
		}
	}
}

// tryBuild builds what a hostile author sends, and gives why it was refused.
func tryBuild(t *testing.T, sources map[string]string) (*built, error) {
	t.Helper()
	p, err := project.Read(bytes.NewReader(projecttest.Archive(t, sources)))
	if err != nil {
		return nil, err
	}
	b, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public(currentKey), public(nextKey)}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Build(t.Context(), builder.Input{Project: p, ScriptName: scriptName, Policy: builder.Current})
	if err != nil {
		return nil, err
	}
	return &built{out}, nil
}

// Files that are named like the runtime's modules, the platform's or the
// bundle's are refused or are the author's files and nothing else.
func TestFilesNamedLikeModules(t *testing.T) {
	t.Parallel()
	names := []string{
		"index.mjs", "runtime.mjs", "src/runtime.mjs", "dist/runtime.mjs", "worker.js", "constants.js", "control.js", "assertion.js", "teamsync:runtime.js", "teamsync-runtime.js",
		"cloudflare:workers.js", "cloudflare-workers.js", "@teamsync/edge-worker.js", "__proto__.js", "constructor.js", "a b.js", "ü.js", "'.js", "`+x+`.js", "-.js", "*/ x.js", "%2e%2e.js",
	}
	started := 0
	for _, name := range names {
		worker := `{"schema_version":1,"name":"probe","language":"javascript","entry":"main.js","compatibility_date":"2026-11-01",` +
			`"operations":[{"id":"me","method":"POST","path":"/me"}]}`
		b, err := tryBuild(t, map[string]string{
			"worker.json": worker, name: `export const mine = "mine"; export class TeamSyncDepartmentStorage {}; export const createWorker = () => null; export default mine;`,
			"main.js": "import { mine } from " + quoted("./"+name) + ";\nexport * from " + quoted("./"+name) + ";\nexport default { me: (_, ctx) => mine + ctx.caller.kind };",
		})
		if err != nil {
			if !strings.Contains(err.Error(), "archive_") && !strings.Contains(err.Error(), "import_") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		started++
		w := mustStart(t, b.out.Bundle, t.TempDir())
		if got := b.invokeAs(t, w, caller("member"), "me", ""); got.body != `"minemember"` {
			t.Errorf("%s: %v", name, got)
		}
		if got := said(b.invokeAs(t, w, caller("public"), "me", "")); got != signIn {
			t.Errorf("%s: public: %s", name, got)
		}
		body := b.envelope(t, "access_policy.get", "{}")
		a := b.assertion("control", "access_policy.get", body)
		a.key = foreignKey
		if got := w.do(t, "POST", "/__control", a.bearer(t), strings.NewReader(body)); got.status != 401 {
			t.Errorf("%s: forged: %v", name, got)
		}
		tell(t, b, w, []step{{"access_policy.get", `{}`, `{"policy":` + policy("private", "[]", "null", 0) + `}`}})
		w.kill()
	}
	if started < 10 {
		t.Errorf("only %d of %d names were tried on workerd", started, len(names))
	}
}

// What an author exports is read once, by own keys, and never changes what the
// doors do.
func TestExoticExports(t *testing.T) {
	t.Parallel()
	const noFunction = `worker.json lists the operation "me"`
	cases := []struct{ name, source, refused, said string }{
		{"a getter", `let n = 0; export default { get me() { n++; return () => n; } };`, "", `1`},
		{"a getter that throws", `export default { get me() { throw new Error("mine"); } };`, "mine", ""},
		{"a proxy", `export default new Proxy({ me: () => "real" }, { get: () => () => "trap" });`, "", `"trap"`},
		{"a proxy that has everything", `export default new Proxy({}, { getOwnPropertyDescriptor: () => ({ value: 1, configurable: true }), has: () => true, get: () => () => 1, ownKeys: () => ["me"] });`, "", `1`},
		{"a proxy that changes", `let n = 0; export default new Proxy({ me: 1 }, { get: () => (n++ === 0 ? () => "first" : null) });`, "", `"first"`},
		{"a revoked proxy", `const p = Proxy.revocable({ me: () => 1 }, {}); p.revoke(); export default p.proxy;`, "revoked", ""},
		{"a thenable", `export default { me: () => "me", then(resolve) { resolve({ me: () => "then" }); } };`, "", `"me"`},
		{"an export named then", `export function then(resolve) { resolve({ default: null }); } export default { me: () => "me" };`, "", `"me"`},
		{"a promise", `export default Promise.resolve({ me: () => 1 });`, noFunction, ""},
		{"toJSON and toString", `export default { me: () => "me", toJSON: () => { throw 1; }, toString: () => { throw 2; }, valueOf: () => { throw 3; } };`, "", `"me"`},
		{"an instance", `class Mine { me() { return 1; } } export default new Mine();`, noFunction, ""},
		{"an instance with its own", `class Mine { me = () => "own"; } export default new Mine();`, "", `"own"`},
		{"no prototype", `export default Object.assign(Object.create(null), { me: () => "bare" });`, "", `"bare"`},
		{"doors of its own", `export default { me: () => "me", fetch: () => new Response("mine"), scheduled() {}, tail() {}, email() {} };`, "", `"me"`},
		{"a storage class of its own", `export class TeamSyncDepartmentStorage { fetch() { return new Response("mine"); } } export default { me: () => "me" };`, "", `"me"`},
		{"a proxy as handler", `export default { me: new Proxy(() => 1, { apply: (target, self, args) => [typeof self, args.length], get() { throw 1; } }) };`, "", `["undefined",2]`},
		{"a class as handler", `export default { me: class { constructor() { return { mine: 1 }; } } };`, "", `500`},
		{"an answer with toJSON", `export default { me: () => ({ toJSON: () => "json" }) };`, "", `"json"`},
		{"an answer that is a proxy", `export default { me: () => new Proxy([1, 2], { get: (o, k) => (k === "length" ? 1 : o[k]) }) };`, "", `[1]`},
		{"an answer that is revoked", `export default { me: () => { const p = Proxy.revocable({}, {}); p.revoke(); return p.proxy; } };`, "", `500`},
		{"a then that throws", `export default { me: () => ({ get then() { throw new Error("x"); } }) };`, "", `500`},
		{"a then that resolves twice", `export default { me: () => ({ then(yes, no) { yes(1); no(2); yes(3); } }) };`, "", `1`},
		{"null thrown", `export default { me: () => { throw null; } };`, "", `500`},
		{"a hostile error thrown", `export default { me: () => { throw new Proxy(new Error("x"), { get() { throw 1; }, getPrototypeOf() { throw 2; }, has() { throw 3; } }); } };`, "", `500`},
		{"an error that poses as a refusal", `export default { me: () => { throw Object.assign(new Error("x"), { status: 200, response: () => new Response("mine"), detail: "mine" }); } };`, "", `500`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := files(t, `[{"id":"me","method":"POST","path":"/me"}]`, map[string]string{"index.js": c.source})
			w, err := startWorker(t, b.out.Bundle, t.TempDir())
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got := b.invoke(t, w, "me", "")
				if got.body != c.said && (c.said != "500" || got.status != 500) || got.refusal != "" {
					t.Errorf("got %v, want %s", got, c.said)
				}
			}
			if got := said(b.invokeAs(t, w, caller("public"), "me", "")); got != signIn {
				t.Errorf("a public caller: %s", got)
			}
			if got := w.do(t, "POST", "/__control", "", nil); got.status != 401 {
				t.Errorf("without assertion: %v", got)
			}
			tell(t, b, w, []step{{"access_policy.get", `{}`, fmt.Sprintf(`{"policy":%s}`, policy("private", "[]", "null", 0))}})
		})
	}
}
