package runtime_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// spyingSource is an author who wants what is not theirs to see: the values of
// the control instance, the account of another operation, receipts, and the
// assertion with which the data instance asks for them. It replaces globals and
// prototypes before and during a request and writes down all that passes.
const spyingSource = `
const found = new Set(), wrapped = new Set();
const { ownKeys, apply, construct } = Reflect, text = String;
let busy = false;
const note = (value, depth) => {
  if (found.size > 20000 || depth > 4) return;
  if (typeof value === "string") found.add(value);
  else if (value && (typeof value === "object" || typeof value === "function")) {
    try { for (const key of ownKeys(value)) { found.add(text(key)); note(value[key], depth + 1); } } catch {}
  }
};
// What its own work sets off is not heard again.
const hear = (value) => {
  if (busy) return;
  busy = true;
  try { note(value, 0); } finally { busy = false; }
};
const wiretap = (owner, name) => {
  try {
    const real = owner[name];
    if (typeof real !== "function" || wrapped.has(real)) return;
    const tapped = new Proxy(real, {
      apply: (target, self, args) => { hear(args); hear(self); const out = apply(target, self, args); hear(out); return out; },
      construct: (target, args) => { hear(args); const out = construct(target, args); hear(out); return out; },
    });
    wrapped.add(tapped);
    owner[name] = tapped;
  } catch {}
};
const tap = () => {
  for (const name of ["JSON", "Reflect", "Math", "crypto", "console"]) {
    const object = globalThis[name], copy = {};
    for (const key of ownKeys(object)) { wiretap(object, key); copy[key] = object[key]; wiretap(copy, key); }
    try { globalThis[name] = copy; } catch {}
  }
  for (const name of ["Object", "Array", "Map", "Set", "String", "Number", "Promise", "Response", "Request", "Headers", "URL", "TextDecoder",
    "TextEncoder", "Uint8Array", "RegExp", "Date", "Error", "Function", "Symbol", "fetch", "structuredClone", "atob", "btoa", "queueMicrotask"]) {
    const target = globalThis[name];
    if (target && target.prototype) for (const key of Reflect.ownKeys(target.prototype)) wiretap(target.prototype, key);
    if (target) for (const key of Reflect.ownKeys(target)) wiretap(target, key);
    wiretap(globalThis, name);
  }
  const iterator = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));
  wiretap(Object.getPrototypeOf([][Symbol.iterator]()), "next");
  wiretap(iterator, Symbol.iterator);
  for (const key of ["then", "toJSON", "toString", "valueOf", "get", "set", "value", "secrets", "caller", "shared", "api_key_sha256", "client_address"]) {
    try { Object.defineProperty(Object.prototype, key, { configurable: true, get() { hear(this); }, set(value) { hear(value); hear(this); } }); } catch {}
  }
};
tap();
const contexts = [];
const stored = [];
const attempt = (work) => { try { return String(work()); } catch (error) { return "threw " + error.name; } };

// All that can be reached from an object without calling anything.
const reach = (from) => {
  const seen = new Set(), texts = new Set(), queue = [from];
  while (queue.length > 0) {
    const object = queue.pop();
    if (typeof object === "string") texts.add(object);
    if (!object || !/object|function/.test(typeof object) || seen.has(object)) continue;
    seen.add(object);
    for (const key of Reflect.ownKeys(object)) {
      texts.add(String(key));
      const property = Object.getOwnPropertyDescriptor(object, key);
      queue.push(property.value, property.get, property.set);
      if (property.get) { try { queue.push(object[key]); } catch {} }
    }
    queue.push(Object.getPrototypeOf(object));
  }
  return [...texts];
};

export default {
  async spy(input, ctx) {
    tap();
    contexts.push(ctx);
    await new Promise((done) => setTimeout(done, 5));
    const error = new Error("x");
    hear(error.stack);
    JSON.parse('"the tap on JSON works"');
    new Map([["the tap on Map works", 1]]);
    hear(attempt(() => (function () { return arguments.callee.caller; })()));
    ctx.log.info("x", { toJSON() { hear(this); return {}; } });
    const reached = reach([ctx, globalThis]);
    return { toJSON(key) { hear([key, this]); return { heard: [...found], reached }; } };
  },
  thenable: () => ({ then(resolve) { hear([...arguments].map(String)); resolve(1); } }),
  sql(_, ctx) {
    const { sql } = ctx.storage;
    const run = (query, ...bindings) => attempt(() => JSON.stringify(sql.exec(query, ...bindings).toArray()));
    return ["secrets", "service_accounts", "receipts", "access_policy", "operation_rows", "assertion_ids"].map((table) => run("SELECT * FROM " + table))
      .concat([run("PRAGMA database_list"), run("ATTACH DATABASE 'control.sqlite' AS control"), run("SELECT load_extension('x')"),
        run("VACUUM INTO '/tmp/x'"), run("SELECT readfile('/etc/passwd')"), run("SELECT sql FROM sqlite_master"), run("CREATE TABLE secrets (name TEXT, value TEXT)"),
        run("INSERT INTO secrets VALUES ('A', 'mine')"), String(ctx.secrets.get("A"))]);
  },
  async call(_, ctx) {
    const out = [];
    for (const url of ["https://control/__internal/context", "http://worker/__control", "https://control/__control", "/__control", "do://control"]) {
      for (const send of [fetch, ctx.fetch]) {
        try {
          const answer = await send(url, { method: "POST", headers: { authorization: "Bearer x", "x-shared-version": "-1" }, body: "{}" });
          out.push(String(answer.status) + await answer.text());
        } catch (error) { out.push("threw"); }
      }
    }
    return [...new Set(out)];
  },
  pose: () => new Response("{}", { status: 401, headers: { "x-edge-workers-refusal": "access" } }),
  account: (_, ctx) => [ctx.serviceAccount.id, contexts.map((other) => other.serviceAccount && other.serviceAccount.id)],
  loop(_, ctx) { ctx.secrets.get.stored = 1; stored.push(ctx.secrets); return stored.every((s) => s.get("NOPE") === null); },
};`

const spyingOperations = `[{"id":"spy","method":"POST","path":"/spy"},{"id":"thenable","method":"POST","path":"/then"},
  {"id":"sql","method":"POST","path":"/sql"},{"id":"call","method":"POST","path":"/call"},{"id":"pose","method":"POST","path":"/pose"},
  {"id":"account","method":"POST","path":"/account"},{"id":"loop","method":"POST","path":"/loop"}]`

const (
	secretCanary  = "canary-secret-3e9a"
	accountCanary = "canary-password-3e9a"
	ownCanary     = "canary-own-password-3e9a"
)

// spied is the hostile Worker with something worth stealing.
func spied(t *testing.T) (*built, *worker) {
	t.Helper()
	b := files(t, spyingOperations, map[string]string{"index.js": spyingSource})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{
		{"secrets.put", putSecret("A", secretCanary), `{"conflict":false,…`},
		{"service_accounts.credentials.put", putAccount("theirs", "u", accountCanary, "salt"), `{"conflict":false,…`},
		{"service_accounts.credentials.put", putAccount("own", "u", ownCanary, "salt"), `{"conflict":false,…`},
		{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":"` + sha(workerKey) + `","lastFour":"abcd"}`, `{"conflict":false,…`},
		{"operation_settings.replace", wanted("baseRevision", 0, b.out.ReleaseGeneration, "null",
			`{"account":{"access":"inherit","service_account_id":"theirs"},"spy":{"access":"inherit","service_account_id":"own"}}`), `{"conflict":false,…`},
	})
	return b, w
}

// D9: nothing that passes between the doors and the instances is seen by author
// code, and nothing of it can be reached from what author code holds.
func TestSpyingAuthorHearsNothing(t *testing.T) {
	t.Parallel()
	b, w := spied(t)
	a := b.assertion("invoke", "spy", "")
	bearer := a.bearer(t)
	for _, op := range []string{"thenable", "account", "spy", "loop"} {
		if got := b.invoke(t, w, op, ""); got.status != 200 {
			t.Fatalf("%s: %d %.500s", op, got.status, got.body)
		}
	}
	got := w.do(t, "POST", "/__invoke/spy", bearer, strings.NewReader(""))
	var seen struct{ Heard, Reached []string }
	if got.status != 200 || json.Unmarshal([]byte(got.body), &seen) != nil {
		t.Fatalf("spy: %d %.500s", got.status, got.body)
	}
	text := strings.Join(seen.Heard, "\n") + "\n" + strings.Join(seen.Reached, "\n")
	jwt := strings.TrimPrefix(bearer, "Bearer ")
	for name, secret := range map[string]string{
		"a secret's value": secretCanary, "another operation's password": accountCanary, "the assertion": jwt, "its signature": jwt[strings.LastIndexByte(jwt, '.'):],
		"its id": a.claims["jti"].(string), "the key's digest": sha(workerKey), "a secret's digest": sha(secretCanary),
		"a header of ours": "x-shared-version", "the internal path": "__internal", "the bindings": "idFromName", "a stub": "getByName",
		"the platform's SQL": "transactionSync", "a table": "assertion_ids",
	} {
		if strings.Contains(text, secret) {
			t.Errorf("the author got hold of %s", name)
		}
	}
	// What is theirs they do see: the search finds things.
	for _, own := range []string{ownCanary, "user:42", "getRandomValues", "the tap on JSON works", "the tap on Map works"} {
		if !strings.Contains(text, own) {
			t.Errorf("the search does not even find %s", own)
		}
	}
}

func TestAuthorSQLReachesNoControlState(t *testing.T) {
	t.Parallel()
	b, w := spied(t)
	got := b.invoke(t, w, "sql", "").list(t)
	for i, answer := range got[:6] {
		if answer != "threw Error" {
			t.Errorf("control table %d: %s", i, answer)
		}
	}
	for i, answer := range got[6:11] {
		if answer != "threw Error" {
			t.Errorf("platform %d: %s", i, answer)
		}
	}
	if strings.Contains(got[11], "receipts") || got[12] != "[]" || got[13] != "[]" {
		t.Errorf("own tables: %q", got[11:])
	}
	// A table of the same name is the author's own and nobody else's.
	if got[14] != secretCanary {
		t.Errorf("the secret is now %s", got[14])
	}
	tell(t, b, w, []step{{"secrets.list", `{}`, `{"secrets":[` + secret("A", secretCanary) + `]}`}})
}

func TestAuthorForgesNoInternalCall(t *testing.T) {
	t.Parallel()
	b, w := spied(t)
	if got := b.invoke(t, w, "call", ""); got.body != `["threw"]` {
		t.Errorf("calls: %v", got)
	}
	// An answer cannot wear the mark of ours either.
	if got := b.invoke(t, w, "pose", ""); got.status != 200 || got.body != "{}" || got.refusal != "" {
		t.Errorf("pose: %v", got)
	}
	// Each operation has its own account, whatever is kept of earlier requests.
	b.invoke(t, w, "spy", "")
	if got := b.invoke(t, w, "account", ""); got.body != `["theirs",["own"]]` {
		t.Errorf("accounts: %v", got)
	}
}

// After all that listening the runtime does what it always did.
func TestSpyingAuthorChangesNothing(t *testing.T) {
	t.Parallel()
	b, w := spied(t)
	b.invoke(t, w, "spy", "")
	tell(t, b, w, []step{
		{"access_policy.replace", `{"baseRevision":1,"ipAllowlist":[],"mode":"api_key"}`, `{"conflict":false,"current":` + policy("api_key", "[]", `"abcd"`, 2) + `}`},
		{"secrets.put", `{"name":"A","value":"x","valueDigest":"` + digestA + `"}`, `422 {"detail":[{"type":"command_invalid",…`},
		{"access_policy.get", `{"__proto__":1}`, `422 …`},
		{"secrets.purge", `{}`, `{"purged":1}`},
	})
	for who, want := range map[string]string{wrongKey: keyInvalid, workerKey: "200 1"} {
		if got := said(b.invokeAs(t, w, keyed(who), "thenable", "")); got != want {
			t.Errorf("%s: got %s, want %s", who, got, want)
		}
	}
	id := uuid.NewString()
	first := `{"baseRevision":2,"ipAllowlist":[],"mode":"private"}`
	for range 2 {
		if got := b.mutate(t, w, "access_policy.replace", id, first).result(t); got != `{"conflict":false,"current":`+policy("private", "[]", `"abcd"`, 3)+`}` {
			t.Errorf("mutation: %s", got)
		}
	}
	if got := b.mutate(t, w, "access_policy.replace", id, `{"baseRevision":3,"ipAllowlist":[],"mode":"private"}`); got.status != 409 {
		t.Errorf("another command: %v", got)
	}
}

// Names of the runtime's own, declared by the author, are other names in the
// bundle: nothing is overwritten.
func TestNameTricksInTheBundle(t *testing.T) {
	t.Parallel()
	names := []string{
		"createWorker", "Control", "Data", "Verifier", "commands", "commandFor", "admit", "secretValues", "account", "accessPolicy", "receipt", "sameText",
		"verifySignature", "JSONparse", "hasOwn", "settingOf", "readConstants", "understands", "DurableObject", "TeamSyncDepartmentStorage", "freeze",
	}
	var source strings.Builder
	for i, name := range names {
		// var and function reach a script's global scope; a module's own names do not.
		if i%2 == 0 {
			fmt.Fprintf(&source, "export var %s = () => true;\nglobalThis.%s = %s;\n", name, name, name)
		} else {
			fmt.Fprintf(&source, "export function %s() { return { kind: 'system' }; }\n", name)
		}
	}
	source.WriteString(`export class env {}; export default { me: (_, ctx) => ctx.caller.kind };`)
	b := files(t, `[{"id":"me","method":"POST","path":"/me"}]`, map[string]string{"index.js": source.String()})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	if got := said(b.invokeAs(t, w, caller("public"), "me", "")); got != signIn {
		t.Errorf("public: %s", got)
	}
	if got := b.invokeAs(t, w, caller("member"), "me", ""); got.body != `"member"` {
		t.Errorf("member: %v", got)
	}
	a := b.assertion("control", "access_policy.get", b.envelope(t, "access_policy.get", "{}"))
	a.key = foreignKey
	if got := w.do(t, "POST", "/__control", a.bearer(t), strings.NewReader(b.envelope(t, "access_policy.get", "{}"))); got.status != 401 {
		t.Errorf("forged: %v", got)
	}
	tell(t, b, w, []step{{"access_policy.get", `{}`, `{"policy":` + policy("private", "[]", "null", 0) + `}`}})
}
