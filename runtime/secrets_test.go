package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

func sha(text string) string { return canonical.SHA256([]byte(text)) }

func putSecret(name, value string) string {
	return `{"name":` + quoted(name) + `,"value":` + quoted(value) + `,"valueDigest":"` + sha(value) + `"}`
}

func secret(name, value string) string {
	return `{"name":"` + name + `","sha256":"` + sha(value) + `","updated_at":"T"}`
}

// The results of the secrets' commands; S1-116: after a purge no secret is left.
func TestSecretsCommands(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	deleted := func(name string, was bool) string {
		return fmt.Sprintf(`{"conflict":false,"current":{"deleted":%t,"name":%q,"updated_at":"T"},"deleted":%t}`, was, name, was)
	}
	longest := "A" + strings.Repeat("9_", 31) + "Z"
	tell(t, b, w, []step{
		{"secrets.list", `{}`, `{"secrets":[]}`},
		{"secrets.put", putSecret("B_2", "value b"), `{"conflict":false,"current":` + secret("B_2", "value b") + `}`},
		{"secrets.put", putSecret("A", "ü\u0000\n€"), `{"conflict":false,"current":` + secret("A", "ü\u0000\n€") + `}`},
		{"secrets.list", `{}`, `{"secrets":[` + secret("A", "ü\u0000\n€") + `,` + secret("B_2", "value b") + `]}`},
		{"secrets.put", putSecret("A", "again"), `{"conflict":false,"current":` + secret("A", "again") + `}`},
		{"secrets.delete", `{"name":"B_2"}`, deleted("B_2", true)},
		{"secrets.delete", `{"name":"B_2"}`, deleted("B_2", false)},
		{"secrets.list", `{}`, `{"secrets":[` + secret("A", "again") + `]}`},
		{"secrets.put", putSecret(longest, strings.Repeat("ü", 2560)), `{"conflict":false,…`},
		{"secrets.put", putSecret("SQL", `'); DROP TABLE secrets; --`), `{"conflict":false,"current":` + secret("SQL", `'); DROP TABLE secrets; --`) + `}`},
		{"secrets.purge", `{}`, `{"purged":3}`},
		{"secrets.purge", `{}`, `{"purged":0}`},
		{"secrets.list", `{}`, `{"secrets":[]}`},
	})
}

func TestSecretsAreBounded(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	for i := range 64 {
		got := b.either(t, w, "secrets.put", putSecret(fmt.Sprintf("S%d", i), strings.Repeat("x", 5120)))
		if got.status != 200 {
			t.Fatalf("secret %d: %v", i, got)
		}
	}
	full := `409 {"detail":{"code":"secret_limit_reached","message":"A Worker has at most 64 secrets"}}`
	tell(t, b, w, []step{
		{"secrets.put", putSecret("ONE_MORE", "x"), full},
		{"secrets.put", putSecret("S7", "another"), `{"conflict":false,"current":` + secret("S7", "another") + `}`},
		{"secrets.delete", `{"name":"S0"}`, `{"conflict":false,…`},
		{"secrets.put", putSecret("ONE_MORE", "x"), `{"conflict":false,…`},
		{"secrets.purge", `{}`, `{"purged":64}`},
	})
}

func TestSecretsRefuseInvalidPayloads(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	cases := []invalid{
		{"secrets.put", `{}`, "name"},
		{"secrets.put", `{"name":"A","value":"x"}`, "valueDigest"},
		{"secrets.put", `{"name":"A","valueDigest":"` + digestA + `"}`, "value"},
		// Secrets have no revision.
		{"secrets.put", strings.Replace(putSecret("A", "x"), "{", `{"baseRevision":0,`, 1), "baseRevision"},
		{"secrets.delete", `{"baseRevision":0,"name":"A"}`, "baseRevision"},
		{"secrets.delete", `{}`, "name"},
		{"secrets.purge", `{"name":"A"}`, "name"},
		{"secrets.list", `{"name":"A"}`, "name"},
		{"secrets.put", `{"name":"A","value":"x","valueDigest":"` + digestA + `"}`, "valueDigest"},
		{"secrets.put", `{"name":"A","value":"x","valueDigest":"` + strings.ToUpper(sha("x")) + `"}`, "valueDigest"},
		{"secrets.put", `{"name":"A","value":"x","valueDigest":["` + sha("x") + `"]}`, "valueDigest"},
		{"secrets.put", putSecret("A", ""), "value"},
		{"secrets.put", putSecret("A", strings.Repeat("x", 5121)), "value"},
		{"secrets.put", putSecret("A", strings.Repeat("ü", 2561)), "value"},
		{"secrets.put", `{"name":"A","value":1,"valueDigest":"` + digestA + `"}`, "value"},
		{"secrets.put", `{"name":"A","value":null,"valueDigest":"` + digestA + `"}`, "value"},
		{"secrets.put", `{"name":"A","value":["x"],"valueDigest":"` + sha("x") + `"}`, "value"},
	}
	for _, name := range []string{"", "a", "1A", "_A", "A-B", "A B", "A\n", "Ä", "__proto__", "constructor", "A'; DROP TABLE secrets --", "A" + strings.Repeat("B", 64)} {
		cases = append(cases, invalid{"secrets.put", putSecret(name, "x"), "name"}, invalid{"secrets.delete", `{"name":` + quoted(name) + `}`, "name"})
	}
	for _, name := range []string{`1`, `null`, `["A"]`, `{}`} {
		cases = append(cases, invalid{"secrets.delete", `{"name":` + name + `}`, "name"})
	}
	mustRefuse(t, b, w, cases)
	// Half of a surrogate pair: no text, and not canonical JSON.
	half := strings.Replace(putSecret("A", "x"), `"x"`, `"\ud800"`, 1)
	body := strings.Replace(b.mutation(t, "secrets.put", uuid.NewString(), putSecret("A", "x")), putSecret("A", "x"), half, 1)
	if got := b.sign(t, w, "secrets.put", body); got.status != 422 || !strings.Contains(got.body, "not canonical") {
		t.Errorf("half a pair: %v", got)
	}
	tell(t, b, w, []step{{"secrets.list", `{}`, `{"secrets":[]}`}})
}

// Values go in and never come out of the control door:
// not in answers, not in receipts, not in the log.
func TestSecretsNeverComeBack(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	const canary = "canary-value-7d1f"
	var seen strings.Builder
	note := func(got answer) { seen.WriteString(got.body + "\n") }
	payloads := map[string]string{
		"secrets.put":                      putSecret("CANARY", canary),
		"service_accounts.credentials.put": putAccount("canary", "user", canary, "canary-salt-7d1f"),
	}
	for op, payload := range payloads {
		id := uuid.NewString()
		for range 2 {
			note(b.mutate(t, w, op, id, payload))
		}
		note(b.command(t, w, "control.receipt.get", receiptQuery(id, digestOf(t, op, payload))))
		note(b.command(t, w, "control.receipt.get", receiptQuery(id, digestA)))
		note(b.mutate(t, w, op, id, strings.Replace(payload, "anary", "ANARY", 1)))
		note(b.mutate(t, w, op, uuid.NewString(), strings.Replace(payload, `"`+sha(canary), `"`+digestA, 1)))
		// A body that is refused is not repeated to whoever sent it.
		body := b.mutation(t, op, uuid.NewString(), payload)
		note(b.sign(t, w, op, body+" "))
		note(b.sign(t, w, "secrets.list", body))
	}
	for _, op := range []string{"secrets.list", "service_accounts.list", "access_policy.get", "runtime_config.get", "operation_settings.get"} {
		note(b.command(t, w, op, "{}"))
	}
	for _, text := range []string{seen.String(), w.stderr.String()} {
		if strings.Contains(text, canary) || strings.Contains(text, "canary-salt") {
			t.Errorf("a value came back: %s", text)
		}
	}
	if !strings.Contains(seen.String(), sha(canary)) {
		t.Error("the digest was not seen either: nothing was put")
	}
}

const readerSource = `
export default {
  read: (name, ctx) => ctx.secrets.get(name),
  shape: (_, ctx) => [Object.keys(ctx.secrets), Object.isFrozen(ctx.secrets), JSON.stringify(ctx.secrets), typeof ctx.secrets.get],
  account: (_, ctx) => ctx.serviceAccount && { ...ctx.serviceAccount, really: ctx.serviceAccount.password,
    json: JSON.stringify(ctx.serviceAccount), frozen: Object.isFrozen(ctx.serviceAccount) },
  other: (_, ctx) => ctx.serviceAccount && ctx.serviceAccount.id,
  async slow(_, ctx) { const before = ctx.secrets.get("A"); await new Promise((done) => setTimeout(done, 300)); return [before, ctx.secrets.get("A")]; },
  keys: (_, ctx) => Object.keys(ctx).sort(),
};`

const readerOperations = `[{"id":"read","method":"POST","path":"/read"},{"id":"shape","method":"POST","path":"/shape"},
  {"id":"account","method":"POST","path":"/account"},{"id":"other","method":"POST","path":"/other"},
  {"id":"slow","method":"POST","path":"/slow"},{"id":"keys","method":"POST","path":"/keys"}]`

func reader(t testing.TB) *built {
	t.Helper()
	return files(t, readerOperations, map[string]string{"index.js": readerSource})
}

func TestHandlersReadSecrets(t *testing.T) {
	t.Parallel()
	b := reader(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	see := func(name, want string) {
		t.Helper()
		if got := b.invoke(t, w, "read", name); got.body != want {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
	put := func(name, value string) {
		t.Helper()
		tell(t, b, w, []step{{"secrets.put", putSecret(name, value), `{"conflict":false,…`}})
	}
	see(`"A"`, `null`)
	put("A", "first\u0000ü")
	see(`"A"`, `"first\u0000ü"`)
	put("A", "second")
	put("B", "other")
	see(`"A"`, `"second"`)
	for _, name := range []string{`"a"`, `"C"`, `"__proto__"`, `"constructor"`, `"toString"`, `null`, `1`, `[]`, `{}`, ``} {
		see(name, `null`)
	}
	if got := b.invoke(t, w, "shape", ""); got.body != `[["get"],true,"{}","function"]` {
		t.Errorf("shape: %v", got)
	}
	w.kill()
	w = mustStart(t, b.out.Bundle, storage)
	see(`"B"`, `"other"`)
	tell(t, b, w, []step{{"secrets.delete", `{"name":"B"}`, `{"conflict":false,…`}})
	see(`"B"`, `null`)
	see(`"A"`, `"second"`)
	tell(t, b, w, []step{{"secrets.purge", `{}`, `{"purged":1}`}})
	see(`"A"`, `null`)
}

// An invocation keeps the secrets it began with; the next one sees the new ones.
func TestSecretsOfARunningInvocation(t *testing.T) {
	t.Parallel()
	b := reader(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	tell(t, b, w, []step{{"secrets.put", putSecret("A", "old"), `{"conflict":false,…`}})
	begun := make(chan answer)
	go func() { begun <- b.invoke(t, w, "slow", "") }()
	tell(t, b, w, []step{{"secrets.put", putSecret("A", "new"), `{"conflict":false,…`}})
	if got := b.invoke(t, w, "read", `"A"`); got.body != `"new"` {
		t.Errorf("the next one: %v", got)
	}
	if got := <-begun; got.body != `["old","old"]` && got.body != `["new","new"]` {
		t.Errorf("the running one: %v", got)
	}
}

// D8: what a policy lacks is not in ctx either.
func TestContextOfOlderPolicies(t *testing.T) {
	t.Parallel()
	archive := projecttest.Archive(t, map[string]string{
		"index.js": readerSource,
		"worker.json": `{"schema_version":1,"name":"reader","language":"javascript","entry":"index.js","compatibility_date":"2026-11-01","operations":` +
			readerOperations + `}`,
	})
	storage := t.TempDir()
	for _, policy := range builder.Policies() {
		b := build(t, archive, policy)
		w := mustStart(t, b.out.Bundle, storage)
		keys := strings.Join(b.invoke(t, w, "keys", "").list(t), " ")
		if got, want := strings.Contains(keys, "secrets"), policy.AtLeast(builder.V2_6); got != want {
			t.Errorf("%s: secrets %t in %s", policy, got, keys)
		}
		if got, want := strings.Contains(keys, "serviceAccount"), policy.AtLeast(builder.V2_8); got != want {
			t.Errorf("%s: serviceAccount %t in %s", policy, got, keys)
		}
		w.kill()
	}
}

func putAccount(id, username, password, salt string) string {
	return `{"password":` + quoted(password) + `,"passwordDigest":"` + sha(salt+"\x00"+password) + `","salt":` + quoted(salt) +
		`,"serviceAccountId":` + quoted(id) + `,"username":` + quoted(username) + `}`
}

func accountOf(id, username, password, salt string) string {
	return `{"passwordDigest":"` + sha(salt+"\x00"+password) + `","serviceAccountId":"` + id + `","updated_at":"T","username":"` + username + `"}`
}

// The results of the accounts' commands.
func TestServiceAccountCommands(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	deleted := func(id string, was bool) string {
		return fmt.Sprintf(`{"conflict":false,"current":{"deleted":%t,"serviceAccountId":%q,"updated_at":"T"},"deleted":%t}`, was, id, was)
	}
	tell(t, b, w, []step{
		{"service_accounts.list", `{}`, `{"service_accounts":[]}`},
		{"service_accounts.credentials.put", putAccount("b", "bob", "pw", "salt"), `{"conflict":false,"current":` + accountOf("b", "bob", "pw", "salt") + `}`},
		{"service_accounts.credentials.put", putAccount("constructor", "ann", "pw\x00ü", "s"), `{"conflict":false,"current":` + accountOf("constructor", "ann", "pw\x00ü", "s") + `}`},
		{"service_accounts.credentials.put", putAccount("b", "ben", "pw2", "salt"), `{"conflict":false,"current":` + accountOf("b", "ben", "pw2", "salt") + `}`},
		{"service_accounts.list", `{}`, `{"service_accounts":[` + accountOf("b", "ben", "pw2", "salt") + `,` + accountOf("constructor", "ann", "pw\x00ü", "s") + `]}`},
		{"service_accounts.credentials.delete", `{"serviceAccountId":"b"}`, deleted("b", true)},
		{"service_accounts.credentials.delete", `{"serviceAccountId":"b"}`, deleted("b", false)},
		{"service_accounts.list", `{}`, `{"service_accounts":[` + accountOf("constructor", "ann", "pw\x00ü", "s") + `]}`},
	})
	for i := range 63 {
		tell(t, b, w, []step{{"service_accounts.credentials.put", putAccount(fmt.Sprintf("a%d", i), "u", "p", "s"), `{"conflict":false,…`}})
	}
	tell(t, b, w, []step{
		{"service_accounts.credentials.put", putAccount("one.more", "u", "p", "s"), `409 {"detail":{"code":"service_account_limit_reached",…`},
		{"service_accounts.credentials.put", putAccount("a5", "u2", "p", "s"), `{"conflict":false,…`},
	})
}

func TestServiceAccountsRefuseInvalidPayloads(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	const put, del = "service_accounts.credentials.put", "service_accounts.credentials.delete"
	good := putAccount("a", "u", "p", "s")
	cases := []invalid{
		{put, `{}`, "serviceAccountId"},
		{del, `{}`, "serviceAccountId"},
		{put, strings.Replace(good, "{", `{"baseRevision":0,`, 1), "baseRevision"},
		{del, `{"baseRevision":0,"serviceAccountId":"a"}`, "baseRevision"},
		{"service_accounts.list", `{"x":0}`, "x"},
		{put, strings.Replace(good, sha("s\x00p"), sha("sp"), 1), "passwordDigest"},
		{put, strings.Replace(good, sha("s\x00p"), sha("p"), 1), "passwordDigest"},
		{put, strings.Replace(good, `"`+sha("s\x00p")+`"`, `null`, 1), "passwordDigest"},
		{put, putAccount("a", "", "p", "s"), "username"},
		{put, putAccount("a", strings.Repeat("u", 257), "p", "s"), "username"},
		{put, putAccount("a", "u\n", "p", "s"), "username"},
		{put, putAccount("a", "u", "", "s"), "password"},
		{put, putAccount("a", "u", strings.Repeat("p", 1025), "s"), "password"},
		{put, putAccount("a", "u", "p", ""), "salt"},
		{put, putAccount("a", "u", "p", strings.Repeat("s", 257)), "salt"},
		// Where the salt ends would be open to choice.
		{put, putAccount("a", "u", "p", "s\x00"), "salt"},
		{put, strings.Replace(good, `"username":"u"`, `"username":1`, 1), "username"},
		{put, strings.Replace(good, `"password":"p"`, `"password":["p"]`, 1), "password"},
		{put, strings.Replace(good, `"salt":"s"`, `"salt":null`, 1), "salt"},
	}
	for _, id := range []string{"", " a", "a b", "-a", "__proto__", "a\n", "ä", "a/b", "a'", strings.Repeat("a", 65)} {
		cases = append(cases, invalid{put, putAccount(id, "u", "p", "s"), "serviceAccountId"}, invalid{del, `{"serviceAccountId":` + quoted(id) + `}`, "serviceAccountId"})
	}
	mustRefuse(t, b, w, cases)
	tell(t, b, w, []step{{"service_accounts.list", `{}`, `{"service_accounts":[]}`}})
}

// An operation gets the account that is bound to it, else the default one, and
// no other.
func TestHandlersUseTheirServiceAccount(t *testing.T) {
	t.Parallel()
	b := reader(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	see := func(op, want string) {
		t.Helper()
		if got := b.invoke(t, w, op, ""); got.body != want {
			t.Errorf("%s: got %v, want %s", op, got, want)
		}
	}
	shown := func(id, username, password string) string {
		return fmt.Sprintf(`{"id":%q,"username":%q,"really":%q,"json":%s,"frozen":true}`, id, username, password,
			quoted(fmt.Sprintf(`{"id":%q,"username":%q}`, id, username)))
	}
	see("account", "null")
	replace := func(base int, byDefault, own string) step {
		payload := fmt.Sprintf(`{"baseRevision":%d,"defaultServiceAccountId":%s,"operations":{"account":{"access":"inherit","service_account_id":%s}},"releaseGeneration":%q}`,
			base, byDefault, own, b.out.ReleaseGeneration)
		return step{"operation_settings.replace", payload, `{"conflict":false,…`}
	}
	put := func(id string) step {
		return step{"service_accounts.credentials.put", putAccount(id, "user-"+id, "pw-"+id, "s"), `{"conflict":false,…`}
	}
	tell(t, b, w, []step{put("a"), put("b")})
	see("account", "null")
	tell(t, b, w, []step{replace(0, `"a"`, `null`)})
	see("account", shown("a", "user-a", "pw-a"))
	see("other", `"a"`)
	tell(t, b, w, []step{replace(1, `"a"`, `"b"`)})
	see("account", shown("b", "user-b", "pw-b"))
	see("other", `"a"`)
	tell(t, b, w, []step{replace(2, `null`, `"b"`), {"service_accounts.credentials.put", putAccount("b", "new", "pw", "s"), `{"conflict":false,…`}})
	see("account", shown("b", "new", "pw"))
	see("other", "null")
	// A binding without credentials is nobody, and not the default account.
	tell(t, b, w, []step{replace(3, `"a"`, `"b"`), {"service_accounts.credentials.delete", `{"serviceAccountId":"b"}`, `{"conflict":false,…`}})
	see("account", "null")
	see("other", `"a"`)
}

// The author's own database holds nothing of it: control state is a file of
// another instance.
func TestValuesStayInTheControlInstance(t *testing.T) {
	t.Parallel()
	b := reader(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	const canary = "canary-in-one-file-51c2"
	tell(t, b, w, []step{
		{"secrets.put", putSecret("A", canary), `{"conflict":false,…`},
		{"service_accounts.credentials.put", putAccount("a", "u", canary, "s"), `{"conflict":false,…`},
	})
	if got := b.invoke(t, w, "read", `"A"`); got.body != quoted(canary) {
		t.Fatalf("read: %v", got)
	}
	w.kill()
	holding := map[string]bool{}
	err := filepath.WalkDir(storage, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), canary) {
			holding[strings.SplitN(filepath.Base(path), ".", 2)[0]] = true
		}
		return err
	})
	if err != nil || len(holding) != 1 {
		raw, _ := json.Marshal(holding)
		t.Errorf("values are in %s (%v)", raw, err)
	}
}
