package runtime_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
)

const (
	digestA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	zeros   = "0000000000000000000000000000000000000000000000000000000000000000"
)

// result is the canonical text of what a command answered, with every time
// replaced by T after its form was checked.
func (a answer) result(t testing.TB) string {
	t.Helper()
	if a.status != 200 {
		return fmt.Sprintf("%d %s", a.status, a.body)
	}
	raw, err := canonical.JSON(a.value(t)["result"])
	if err != nil {
		t.Fatal(err)
	}
	return timeFields.ReplaceAllStringFunc(string(raw), func(found string) string {
		key, value, _ := strings.Cut(found, ":")
		_, err := time.Parse(`"2006-01-02T15:04:05.000Z"`, value)
		if err != nil {
			t.Errorf("%s is no time with milliseconds: %v", found, err)
		}
		return key + `:"T"`
	})
}

var timeFields = regexp.MustCompile(`"(updated_at|createdAt)":"[^"]*"`)

// step is one command of a story and what it must answer. Where the answer is
// cut off by "…", its beginning.
type step struct{ op, payload, want string }

// tell sends the steps one after another; those of mutations get ids of their own.
func tell(t *testing.T, b *built, w *worker, steps []step) {
	t.Helper()
	for i, s := range steps {
		got := b.either(t, w, s.op, s.payload).result(t)
		start, partly := strings.CutSuffix(s.want, "…")
		if got != s.want && (!partly || !strings.HasPrefix(got, start)) {
			t.Errorf("step %d, %s %.300s:\ngot  %.600s\nwant %.600s", i+1, s.op, s.payload, got, s.want)
		}
	}
}

// either sends a read or a mutation, as the operation is.
func (b *built) either(t testing.TB, w *worker, op, payload string) answer {
	t.Helper()
	if reads[op] {
		return b.command(t, w, op, payload)
	}
	return b.mutate(t, w, op, uuid.NewString(), payload)
}

// reads are the operations that take no mutationId.
var reads = map[string]bool{
	"access_policy.get": true, "runtime_config.get": true, "control.receipt.get": true, "control.receipt.ack": true,
	"secrets.list": true, "operation_settings.get": true, "service_accounts.list": true,
}

func policy(mode, allowlist, lastFour string, revision int) string {
	updated := `"T"`
	if revision == 0 {
		updated = "null"
	}
	return fmt.Sprintf(`{"api_key_configured":%t,"api_key_last_four":%s,"ip_allowlist":%s,"mode":%q,"revision":%d,"updated_at":%s}`,
		lastFour != "null", lastFour, allowlist, mode, revision, updated)
}

// The results have exactly the keys, revisions and texts that the control plane
// demands of a receipt.
func TestAccessPolicyCommands(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	const list = `["192.0.2.0/24","2001:db8::/32"]`
	tell(t, b, w, []step{
		{"access_policy.get", `{}`, `{"policy":` + policy("private", "[]", "null", 0) + `}`},
		{"access_policy.replace", `{"baseRevision":1,"ipAllowlist":[],"mode":"public"}`,
			`{"conflict":true,"current":` + policy("private", "[]", "null", 0) + `}`},
		// Nothing was ever set, and yet the receipt has a time.
		{"access_policy.api_key.revoke", `{"baseRevision":0}`,
			`{"conflict":false,"current":` + strings.Replace(policy("private", "[]", "null", 0), "null}", `"T"}`, 1) + `,"revoked":false}`},
		{"access_policy.get", `{}`, `{"policy":` + policy("private", "[]", "null", 0) + `}`},
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":` + list + `,"mode":"api_key"}`,
			`{"conflict":false,"current":` + policy("api_key", list, "null", 1) + `}`},
		{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":"` + digestA + `","lastFour":"abcd"}`,
			`{"conflict":true,"current":` + policy("api_key", list, "null", 1) + `}`},
		{"access_policy.api_key.rotate", `{"baseRevision":1,"keyDigest":"` + digestA + `","lastFour":"ab_-"}`,
			`{"conflict":false,"current":` + policy("api_key", list, `"ab_-"`, 2) + `}`},
		{"access_policy.replace", `{"baseRevision":2,"ipAllowlist":[],"mode":"public"}`,
			`{"conflict":false,"current":` + policy("public", "[]", `"ab_-"`, 3) + `}`},
		{"access_policy.api_key.revoke", `{"baseRevision":2}`,
			`{"conflict":true,"current":` + policy("public", "[]", `"ab_-"`, 3) + `,"revoked":false}`},
		{"access_policy.api_key.revoke", `{"baseRevision":3}`,
			`{"conflict":false,"current":` + policy("public", "[]", "null", 4) + `,"revoked":true}`},
		{"access_policy.api_key.revoke", `{"baseRevision":4}`,
			`{"conflict":false,"current":` + policy("public", "[]", "null", 4) + `,"revoked":false}`},
		{"access_policy.get", `{}`, `{"policy":` + policy("public", "[]", "null", 4) + `}`},
	})
}

func config(t testing.TB, valueJSON string, revision int) string {
	t.Helper()
	text, err := json.Marshal(valueJSON)
	if err != nil {
		t.Fatal(err)
	}
	updated := `"T"`
	if revision == 0 {
		updated = "null"
	}
	return fmt.Sprintf(`{"revision":%d,"sha256":%q,"updated_at":%s,"valueJson":%s}`, revision, canonical.SHA256([]byte(valueJSON)), updated, text)
}

// The stored text is canonical and hashes to its sha256.
func TestRuntimeConfigCommands(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{
		{"runtime_config.get", `{}`, `{"config":` + config(t, "{}", 0) + `}`},
		{"runtime_config.replace", `{"baseRevision":0,"valueJson":"{\"a\":[1,\"ü\"],\"b\":{}}"}`,
			`{"conflict":false,"current":` + config(t, `{"a":[1,"ü"],"b":{}}`, 1) + `}`},
		{"runtime_config.replace", `{"baseRevision":0,"valueJson":"{}"}`, `{"conflict":true,"current":` + config(t, `{"a":[1,"ü"],"b":{}}`, 1) + `}`},
		{"runtime_config.get", `{}`, `{"config":` + config(t, `{"a":[1,"ü"],"b":{}}`, 1) + `}`},
		{"runtime_config.delete", `{"baseRevision":0}`, `{"conflict":true,"current":` + config(t, `{"a":[1,"ü"],"b":{}}`, 1) + `}`},
		{"runtime_config.delete", `{"baseRevision":1}`, `{"conflict":false,"current":` + config(t, "{}", 2) + `}`},
		{"runtime_config.get", `{}`, `{"config":` + config(t, "{}", 2) + `}`},
	})
}

// A handler sees each change at its next invocation, and never the one before.
func TestHandlersSeeTheConfiguration(t *testing.T) {
	t.Parallel()
	b := files(t, `[{"id":"config","method":"POST","path":"/config"}]`, map[string]string{"index.js": `
export default { config: (_, ctx) => { try { ctx.config.list.push(1); return "changed"; } catch { return ctx.config; } } };`})
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	see := func(want string) {
		t.Helper()
		if got := b.invoke(t, w, "config", ""); got.body != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	see(`{}`)
	for i := range 5 {
		value := fmt.Sprintf(`{"list":[%d]}`, i)
		text, _ := json.Marshal(value)
		got := b.mutate(t, w, "runtime_config.replace", uuid.NewString(), fmt.Sprintf(`{"baseRevision":%d,"valueJson":%s}`, i, text))
		if got.status != 200 {
			t.Fatalf("replace: %v", got)
		}
		see(value)
		see(value)
	}
	w.kill()
	w = mustStart(t, b.out.Bundle, storage)
	see(`{"list":[4]}`)
	b.mutate(t, w, "runtime_config.delete", uuid.NewString(), `{"baseRevision":5}`)
	see(`{}`)
}

// invalid is a payload with one fault and where the refusal must point.
type invalid struct{ op, payload, loc string }

// mustRefuse sends each of them and demands 422 at its place.
func mustRefuse(t *testing.T, b *built, w *worker, cases []invalid) {
	t.Helper()
	for _, c := range cases {
		got := b.either(t, w, c.op, c.payload)
		var said struct {
			Detail []struct {
				Type string
				Loc  []any
			}
		}
		if got.status == 422 {
			_ = json.Unmarshal([]byte(got.body), &said)
		}
		loc := ""
		if len(said.Detail) == 1 && said.Detail[0].Type == "command_invalid" {
			loc = strings.Trim(fmt.Sprint(said.Detail[0].Loc), "[]")
		}
		if loc != "body payload "+c.loc {
			t.Errorf("%s %.200s: got %d %.300s at %q, want %q", c.op, c.payload, got.status, got.body, loc, c.loc)
		}
	}
}

// badRevisions are all but true integers from 0 to 2^53−1.
var badRevisions = []string{`true`, `"0"`, `0.5`, `-1`, `9007199254740992`, `1e+30`, `null`, `[]`, `{}`}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func TestPolicyAndConfigRefuseInvalidPayloads(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	cases := []invalid{
		{"access_policy.get", `{"x":1}`, "x"},
		{"access_policy.replace", `{}`, "baseRevision"},
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":[]}`, "mode"},
		{"access_policy.replace", `{"baseRevision":0,"mode":"public"}`, "ipAllowlist"},
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":[],"mode":"public","x":1}`, "x"},
		{"access_policy.replace", `{"__proto__":{"mode":"public"},"baseRevision":0,"ipAllowlist":[],"mode":"public"}`, "__proto__"},
		{"access_policy.replace", `{"baseRevision":0,"constructor":1,"ipAllowlist":[],"mode":"public"}`, "constructor"},
		{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":"` + digestA + `"}`, "lastFour"},
		{"access_policy.api_key.revoke", `{}`, "baseRevision"},
		{"runtime_config.replace", `{"baseRevision":0}`, "valueJson"},
		{"runtime_config.delete", `{}`, "baseRevision"},
	}
	for _, revision := range badRevisions {
		cases = append(cases,
			invalid{"access_policy.replace", `{"baseRevision":` + revision + `,"ipAllowlist":[],"mode":"public"}`, "baseRevision"},
			invalid{"access_policy.api_key.rotate", `{"baseRevision":` + revision + `,"keyDigest":"` + digestA + `","lastFour":"abcd"}`, "baseRevision"},
			invalid{"access_policy.api_key.revoke", `{"baseRevision":` + revision + `}`, "baseRevision"},
			invalid{"runtime_config.replace", `{"baseRevision":` + revision + `,"valueJson":"{}"}`, "baseRevision"},
			invalid{"runtime_config.delete", `{"baseRevision":` + revision + `}`, "baseRevision"})
	}
	for _, mode := range []string{`"disabled"`, `"inherit"`, `"Public"`, `"constructor"`, `1`, `null`, `["public"]`} {
		cases = append(cases, invalid{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":[],"mode":` + mode + `}`, "mode"})
	}
	for _, list := range []string{`null`, `{}`, `"10.0.0.0/8"`, `[` + strings.Repeat(`"10.0.0.0/8",`, 64) + `"10.0.0.0/8"]`} {
		cases = append(cases, invalid{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":` + list + `,"mode":"public"}`, "ipAllowlist"})
	}
	for _, entry := range []string{
		`1`, `null`, `""`, `"10.0.0.1"`, `"10.0.0.1/8"`, `"10.0.0/8"`, `"10.0.0.0/33"`, `"10.0.0.0/08"`, `"10.0.0.0/"`, `"10.0.0.0/+8"`, `"010.0.0.0/8"`,
		`"256.0.0.0/8"`, `"10.0.0.0/8 "`, `"10.0.0.0/8\n"`, `"::/129"`, `"::1/64"`, `"1::2::3/128"`, `":1/128"`, `"1:2:3:4:5:6:7/128"`,
		`"1:2:3:4:5:6:7:8:9/128"`, `"1:2:3:4:5:6:7:8::/128"`, `"g::/16"`, `"fe80::%eth0/64"`, `"::ffff:10.0.0.0/104"`, `"10.0.0.0/8/8"`, `"1.2.3.4::/128"`,
	} {
		cases = append(cases, invalid{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":["::1/128",` + entry + `],"mode":"public"}`, "ipAllowlist 1"})
	}
	cases = append(cases, invalid{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":["::1/128","::1/128"],"mode":"public"}`, "ipAllowlist 1"})
	for _, digest := range []string{`"` + digestA[1:] + `"`, `"` + digestA + `a"`, `"` + strings.ToUpper(digestA) + `"`, `"` + digestA + `\n"`, `1`, `null`} {
		cases = append(cases, invalid{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":` + digest + `,"lastFour":"abcd"}`, "keyDigest"})
	}
	for _, four := range []string{`"abc"`, `"abcde"`, `"ab d"`, `"äbcd"`, `1234`, `null`} {
		cases = append(cases, invalid{"access_policy.api_key.rotate", `{"baseRevision":0,"keyDigest":"` + digestA + `","lastFour":` + four + `}`, "lastFour"})
	}
	// Good is an object of at most 65,536 bytes, in canonical form.
	for _, value := range []string{
		``, `[]`, `1`, `null`, `"x"`, `{`, `{} `, `{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1.0}`, `{"a":"\u0041"}`, `{"a":"\ud800"}`, `{"a":1e400}`,
		`{"a":"` + strings.Repeat("ü", 32_765) + `"}`,
	} {
		cases = append(cases, invalid{"runtime_config.replace", `{"baseRevision":0,"valueJson":` + quoted(value) + `}`, "valueJson"})
	}
	cases = append(cases,
		invalid{"runtime_config.replace", `{"baseRevision":0,"valueJson":{}}`, "valueJson"},
		invalid{"runtime_config.replace", `{"baseRevision":0,"valueJson":` + quoted(`{"a":{"__proto__":{}}}`) + `}`, "valueJson a __proto__"})
	mustRefuse(t, b, w, cases)
	deep := b.either(t, w, "runtime_config.replace", `{"baseRevision":0,"valueJson":`+quoted(`{"a":`+nested(5000)+`}`)+`}`)
	if deep.status != 422 || !strings.Contains(deep.body, "nested deeper") {
		t.Errorf("deep: %v", deep)
	}
	// Nothing of all that changed anything, and what is just inside passes.
	many := make([]string, 64)
	for i := range many {
		many[i] = fmt.Sprintf(`"10.%d.0.0/16"`, i)
	}
	list := "[" + strings.Join(many, ",") + "]"
	value := `{"a":"` + strings.Repeat("ü", 32_764) + `"}`
	value = value[:len(value)-2] + "abc"[:65_536-len(value)] + `"}`
	if len(value) != 65_536 {
		t.Fatalf("%d bytes", len(value))
	}
	tell(t, b, w, []step{
		{"access_policy.replace", `{"baseRevision":0,"ipAllowlist":` + list + `,"mode":"public"}`, `{"conflict":false,"current":` + policy("public", list, "null", 1) + `}`},
		{"access_policy.replace", `{"baseRevision":1,"ipAllowlist":["0.0.0.0/0","::/0","1:2:3:4:5:6:7:8/128","::/8","64:ff9b::192.0.2.0/120","1::/16"],"mode":"public"}`, `{"conflict":false,…`},
		{"access_policy.replace", `{"baseRevision":9007199254740991,"ipAllowlist":[],"mode":"public"}`, `{"conflict":true,…`},
		{"runtime_config.replace", `{"baseRevision":0,"valueJson":` + quoted(value) + `}`, `{"conflict":false,…`},
		{"runtime_config.replace", `{"baseRevision":1,"valueJson":` + quoted(`{"constructor":{"prototype":1}}`) + `}`, `{"conflict":false,…`},
	})
}

func receiptQuery(id, digest string) string {
	return `{"commandDigest":"` + digest + `","mutationId":"` + id + `"}`
}

// D10: a mutation is applied once; its receipt can be read
// until it is acknowledged, also after a restart.
func TestReceipts(t *testing.T) {
	t.Parallel()
	b := example(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	id := uuid.NewString()
	const first = `{"baseRevision":0,"ipAllowlist":[],"mode":"public"}`
	digest := digestOf(t, "access_policy.replace", first)
	applied := `{"conflict":false,"current":` + policy("public", "[]", "null", 1) + `}`
	found := `{"found":true,"receipt":{"commandDigest":"` + digest + `","createdAt":"T","mutationId":"` + id +
		`","operation":"access_policy.replace","result":` + applied + `}}`
	none := `{"found":false,"receipt":null}`
	conflict := `409 {"detail":{"code":"mutation_conflict","message":"The mutation id was used for another command"}}`
	same := func(payload, want string) {
		t.Helper()
		if got := b.mutate(t, w, "access_policy.replace", id, payload).result(t); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	ask := step{"control.receipt.get", receiptQuery(id, digest), found}
	tell(t, b, w, []step{{"control.receipt.get", receiptQuery(id, digest), none}})
	same(first, applied)
	tell(t, b, w, []step{ask})
	same(first, applied)
	same(`{"baseRevision":1,"ipAllowlist":[],"mode":"private"}`, conflict)
	tell(t, b, w, []step{
		ask,
		{"control.receipt.get", receiptQuery(id, digestB), conflict},
		{"control.receipt.ack", receiptQuery(id, digestB), conflict},
		ask,
		{"access_policy.replace", `{"baseRevision":1,"ipAllowlist":[],"mode":"api_key"}`, `{"conflict":false,…`},
	})
	// The stored result is from then, not from now.
	same(first, applied)
	w.kill()
	w = mustStart(t, b.out.Bundle, storage)
	same(first, applied)
	tell(t, b, w, []step{
		ask,
		{"control.receipt.ack", receiptQuery(id, digest), `{"acknowledged":true}`},
		{"control.receipt.get", receiptQuery(id, digest), none},
		{"control.receipt.ack", receiptQuery(id, digest), `{"acknowledged":true}`},
		{"access_policy.get", `{}`, `{"policy":` + policy("api_key", "[]", "null", 2) + `}`},
	})
}

// A change that was refused because its base was not current leaves nothing
// behind that the reconciler could take for a change.
func TestConflictLeavesNoReceipt(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	stale := `{"baseRevision":7,"ipAllowlist":[],"mode":"public"}`
	id := uuid.NewString()
	for range 2 {
		if got := b.mutate(t, w, "access_policy.replace", id, stale).result(t); !strings.HasPrefix(got, `{"conflict":true,`) {
			t.Errorf("stale: %s", got)
		}
	}
	noop := uuid.NewString()
	b.mutate(t, w, "access_policy.api_key.revoke", noop, `{"baseRevision":0}`)
	tell(t, b, w, []step{
		{"control.receipt.get", receiptQuery(id, digestOf(t, "access_policy.replace", stale)), `{"found":false,"receipt":null}`},
		{"control.receipt.get", receiptQuery(noop, digestOf(t, "access_policy.api_key.revoke", `{"baseRevision":0}`)), `{"found":true,…`},
	})
}

func TestReceiptCommandsRefuseInvalidPayloads(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	id := uuid.NewString()
	for _, op := range []string{"control.receipt.get", "control.receipt.ack"} {
		mustRefuse(t, b, w, []invalid{
			{op, `{}`, "mutationId"},
			{op, `{"mutationId":"` + id + `"}`, "commandDigest"},
			{op, receiptQuery(strings.ToUpper(id), digestA), "mutationId"},
			{op, receiptQuery("constructor", digestA), "mutationId"},
			{op, receiptQuery("' OR 1=1 --", digestA), "mutationId"},
			{op, receiptQuery(id, "x"), "commandDigest"},
			{op, `{"commandDigest":"` + digestA + `","mutationId":["` + id + `"]}`, "mutationId"},
			{op, `{"commandDigest":"` + digestA + `","mutationId":"` + id + `","x":1}`, "x"},
		})
		got := b.mutate(t, w, op, id, receiptQuery(id, digestA))
		if got.status != 422 || !strings.Contains(got.body, `["body","mutationId"]`) {
			t.Errorf("%s with a mutationId: %v", op, got)
		}
	}
	got := b.command(t, w, "access_policy.api_key.revoke", `{"baseRevision":0}`)
	if got.status != 422 || !strings.Contains(got.body, `["body","mutationId"]`) {
		t.Errorf("a mutation without mutationId: %v", got)
	}
}

// since are all commands and the policy that added each.
var since = map[string]builder.Policy{
	"access_policy.get": builder.V2_5, "access_policy.replace": builder.V2_5, "access_policy.api_key.rotate": builder.V2_5,
	"access_policy.api_key.revoke": builder.V2_5, "runtime_config.get": builder.V2_5, "runtime_config.replace": builder.V2_5,
	"runtime_config.delete": builder.V2_5, "control.receipt.get": builder.V2_5, "control.receipt.ack": builder.V2_5,
	"secrets.list": builder.V2_6, "secrets.put": builder.V2_6, "secrets.delete": builder.V2_6, "secrets.purge": builder.V2_7,
	"operation_settings.get": builder.V2_8, "operation_settings.stage": builder.V2_8, "operation_settings.replace": builder.V2_8,
	"operation_settings.api_key.rotate": builder.V2_8, "operation_settings.api_key.revoke": builder.V2_8,
	"service_accounts.list": builder.V2_8, "service_accounts.credentials.put": builder.V2_8,
	"service_accounts.credentials.delete": builder.V2_8,
}

// D8: a bundle of an older policy truly lacks what came later.
func TestOlderPoliciesLackLaterCommands(t *testing.T) {
	t.Parallel()
	archive, err := project.Pack("../examples/orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range builder.Policies() {
		b := build(t, archive, policy)
		w := mustStart(t, b.out.Bundle, t.TempDir())
		for op, added := range since {
			// The unknown key is only seen by a release that knows the command.
			got := b.either(t, w, op, `{"x":1}`)
			known := got.status == 422
			unknown := got.status == 404 && got.code(t) == "control_operation_unknown"
			if known != policy.AtLeast(added) || unknown == known {
				t.Errorf("%s, %s: %v", policy, op, got)
			}
		}
	}
}

// A command's id is used up, however often its request arrives.
func TestMutationArrivesTwice(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	const op = "access_policy.replace"
	payload := `{"baseRevision":0,"ipAllowlist":[],"mode":"public"}`
	id := uuid.NewString()
	body := b.mutation(t, op, id, payload)
	bearer := b.assertion("control", op, body).bearer(t)
	if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)); got.status != 200 {
		t.Fatalf("first: %v", got)
	}
	tell(t, b, w, []step{{"control.receipt.ack", receiptQuery(id, digestOf(t, op, payload)), `{"acknowledged":true}`}})
	// The receipt is gone; the assertion's id is what keeps the copy out.
	got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body))
	if got.status != 409 || got.code(t) != "assertion_replayed" {
		t.Errorf("copy: %v", got)
	}
}

// A copy that meets the next release is a replay, not a command for another
// release: the first one was applied, and "another release" would deny it.
func TestMutationArrivesAgainAtTheNextRelease(t *testing.T) {
	t.Parallel()
	old, next := settingsProject(t, ""), settingsProject(t, "// next")
	storage := t.TempDir()
	w := mustStart(t, old.out.Bundle, storage)
	send := func(base int, of *built) (string, string, answer) {
		const op = "access_policy.replace"
		body := of.mutation(t, op, uuid.NewString(), fmt.Sprintf(`{"baseRevision":%d,"ipAllowlist":[],"mode":"public"}`, base))
		bearer := of.assertion("control", op, body).bearer(t)
		return body, bearer, w.do(t, "POST", "/__control", bearer, strings.NewReader(body))
	}
	body, bearer, first := send(0, old)
	if first.status != 200 {
		t.Fatalf("first: %v", first)
	}
	w.kill()
	w = mustStart(t, next.out.Bundle, storage)
	if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)); got.status != 409 || got.code(t) != "assertion_replayed" {
		t.Errorf("the copy: %v", got)
	}
	if _, _, got := send(1, old); got.code(t) != "release_generation_mismatch" {
		t.Errorf("a command that came once: %v", got)
	}
	if _, _, got := send(1, next); got.status != 200 {
		t.Errorf("the next change: %v", got)
	}
}
