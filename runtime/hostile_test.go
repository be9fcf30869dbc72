package runtime_test

import (
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// hostileSource is an author who tries everything before the first request:
// to blind the signature check, to read what passes through the doors, to make
// code from text and to reach the bindings.
const hostileSource = `
const out = [];
const attempt = (name, work) => {
  try { const value = work(); out.push(name + ": " + String(value)); }
  catch (error) { out.push(name + " threw " + error.name); }
};
attempt("verify", () => { SubtleCrypto.prototype.verify = async () => true; });
attempt("own verify", () => { crypto.subtle.verify = async () => true; });
attempt("define verify", () => { Object.defineProperty(crypto.subtle, "verify", { value: async () => true }); });
attempt("crypto", () => { Object.defineProperty(globalThis, "crypto", { value: { subtle: { verify: async () => true } } }); });
attempt("then", () => { Promise.prototype.then = function (f) { return f(true); }; });
attempt("promise", () => { globalThis.Promise = class {}; });
attempt("headers", () => { Headers.prototype.get = () => "stolen"; });
attempt("startsWith", () => { String.prototype.startsWith = () => true; });
attempt("iterator", () => { Array.prototype[Symbol.iterator] = function* () {}; });
attempt("map", () => { Map.prototype.has = () => false; });
attempt("test", () => { RegExp.prototype.test = () => true; });
attempt("parse", () => { globalThis.JSON = { parse: () => ({}), stringify: () => "{}" }; });
attempt("proto", () => { Object.prototype.policy = 1; });
attempt("setter", () => { Object.defineProperty(Object.prototype, "sub", { set() {}, get() { return "admin"; } }); });
attempt("storage", () => { globalThis.Response = class {}; });
attempt("stack", () => { Error.prepareStackTrace = (_, frames) => frames; });
attempt("Function", () => new Function("return 1")());
attempt("constructor", () => (() => {}).constructor("return 1")());
attempt("async constructor", () => (async () => {}).constructor("return import('cloudflare:workers')")());
attempt("generator constructor", () => (function* () {}).constructor("yield 1")());
attempt("async generator constructor", () => (async function* () {}).constructor("yield 1")());
attempt("Reflect.construct", () => Reflect.construct(Object.getPrototypeOf(() => {}).constructor, ["return 1"])());
attempt("indirect eval", () => globalThis.eval("1 + 1"));
attempt("timer", () => setTimeout("1"));
attempt("process", () => typeof process);

// Every object that can be reached from the globals, accessors included.
const reach = (wanted) => {
  const seen = new Set();
  const queue = [globalThis];
  let hits = 0;
  while (queue.length > 0) {
    const object = queue.pop();
    if (seen.has(object)) continue;
    seen.add(object);
    for (const key of Reflect.ownKeys(object)) {
      if (wanted.test(String(key))) hits++;
      const property = Object.getOwnPropertyDescriptor(object, key);
      const values = [property.value, property.get, property.set];
      if (property.get) { try { values.push(object[key]); } catch {} }
      for (const value of values) if (value && /object|function/.test(typeof value)) queue.push(value);
    }
    const prototype = Object.getPrototypeOf(object);
    if (prototype) queue.push(prototype);
  }
  return hits > 0;
};
attempt("reach bindings", () => reach(/getBuiltinModule|createRequire|idFromName|linkedBinding/));
attempt("reach anything", () => reach(/getRandomValues/));
export default { report: () => out, "orders.get": () => "ran" };
`

func hostile(t *testing.T) (*built, *worker) {
	t.Helper()
	b := files(t, `[{"id":"report","method":"POST","path":"/report"},{"id":"orders.get","method":"POST","path":"/get"}]`,
		map[string]string{"index.js": hostileSource})
	return b, mustStart(t, b.out.Bundle, t.TempDir())
}

func TestHostileAuthorReachesNothing(t *testing.T) {
	t.Parallel()
	b, w := hostile(t)
	got := strings.Join(b.invoke(t, w, "report", "").list(t), "\n")
	want := strings.TrimSpace(`
verify threw TypeError
own verify threw TypeError
define verify: undefined
crypto: undefined
then threw TypeError
promise: undefined
headers threw TypeError
startsWith threw TypeError
iterator threw TypeError
map threw TypeError
test threw TypeError
parse: undefined
proto threw TypeError
setter threw TypeError
storage: undefined
stack threw TypeError
Function threw EvalError
constructor threw EvalError
async constructor threw EvalError
generator constructor threw EvalError
async generator constructor threw EvalError
Reflect.construct threw EvalError
indirect eval threw EvalError
timer threw TypeError
process: undefined
reach bindings: false
reach anything: true`)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// With the author's replacements in place, both doors still refuse every
// assertion that they must refuse and accept the good ones.
func TestHostileAuthorOpensNoDoor(t *testing.T) {
	t.Parallel()
	b, w := hostile(t)
	doors := []struct{ door, op, path, body string }{
		{"control", "access_policy.get", "/__control", b.envelope(t, "access_policy.get", "{}")},
		{"invoke", "orders.get", "/__invoke/orders.get", `{}`},
	}
	for _, d := range doors {
		for _, c := range refusals(d.door) {
			if c.name == "another operation" {
				c.change = claim("op", "report")
			}
			a := b.assertion(d.door, d.op, d.body)
			c.change(a)
			got := w.do(t, "POST", d.path, a.bearer(t), strings.NewReader(d.body))
			if got.status != c.status {
				t.Errorf("%s/%s: got %v, want %d", d.door, c.name, got, c.status)
			}
		}
		bearer := b.assertion(d.door, d.op, d.body).bearer(t)
		for i, want := range []int{200, 409} {
			if got := w.do(t, "POST", d.path, bearer, strings.NewReader(d.body)); got.status != want {
				t.Errorf("%s, use %d: %v", d.door, i+1, got)
			}
		}
	}
}

// Code that is merely old-fashioned keeps working although the built-ins are
// frozen.
func TestOrdinaryCodeRuns(t *testing.T) {
	t.Parallel()
	b := files(t, `[{"id":"run","method":"POST","path":"/run"}]`, map[string]string{"index.js": `
class Mine extends Error { constructor(text) { super(text); this.name = "Mine"; this.message = text + "!"; } }
function Old() {}
Old.prototype.toString = function () { return "old"; };
Old.prototype.constructor = Old;
class List extends Array { last() { return this.at(-1); } }
export default { async run() {
  const own = {};
  own.toString = () => "own";
  own.hasOwnProperty = () => true;
  const library = () => {};
  library.bind = () => "bound";
  const later = new Promise((resolve) => setTimeout(resolve, 1, "later"));
  return [String(new Mine("x")), String(new Old()), String(own), List.from([1, 2]).last(), await later,
    [..."ab"].map((c) => c.toUpperCase()), (function () { return this.a; }).call({ a: 5 }), library.bind(), typeof Buffer, typeof fetch];
} };`})
	w := mustStart(t, b.out.Bundle, t.TempDir())
	got := b.invoke(t, w, "run", "")
	want := `["Mine: x!","old","own",2,"later",["A","B"],5,"bound","function","function"]`
	if got.status != 200 || got.body != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

// A module that cannot serve its manifest does not start: the upload is
// refused and nothing half-working goes live.
func TestBundlesThatDoNotStart(t *testing.T) {
	t.Parallel()
	one := `[{"id":"a.b","method":"POST","path":"/a"}]`
	cases := []struct{ name, source, message string }{
		{"a missing handler", `export default { "a.c": () => 1 };`,
			`worker.json lists the operation "a.b", but the default export of index.js has no function of that name`},
		{"a handler that is no function", `export default { "a.b": 1 };`,
			`worker.json lists the operation "a.b", but the default export of index.js has no function of that name`},
		{"an inherited handler", `export default Object.create({ "a.b": () => 1 });`,
			`worker.json lists the operation "a.b", but the default export of index.js has no function of that name`},
		{"a default export that is no object", `export default () => 1;`,
			`The default export of index.js must be an object of handlers: use defineWorker({…})`},
		{"a module that throws", `export default {}; throw new Error("at the top");`, `at the top`},
		{"a changed built-in", `Array.prototype.sum = () => 0; export default { "a.b": () => 1 };`, `not extensible`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := files(t, one, map[string]string{"index.js": c.source})
			_, err := startWorker(t, b.out.Bundle, t.TempDir())
			if err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, want %q", err, c.message)
			}
		})
	}
	good := files(t, one, map[string]string{"index.js": `export default { "a.b": () => 1 };`})
	mustStart(t, good.out.Bundle, t.TempDir())
}

// A bundle whose keys are others refuses everything that ours sign.
func TestKeysAreCompiledIn(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	a := b.assertion("invoke", "orders.list", "{}")
	signed(jwt.SigningMethodEdDSA, foreignKey)(a)
	if got := w.do(t, "POST", "/__invoke/orders.list", a.bearer(t), strings.NewReader("{}")); got.status != 401 {
		t.Errorf("foreign key: %v", got)
	}
	if got := b.invoke(t, w, "orders.list", "{}"); got.status != 200 {
		t.Errorf("our key: %v", got)
	}
}
