package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/teamsync/edge-workers/pkg/builder"
)

const settingsSource = `export default { one: () => 1, two: () => 2, "constructor": () => 3 };`

const settingsOperations = `[{"id":"one","method":"POST","path":"/one"},{"id":"two","method":"POST","path":"/two"},
  {"id":"constructor","method":"POST","path":"/three"}]`

func settingsProject(t testing.TB, more string) *built {
	t.Helper()
	return files(t, settingsOperations, map[string]string{"index.js": settingsSource + more})
}

// row is one operation of an answer.
func row(id, access, lastFour, account string) string {
	return fmt.Sprintf(`%q:{"access":%q,"api_key_configured":%t,"api_key_last_four":%s,"service_account_id":%s}`, id, access, lastFour != "null", lastFour, account)
}

// settings is a whole table of an answer.
func settings(state, generation string, revision int, account string, rows ...string) string {
	updated := `"T"`
	if revision == 0 {
		updated = "null"
	}
	return fmt.Sprintf(`{"default_service_account_id":%s,"operations":{%s},"releaseGeneration":%q,"revision":%d,"state":%q,"updated_at":%s}`,
		account, strings.Join(rows, ","), generation, revision, state, updated)
}

// wanted is the payload of a replacement or, with liveRevision, of a staging.
func wanted(base string, revision int, generation, account, operations string) string {
	if base == "liveRevision" {
		return fmt.Sprintf(`{"defaultServiceAccountId":%s,"liveRevision":%d,"operations":%s,"releaseGeneration":%q}`, account, revision, operations, generation)
	}
	return fmt.Sprintf(`{"baseRevision":%d,"defaultServiceAccountId":%s,"operations":%s,"releaseGeneration":%q}`, revision, account, operations, generation)
}

func rotate(base int, id, digest, lastFour string) string {
	return fmt.Sprintf(`{"baseRevision":%d,"keyDigest":%q,"lastFour":%q,"operationId":%q}`, base, digest, lastFour, id)
}

func revoke(base int, id string) string {
	return fmt.Sprintf(`{"baseRevision":%d,"operationId":%q}`, base, id)
}

// The results of the settings' commands.
func TestOperationSettingsCommands(t *testing.T) {
	t.Parallel()
	b := settingsProject(t, "")
	w := mustStart(t, b.out.Bundle, t.TempDir())
	gen := b.out.ReleaseGeneration
	empty := settings("reconciled", gen, 0, "null")
	first := settings("reconciled", gen, 1, `"acc"`, row("constructor", "private", "null", "null"), row("one", "api_key", "null", `"own"`))
	keyed := settings("reconciled", gen, 2, `"acc"`, row("constructor", "private", "null", "null"), row("one", "api_key", `"abcd"`, `"own"`))
	fresh := settings("reconciled", gen, 3, `"acc"`, row("constructor", "private", "null", "null"), row("one", "api_key", `"abcd"`, `"own"`), row("two", "inherit", `"wxyz"`, "null"))
	// The whole table is given: what is not listed is gone, what is keeps its key.
	dropped := settings("reconciled", gen, 4, "null", row("one", "public", `"abcd"`, "null"))
	revoked := settings("reconciled", gen, 5, "null", row("one", "public", "null", "null"))
	const oneAndThree = `{"constructor":{"access":"private","service_account_id":null},"one":{"access":"api_key","service_account_id":"own"}}`
	const one = `{"one":{"access":"public","service_account_id":null}}`
	tell(t, b, w, []step{
		{"operation_settings.get", `{}`, `{"settings":null,"staged":null}`},
		{"operation_settings.replace", wanted("baseRevision", 1, gen, "null", one), `{"conflict":true,"current":` + empty + `}`},
		{"operation_settings.api_key.rotate", rotate(1, "one", digestA, "abcd"), `{"conflict":true,"current":` + empty + `}`},
		{"operation_settings.api_key.revoke", revoke(1, "one"), `{"conflict":true,"current":` + empty + `,"revoked":false}`},
		// Nothing was ever set, and yet the receipt has a time.
		{"operation_settings.api_key.revoke", revoke(0, "one"), `{"conflict":false,"current":` + strings.Replace(empty, "null}", `"T"}`, 1) + `,"revoked":false}`},
		{"operation_settings.get", `{}`, `{"settings":null,"staged":null}`},
		{"operation_settings.replace", wanted("baseRevision", 0, gen, `"acc"`, oneAndThree), `{"conflict":false,"current":` + first + `}`},
		{"operation_settings.get", `{}`, `{"settings":` + first + `,"staged":null}`},
		{"operation_settings.api_key.rotate", rotate(0, "one", digestA, "abcd"), `{"conflict":true,"current":` + first + `}`},
		{"operation_settings.api_key.rotate", rotate(1, "one", digestA, "abcd"), `{"conflict":false,"current":` + keyed + `}`},
		{"operation_settings.api_key.rotate", rotate(2, "two", digestB, "wxyz"), `{"conflict":false,"current":` + fresh + `}`},
		{"operation_settings.replace", wanted("baseRevision", 2, gen, "null", one), `{"conflict":true,"current":` + fresh + `}`},
		{"operation_settings.replace", wanted("baseRevision", 3, gen, "null", one), `{"conflict":false,"current":` + dropped + `}`},
		{"operation_settings.api_key.revoke", revoke(3, "one"), `{"conflict":true,"current":` + dropped + `,"revoked":false}`},
		{"operation_settings.api_key.revoke", revoke(4, "one"), `{"conflict":false,"current":` + revoked + `,"revoked":true}`},
		{"operation_settings.api_key.revoke", revoke(5, "one"), `{"conflict":false,"current":` + revoked + `,"revoked":false}`},
		// The dropped row took its key along.
		{"operation_settings.api_key.revoke", revoke(5, "two"), `{"conflict":false,"current":` + revoked + `,"revoked":false}`},
		{"operation_settings.get", `{}`, `{"settings":` + revoked + `,"staged":null}`},
	})
}

func TestOperationSettingsRefuseInvalidPayloads(t *testing.T) {
	t.Parallel()
	b := settingsProject(t, "")
	w := mustStart(t, b.out.Bundle, t.TempDir())
	gen := b.out.ReleaseGeneration
	many := make([]string, 201)
	for i := range many {
		many[i] = fmt.Sprintf(`"a%d":{"access":"public","service_account_id":null}`, 1000+i)
	}
	var cases []invalid
	for _, op := range []struct{ name, base string }{{"operation_settings.replace", "baseRevision"}, {"operation_settings.stage", "liveRevision"}} {
		good := wanted(op.base, 0, gen, "null", `{}`)
		cases = append(cases,
			invalid{op.name, `{"` + op.base + `":0}`, map[string]string{"baseRevision": "releaseGeneration", "liveRevision": "releaseGeneration"}[op.base]},
			invalid{op.name, strings.Replace(good, "{", `{"accessX":1,`, 1), "accessX"},
			invalid{op.name, wanted(op.base, 0, strings.ToUpper(gen), "null", `{}`), "releaseGeneration"},
			invalid{op.name, wanted(op.base, 0, gen, `""`, `{}`), "defaultServiceAccountId"},
			invalid{op.name, wanted(op.base, 0, gen, `1`, `{}`), "defaultServiceAccountId"},
			invalid{op.name, wanted(op.base, 0, gen, `"__proto__"`, `{}`), "defaultServiceAccountId"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `[]`), "operations"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `null`), "operations"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `"x"`), "operations"},
			invalid{op.name, wanted(op.base, 0, gen, "null", "{"+strings.Join(many, ",")+"}"), "operations"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":null}`), "operations one"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":[]}`), "operations one"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":{"access":"public"}}`), "operations one service_account_id"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":{"service_account_id":null}}`), "operations one access"},
			// A key is never given this way.
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":{"access":"public","api_key_sha256":"`+digestA+`","service_account_id":null}}`), "operations one api_key_sha256"},
			invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":{"access":"public","service_account_id":"a b"}}`), "operations one service_account_id"})
		for _, access := range []string{`"open"`, `"Public"`, `"constructor"`, `""`, `1`, `null`, `["public"]`} {
			cases = append(cases, invalid{op.name, wanted(op.base, 0, gen, "null", `{"one":{"access":`+access+`,"service_account_id":null}}`), "operations one access"})
		}
		for _, id := range []string{"", "One", "1", "a b", "a'", strings.Repeat("a", 65)} {
			cases = append(cases, invalid{op.name, wanted(op.base, 0, gen, "null", `{`+quoted(id)+`:{"access":"public","service_account_id":null}}`), "operations " + id})
		}
		cases = append(cases, invalid{op.name, wanted(op.base, 0, gen, "null", `{"__proto__":{"access":"public","service_account_id":null}}`), "operations __proto__"})
		for _, revision := range badRevisions {
			cases = append(cases, invalid{op.name, strings.Replace(good, `"`+op.base+`":0`, `"`+op.base+`":`+revision, 1), op.base})
		}
	}
	for _, revision := range badRevisions {
		cases = append(cases,
			invalid{"operation_settings.api_key.rotate", strings.Replace(rotate(0, "one", digestA, "abcd"), `:0`, `:`+revision, 1), "baseRevision"},
			invalid{"operation_settings.api_key.revoke", strings.Replace(revoke(0, "one"), `:0`, `:`+revision, 1), "baseRevision"})
	}
	for _, id := range []string{"", "One", "three", "__proto__", "toString", "one "} {
		cases = append(cases,
			invalid{"operation_settings.api_key.rotate", rotate(0, id, digestA, "abcd"), "operationId"},
			invalid{"operation_settings.api_key.revoke", revoke(0, id), "operationId"})
	}
	cases = append(cases,
		invalid{"operation_settings.replace", wanted("baseRevision", 0, zeros, "null", `{}`), "releaseGeneration"},
		invalid{"operation_settings.replace", wanted("baseRevision", 0, gen, "null", `{"three":{"access":"public","service_account_id":null}}`), "operations three"},
		invalid{"operation_settings.api_key.rotate", rotate(0, "one", "x", "abcd"), "keyDigest"},
		invalid{"operation_settings.api_key.rotate", rotate(0, "one", digestA, "abc"), "lastFour"},
		invalid{"operation_settings.get", `{"x":1}`, "x"})
	mustRefuse(t, b, w, cases)
	tell(t, b, w, []step{
		{"operation_settings.get", `{}`, `{"settings":null,"staged":null}`},
		// As many operations as a manifest may have, of a release yet to come.
		{"operation_settings.stage", wanted("liveRevision", 0, zeros, "null", "{"+strings.Join(many[:200], ",")+"}"), `{"conflict":false,…`},
	})
}

// S2-092: a staged table waits for its release and then
// takes the live one's place; operations keep their keys.
func TestStagedSettingsBecomeLive(t *testing.T) {
	t.Parallel()
	old, next := settingsProject(t, ""), settingsProject(t, "// next")
	storage := t.TempDir()
	w := mustStart(t, old.out.Bundle, storage)
	was, coming := old.out.ReleaseGeneration, next.out.ReleaseGeneration
	const two = `{"one":{"access":"api_key","service_account_id":null},"two":{"access":"public","service_account_id":null}}`
	live := settings("reconciled", was, 2, "null", row("one", "api_key", `"abcd"`, "null"), row("two", "public", "null", "null"))
	const onlyOne = `{"new.one":{"access":"disabled","service_account_id":null},"one":{"access":"private","service_account_id":"a"}}`
	staged := settings("staged", coming, 3, `"acc"`, row("new.one", "disabled", "null", "null"), row("one", "private", `"abcd"`, `"a"`))
	stage := uuid.NewString()
	tell(t, old, w, []step{
		{"operation_settings.replace", wanted("baseRevision", 0, was, "null", two), `{"conflict":false,…`},
		{"operation_settings.api_key.rotate", rotate(1, "one", digestA, "abcd"), `{"conflict":false,"current":` + live + `}`},
		{"operation_settings.stage", wanted("liveRevision", 1, coming, "null", `{}`), `{"conflict":true,"current":` + live + `}`},
		// One that no release ever takes is replaced by the next.
		{"operation_settings.stage", wanted("liveRevision", 2, zeros, "null", `{}`), `{"conflict":false,"current":` + settings("staged", zeros, 3, "null") + `}`},
	})
	for range 2 {
		got := old.mutate(t, w, "operation_settings.stage", stage, wanted("liveRevision", 2, coming, `"acc"`, onlyOne)).result(t)
		if got != `{"conflict":false,"current":`+staged+`}` {
			t.Fatalf("stage: %s", got)
		}
	}
	tell(t, old, w, []step{{"operation_settings.get", `{}`, `{"settings":` + live + `,"staged":` + staged + `}`}})
	if got := old.invoke(t, w, "two", ""); got.status != 200 {
		t.Errorf("the old release, before: %v", got)
	}
	w.kill()
	// What the new release does not accept changes nothing.
	w = mustStart(t, next.out.Bundle, storage)
	if got := old.command(t, w, "access_policy.get", "{}"); got.status != 409 {
		t.Errorf("the old generation at the new release: %v", got)
	}
	w.kill()
	w = mustStart(t, old.out.Bundle, storage)
	tell(t, old, w, []step{{"operation_settings.get", `{}`, `{"settings":` + live + `,"staged":` + staged + `}`}})
	w.kill()
	w = mustStart(t, next.out.Bundle, storage)
	reconciled := strings.Replace(staged, `"staged"`, `"reconciled"`, 1)
	tell(t, next, w, []step{
		{"operation_settings.get", `{}`, `{"settings":` + reconciled + `,"staged":null}`},
		{"operation_settings.replace", wanted("baseRevision", 3, coming, "null", two), `{"conflict":false,"current":` +
			settings("reconciled", coming, 4, "null", row("one", "api_key", `"abcd"`, "null"), row("two", "public", "null", "null")) + `}`},
	})
	// The old release, should it come back, has the table it had.
	w.kill()
	w = mustStart(t, old.out.Bundle, storage)
	tell(t, old, w, []step{{"operation_settings.get", `{}`, `{"settings":` + live + `,"staged":null}`}})
}

// The first request may be an invocation: it is decided by the new table.
func TestInvocationMakesStagedSettingsLive(t *testing.T) {
	t.Parallel()
	old, next := settingsProject(t, ""), settingsProject(t, "// next")
	storage := t.TempDir()
	w := mustStart(t, old.out.Bundle, storage)
	tell(t, old, w, []step{{"operation_settings.stage",
		wanted("liveRevision", 0, next.out.ReleaseGeneration, "null", `{"one":{"access":"disabled","service_account_id":null}}`), `{"conflict":false,…`}})
	if got := old.invoke(t, w, "one", ""); got.status != 200 {
		t.Errorf("the old release: %v", got)
	}
	w.kill()
	w = mustStart(t, next.out.Bundle, storage)
	if got := next.invoke(t, w, "one", ""); got.status != 404 {
		t.Errorf("the new release: %v", got)
	}
	if got := next.invoke(t, w, "two", ""); got.status != 200 {
		t.Errorf("an operation without a row: %v", got)
	}
}

// Tables of former generations do not pile up; the staged and the live one stay.
func TestFormerSettingsAreDropped(t *testing.T) {
	t.Parallel()
	storage := t.TempDir()
	var all []*built
	var w *worker
	for i := range 11 {
		next := settingsProject(t, fmt.Sprintf("// %d", i))
		if i > 0 {
			tell(t, all[i-1], w, []step{{"operation_settings.stage",
				wanted("liveRevision", i-1, next.out.ReleaseGeneration, "null", `{"one":{"access":"public","service_account_id":null}}`), `{"conflict":false,…`}})
			w.kill()
		}
		w = mustStart(t, next.out.Bundle, storage)
		all = append(all, next)
		want := settings("reconciled", next.out.ReleaseGeneration, i, "null", row("one", "public", "null", "null"))
		if i == 0 {
			want = "null"
		}
		tell(t, next, w, []step{{"operation_settings.get", `{}`, `{"settings":` + want + `,"staged":null}`}})
	}
	for i, want := range []string{1: `{"settings":null,"staged":null}`, 2: `{"settings":{"default…`} {
		if want == "" {
			continue
		}
		w.kill()
		w = mustStart(t, all[i].out.Bundle, storage)
		tell(t, all[i], w, []step{{"operation_settings.get", `{}`, want}})
	}
}

// D8: an older release knows no settings and does not take a staged table.
func TestOlderPolicyLeavesSettingsAlone(t *testing.T) {
	t.Parallel()
	now := settingsProject(t, "")
	storage := t.TempDir()
	w := mustStart(t, now.out.Bundle, storage)
	older := policyOf(t, builder.V2_7)
	tell(t, now, w, []step{{"operation_settings.stage",
		wanted("liveRevision", 0, older.out.ReleaseGeneration, "null", `{"one":{"access":"disabled","service_account_id":null}}`), `{"conflict":false,…`}})
	w.kill()
	w = mustStart(t, older.out.Bundle, storage)
	if got := older.invoke(t, w, "one", ""); got.status != 200 {
		t.Errorf("v2.7: %v", got)
	}
	w.kill()
	w = mustStart(t, now.out.Bundle, storage)
	tell(t, now, w, []step{{"operation_settings.get", `{}`, `{"settings":null,"staged":{…`}})
}
