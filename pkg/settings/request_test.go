package settings_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/settings"
)

func readRequest(t *testing.T, raw string) settings.TableRequest {
	t.Helper()
	in, err := settings.ReadRequest([]byte(raw), "body")
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return in
}

// S2-090: every fault of the object is one entry of the 422, with its place.
func TestRequestFaults(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		`[]`:   {"type_error [body]: an object is required: it is not a JSON object"},
		`null`: {"type_error [body]: an object is required: it is not a JSON object"},
		`{}`:   {"missing [body base_revision]: Field required", "missing [body operations]: Field required"},
		`{"base_revision":1,"base_revision":1,"operations":{}}`: {"type_error [body]: an object is required: a key is repeated or has no value"},
		`{"base_revision":1,"operations":{},"x":1,"__proto__":{}}`: {
			"extra_forbidden [body __proto__]: Extra inputs are not permitted", "extra_forbidden [body x]: Extra inputs are not permitted",
		},
		`{"base_revision":true,"operations":{}}`:             {"type_error [body base_revision]: it is not an integer"},
		`{"base_revision":1.0,"operations":{}}`:              {"type_error [body base_revision]: it is not an integer"},
		`{"base_revision":"1","operations":{}}`:              {"type_error [body base_revision]: it is not an integer"},
		`{"base_revision":-1,"operations":{}}`:               {"type_error [body base_revision]: it is not an integer"},
		`{"base_revision":9007199254740992,"operations":{}}`: {"type_error [body base_revision]: it is not in 0…9007199254740991"},
		`{"base_revision":1,"operations":[]}`:                {"type_error [body operations]: an object is required: it is not a JSON object"},
		`{"base_revision":1,"default_service_account_id":"a b","operations":{"a":{"access":"open","service_account_id":1,"key":"x"},"b":{}}}`: {
			"type_error [body default_service_account_id]: it does not match [A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
			"extra_forbidden [body operations a key]: Extra inputs are not permitted",
			"type_error [body operations a service_account_id]: it is not a text",
			"type_error [body operations a access]: it is not one of inherit, private, api_key, public, disabled",
			"missing [body operations b access]: Field required",
		},
	} {
		_, err := settings.ReadRequest([]byte(raw), "body")
		projecttest.Same(t, projecttest.Problems(t, err), want...)
	}
	rows := make([]string, 201)
	for i := range rows {
		rows[i] = fmt.Sprintf(`"o%d":{"access":"public"}`, i)
	}
	_, err := settings.ReadRequest([]byte(`{"base_revision":1,"operations":{`+strings.Join(rows, ",")+`}}`), "body")
	projecttest.Same(t, projecttest.Problems(t, err), "too_many [body operations]: at most 200 operations are allowed")
	readRequest(t, `{"base_revision":1,"operations":{`+strings.Join(rows[:200], ",")+`}}`)
	_, err = settings.ReadRequest([]byte(`{"base_revision":1,"operations":`+strings.Repeat(`{"a":`, 100_000)+`1`+strings.Repeat("}", 100_000)+`}`), "body")
	if len(projecttest.Problems(t, err)) != 1 {
		t.Errorf("a deep object: %v", err)
	}
}

// S2-082, S2-083: the digest is the SHA-256 of the object's canonical JSON; the
// order of keys and white space do not count, null is not a field left out.
func TestRequestDigest(t *testing.T) {
	t.Parallel()
	one := readRequest(t, `{"operations": {"b": {"access":"public"}, "a": {"service_account_id": null, "access": "api_key"}},
		"base_revision": 3}`)
	// sha256sum of {"base_revision":3,"operations":{"a":{"access":"api_key","service_account_id":null},"b":{"access":"public"}}}
	if want := "6b2d0ec3224069916716a4c619dcdd3940ee99100813e7a944944206d192c71a"; one.Digest != want {
		t.Errorf("%s, want %s", one.Digest, want)
	}
	seen := map[string]string{}
	for _, raw := range []string{
		`{"base_revision":3,"operations":{"a":{"access":"public"}}}`,
		`{"base_revision":3,"operations":{"a":{"access":"public","service_account_id":null}}}`,
		`{"base_revision":3,"default_service_account_id":null,"operations":{"a":{"access":"public"}}}`,
		`{"base_revision":4,"operations":{"a":{"access":"public"}}}`,
	} {
		digest := readRequest(t, raw).Digest
		if seen[digest] != "" {
			t.Errorf("%s has the digest of %s", raw, seen[digest])
		}
		seen[digest] = raw
	}
	if len(seen) != 4 {
		t.Errorf("%d digests", len(seen))
	}
}

func text(s string) *string { return &s }

// S2-094 to S2-097, S2-100 to S2-103: what is listed wins, what is not keeps its
// live row, what the release does not have is dropped; a service account that is
// left out is kept, null clears it. Without a request all is carried over.
func TestOver(t *testing.T) {
	t.Parallel()
	live := settings.Table{
		DefaultServiceAccountID: text("robot"),
		Operations: map[string]settings.Row{
			"a": {Access: "public", ServiceAccountID: text("one")}, "b": {Access: "api_key", ServiceAccountID: text("two")}, "gone": {Access: "disabled"},
		},
	}
	target := []string{"a", "b", "fresh"}
	for raw, want := range map[string]string{
		``:                                    `{"defaultServiceAccountId":"robot","operations":{"a":{"access":"public","service_account_id":"one"},"b":{"access":"api_key","service_account_id":"two"}}}`,
		`{"base_revision":0,"operations":{}}`: `{"defaultServiceAccountId":"robot","operations":{"a":{"access":"public","service_account_id":"one"},"b":{"access":"api_key","service_account_id":"two"}}}`,
		`{"base_revision":0,"default_service_account_id":null,"operations":{"a":{"access":"private"},"b":{"access":"api_key","service_account_id":null},"fresh":{"access":"public"}}}`: `{"defaultServiceAccountId":null,"operations":{"a":{"access":"private","service_account_id":"one"},"b":{"access":"api_key","service_account_id":null},"fresh":{"access":"public","service_account_id":null}}}`,
		`{"base_revision":0,"default_service_account_id":"other","operations":{"a":{"access":"inherit","service_account_id":"other"}}}`:                                                `{"defaultServiceAccountId":"other","operations":{"a":{"access":"inherit","service_account_id":"other"},"b":{"access":"api_key","service_account_id":"two"}}}`,
	} {
		var in *settings.TableRequest
		if raw != "" {
			request := readRequest(t, raw)
			in = &request
		}
		got, err := json.Marshal(in.Over(live, target))
		if err != nil || string(got) != want {
			t.Errorf("%s:\n%s, want\n%s", raw, got, want)
		}
	}
}

// Reads of a Worker are as strict as receipts: one key more or less, or another
// type, is no answer.
func TestReads(t *testing.T) {
	t.Parallel()
	const at = `"updated_at":"2026-01-02T03:04:05Z"`
	table := `{"state":"staged","revision":1,"releaseGeneration":"` + generation + `","default_service_account_id":null,"operations":{"a":{"access":"public","api_key_configured":false,"api_key_last_four":null,"service_account_id":null}},` + at + `}`
	reads := map[string]struct {
		good []string
		read func([]byte) (any, error)
	}{
		"tables": {[]string{`{"settings":null,"staged":` + table + `}`, `{"settings":null,"staged":null}`}, func(raw []byte) (any, error) {
			live, staged, err := settings.ReadTables(raw)
			return []any{live, staged}, err
		}},
		"config":   {[]string{`{"valueJson":"{}","sha256":"x","revision":0,"updated_at":null}`}, func(raw []byte) (any, error) { return settings.ReadConfig(raw) }},
		"secrets":  {[]string{`{"secrets":[{"name":"A","sha256":"x",` + at + `}]}`, `{"secrets":[]}`}, func(raw []byte) (any, error) { return settings.ReadSecrets(raw) }},
		"accounts": {[]string{`{"service_accounts":[{"serviceAccountId":"a","username":"u","passwordDigest":"d",` + at + `}]}`}, func(raw []byte) (any, error) { return settings.ReadAccounts(raw) }},
	}
	for name, r := range reads {
		for _, good := range r.good {
			if _, err := r.read([]byte(good)); err != nil {
				t.Errorf("%s: %s: %v", name, good, err)
			}
			for _, bad := range []string{
				strings.Replace(good, "{", `{"more":1,`, 1), strings.Replace(good, "updated_at", "updatedAt", 1), strings.Replace(good, ":", `:1,"x":`, 1),
				strings.Replace(good, "[{", "[1,{", 1), strings.Replace(good, `"access":"public",`, "", 1), strings.TrimSuffix(good, "}"), "", "null", "[]",
			} {
				if bad == good {
					continue
				}
				if got, err := r.read([]byte(bad)); err == nil {
					t.Errorf("%s: %s was read as %v", name, bad, got)
				}
			}
		}
	}
	live, staged, err := settings.ReadTables([]byte(`{"settings":null,"staged":` + table + `}`))
	if err != nil || live != nil || staged == nil || !reflect.DeepEqual(staged.Operations["a"], settings.Row{Access: "public"}) {
		t.Errorf("%v %+v %v", live, staged, err)
	}
}
