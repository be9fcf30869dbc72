package settings_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/settings"
)

const (
	canaryValue    = "canary-secret-value"
	canaryPassword = "canary-password"
	canarySalt     = "canary-salt"
)

var (
	aDigest    = canonical.SHA256([]byte("a key"))
	generation = strings.Repeat("ab", 32)

	credentialsDigest = canonical.SHA256([]byte(canarySalt + "\x00" + canaryPassword))
)

// fields is an object whose members a test changes.
type fields = map[string]any

// good are valid payloads of the twelve operations.
func good() map[settings.Operation]fields {
	return map[settings.Operation]fields{
		settings.AccessPolicyReplace:      {"baseRevision": 3, "mode": "api_key", "ipAllowlist": []string{"10.0.0.0/8", "2001:db8::/32"}},
		settings.AccessPolicyKeyRotate:    {"baseRevision": 3, "keyDigest": aDigest, "lastFour": "wxYZ"},
		settings.AccessPolicyKeyRevoke:    {"baseRevision": 3},
		settings.RuntimeConfigReplace:     {"baseRevision": 3, "valueJson": `{"b": 1, "a": [true]}`},
		settings.RuntimeConfigDelete:      {"baseRevision": 3},
		settings.OperationSettingsReplace: {"baseRevision": 3, "releaseGeneration": generation, "defaultServiceAccountId": nil, "operations": fields{"echo.say": fields{"access": "public", "service_account_id": nil}}},
		settings.OperationKeyRotate:       {"baseRevision": 3, "operationId": "echo.say", "keyDigest": aDigest, "lastFour": "wxYZ"},
		settings.OperationKeyRevoke:       {"baseRevision": 3, "operationId": "echo.say"},
		settings.SecretsPut:               {"name": "TOKEN", "value": canaryValue, "valueDigest": canonical.SHA256([]byte(canaryValue))},
		settings.SecretsDelete:            {"name": "TOKEN"},
		settings.CredentialsPut:           {"serviceAccountId": "sa-1", "username": "robot", "password": canaryPassword, "salt": canarySalt, "passwordDigest": credentialsDigest},
		settings.CredentialsDelete:        {"serviceAccountId": "sa-1"},
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func parse(t testing.TB, operation settings.Operation) settings.Command {
	t.Helper()
	c, err := settings.Parse(operation, encode(t, good()[operation]))
	if err != nil {
		t.Fatalf("%s: %v", operation, err)
	}
	return c
}

// with is a copy with one member changed.
func with(o fields, key string, value any) fields {
	o = maps.Clone(o)
	o[key] = value
	return o
}

func without(o fields, key string) fields {
	o = maps.Clone(o)
	delete(o, key)
	return o
}

func refused(t *testing.T, operation settings.Operation, payload any, what string) {
	t.Helper()
	raw, ok := payload.([]byte)
	if !ok {
		raw = encode(t, payload)
	}
	c, err := settings.Parse(operation, raw)
	if !errors.Is(err, settings.ErrCommand) || c.Digest() != "" || c.Payload() != nil {
		t.Errorf("%s, %s: %v", operation, what, err)
	}
	if err != nil && strings.Contains(err.Error(), "canary") {
		t.Errorf("%s, %s: the error quotes a value: %v", operation, what, err)
	}
}

// S1-167 to S1-169: there are twelve operations, each is accepted, and a
// thirteenth is not.
func TestTwelveOperations(t *testing.T) {
	t.Parallel()
	all := settings.Operations()
	if len(all) != 12 || len(good()) != 12 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 12 {
		t.Fatalf("%d operations", len(all))
	}
	for _, operation := range all {
		c := parse(t, operation)
		if c.Operation() != string(operation) || !operation.Known() {
			t.Errorf("%s", operation)
		}
	}
	for _, other := range []settings.Operation{"", "secrets.purge", "access_policy.get", "control.receipt.get", "secrets.PUT", "secrets.put "} {
		refused(t, other, fields{}, "unknown")
		refused(t, other, good()[settings.SecretsPut], "unknown")
		if other.Known() {
			t.Errorf("%q is known", other)
		}
	}
}

// S1-237, S1-240: one field less and one more are refused, baseRevision where
// it does not belong included; so are repeated keys, other cases, and what is
// no object.
func TestExactFields(t *testing.T) {
	t.Parallel()
	for operation, payload := range good() {
		for key := range payload {
			refused(t, operation, without(payload, key), "without "+key)
			refused(t, operation, with(without(payload, key), strings.ToUpper(key), payload[key]), "another case of "+key)
			raw := encode(t, payload)
			refused(t, operation, append(raw[:len(raw)-1:len(raw)-1], append([]byte(`,"`+key+`":`), append(encode(t, payload[key]), '}')...)...), "twice "+key)
		}
		for _, key := range []string{"more", "value", "password", "salt", "key", "baseRevision", "name", "__proto__"} {
			if _, has := payload[key]; !has {
				refused(t, operation, with(payload, key, 1), "with "+key)
			}
		}
		raw := encode(t, payload)
		for what, bad := range map[string][]byte{
			"nothing": nil, "null": []byte("null"), "a list": []byte("[]"), "cut": raw[:len(raw)-1], "two": append(slices.Clone(raw), raw...), "tail": append(slices.Clone(raw), 'x'),
		} {
			refused(t, operation, bad, what)
		}
	}
}

// S1-240: eight operations need a baseRevision and four have none.
func TestOperationsWithoutRevision(t *testing.T) {
	t.Parallel()
	n := 0
	for operation, payload := range good() {
		if _, has := payload["baseRevision"]; has {
			n++
			refused(t, operation, without(payload, "baseRevision"), "without baseRevision")
			continue
		}
		refused(t, operation, with(payload, "baseRevision", 0), "with baseRevision")
	}
	if n != 8 {
		t.Errorf("%d operations have a revision", n)
	}
}

// S1-238, S1-239: baseRevision is a true integer in 0…2^53−1.
func TestBaseRevision(t *testing.T) {
	t.Parallel()
	for operation, payload := range good() {
		if payload["baseRevision"] == nil {
			continue
		}
		for _, n := range []string{"0", "1", "9007199254740991"} {
			if _, err := settings.Parse(operation, encode(t, with(payload, "baseRevision", json.RawMessage(n)))); err != nil {
				t.Errorf("%s, %s: %v", operation, n, err)
			}
		}
		for _, n := range []string{"-1", "-0", "9007199254740992", "99999999999999999999", "1.0", "1e0", "1.5", `"1"`, "true", "false", "null", "[1]", "{}"} {
			refused(t, operation, with(payload, "baseRevision", json.RawMessage(n)), n)
		}
	}
}

// S1-241, S1-242: valueJson is the text of an object of at most 65,536 UTF-8
// bytes.
func TestValueJSON(t *testing.T) {
	t.Parallel()
	ofSize := func(letter string, n int) string {
		body := strings.Repeat(letter, n/len(letter))
		text := `{"a":"` + body + `"}`
		return text
	}
	for _, letter := range []string{"x", "é", "部", "🙂"} {
		text := ofSize(letter, settings.MaxValueJSON-8)
		text += strings.Repeat(" ", settings.MaxValueJSON-len(text)) // to the byte
		payload := with(good()[settings.RuntimeConfigReplace], "valueJson", text)
		if _, err := settings.Parse(settings.RuntimeConfigReplace, encode(t, payload)); err != nil || len(text) != 65_536 {
			t.Errorf("%d bytes of %s: %v", len(text), letter, err)
		}
		refused(t, settings.RuntimeConfigReplace, with(payload, "valueJson", text+" "), "one byte more")
	}
	for _, bad := range []any{"[]", "1", "null", "true", `"x"`, "", " ", "{", `{"a":1}x`, `{"a":1,"a":2}`, `{"a":NaN}`, 1, nil, fields{}, []string{}} {
		refused(t, settings.RuntimeConfigReplace, with(good()[settings.RuntimeConfigReplace], "valueJson", bad), "no object")
	}
	small := `{"a":[` + strings.Repeat("1e20,", 12_000) + `1]}` // grows in canonical form
	refused(t, settings.RuntimeConfigReplace, with(good()[settings.RuntimeConfigReplace], "valueJson", small), "too large in canonical form")
}

// Every other field has its form.
func TestFieldForms(t *testing.T) {
	t.Parallel()
	many := make([]string, settings.MaxAllowlist+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.0/24", i)
	}
	bad := map[string][]any{
		"mode":                    {"", "PRIVATE", "disabled", 1, nil},
		"ipAllowlist":             {nil, "10.0.0.0/8", []any{nil}, []any{1}, []string{"10.0.0.1"}, []string{"x"}, many, []string{"10.0.0.1/8"}, []string{"::ffff:10.0.0.0/104"}, []string{"10.0.0.0/8", "10.0.0.0/8"}, []string{"fe80::%1/64"}},
		"keyDigest":               {nil, "", aDigest[:63], strings.ToUpper(aDigest), aDigest + "\n", 1},
		"valueDigest":             {nil, "", aDigest, strings.ToUpper(aDigest)},
		"passwordDigest":          {nil, "", aDigest[:63], 1},
		"lastFour":                {nil, "", "abc", "abcde", "ab\nc", "ab d", 1234},
		"releaseGeneration":       {nil, "", generation[:63], strings.ToUpper(generation)},
		"defaultServiceAccountId": {"", 1, "a b", []any{}, "a\x00"},
		"operations": {nil, []any{}, "x", fields{"Echo": fields{}}, fields{"echo": 1}, fields{"echo": nil}, fields{"__proto__": fields{}},
			fields{"echo": fields{"access": "public"}}, fields{"echo": fields{"access": "open", "service_account_id": nil}},
			fields{"echo": fields{"access": "public", "service_account_id": "a b"}}, fields{"echo": fields{"access": "public", "service_account_id": nil, "x": 1}}},
		"operationId":      {nil, "", "Echo", "__proto__", strings.Repeat("x", 65), 1},
		"name":             {nil, "", "token", "1TOKEN", "A-B", "TOKEN\n", strings.Repeat("X", 65), 1},
		"value":            {nil, "", 1, strings.Repeat("x", settings.MaxSecret+1)},
		"serviceAccountId": {nil, "", "-a", "a b", "a\x00", strings.Repeat("x", 65), 1},
		"username":         {nil, "", strings.Repeat("x", 257), "a\nb", "a\x7f", 1},
		"password":         {nil, "", strings.Repeat("x", 1_025), 1},
		"salt":             {nil, "", "a\x00b", strings.Repeat("x", 257), 1},
	}
	seen := map[string]bool{"baseRevision": true, "valueJson": true}
	for operation, payload := range good() {
		for key := range payload {
			seen[key] = seen[key] || len(bad[key]) > 0
			for _, value := range bad[key] {
				refused(t, operation, with(payload, key, value), key)
			}
			if !seen[key] {
				t.Errorf("no bad values of %s", key)
			}
		}
	}
	replace := good()[settings.OperationSettingsReplace]
	if _, err := settings.Parse(settings.OperationSettingsReplace, encode(t, with(replace, "defaultServiceAccountId", "sa-1"))); err != nil {
		t.Error(err)
	}
	refused(t, settings.SecretsDelete, []byte("{\"name\":\"\xff\"}"), "no UTF-8")
}

// S1-243 to S1-247: what may be stored of a command has no value, password or
// salt, the digest of each, and only scalars; it can be read back, and only
// exactly as it was.
func TestStored(t *testing.T) {
	t.Parallel()
	for operation := range good() {
		c := parse(t, operation)
		stored := string(c.Stored())
		if strings.Contains(stored, "canary") || strings.Contains(c.String(), "canary") {
			t.Errorf("%s stores %s", operation, stored)
		}
		var object fields
		if err := json.Unmarshal(c.Stored(), &object); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"value", "password", "salt", "valueJson", "operations"} {
			if _, has := object[key]; has {
				t.Errorf("%s stores %s", operation, key)
			}
		}
		if _, err := settings.ReadStored(operation, c.Stored()); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		for key := range object {
			if _, err := settings.ReadStored(operation, encode(t, without(object, key))); !errors.Is(err, settings.ErrCommand) {
				t.Errorf("%s without %s: %v", operation, key, err)
			}
			if _, err := settings.ReadStored(operation, encode(t, with(object, key, []int{}))); !errors.Is(err, settings.ErrCommand) && key != "ipAllowlist" {
				t.Errorf("%s with a list as %s: %v", operation, key, err)
			}
		}
		if _, err := settings.ReadStored(operation, encode(t, with(object, "value", "x"))); !errors.Is(err, settings.ErrCommand) {
			t.Errorf("%s with a value: %v", operation, err)
		}
	}
	for operation, digest := range map[settings.Operation]string{
		settings.SecretsPut: canonical.SHA256([]byte(canaryValue)), settings.CredentialsPut: credentialsDigest,
		settings.AccessPolicyKeyRotate: aDigest, settings.OperationKeyRotate: aDigest,
		settings.RuntimeConfigReplace: canonical.SHA256([]byte(`{"a":[true],"b":1}`)),
	} {
		if stored := string(parse(t, operation).Stored()); !strings.Contains(stored, digest) {
			t.Errorf("%s does not store its digest: %s", operation, stored)
		}
	}
	if _, err := settings.ReadStored("secrets.purge", []byte("{}")); !errors.Is(err, settings.ErrCommand) {
		t.Errorf("an unknown operation: %v", err)
	}
}

// The command digest is the one of the control channel over what is sent, and
// equal commands in other spellings are one command.
func TestDigestIsTheChannels(t *testing.T) {
	t.Parallel()
	for operation := range good() {
		c := parse(t, operation)
		want, err := control.CommandDigest(string(operation), c.Payload())
		if err != nil || c.Digest() != want || !canonical.IsSHA256(want) {
			t.Errorf("%s: %s, %v", operation, c.Digest(), err)
		}
	}
	one := parse(t, settings.RuntimeConfigReplace)
	two, err := settings.Parse(settings.RuntimeConfigReplace, []byte(` {"valueJson":"{\"a\":[true],\"b\":1.0}", "baseRevision":3}`))
	if err != nil || one.Digest() != two.Digest() || string(one.Payload()) != `{"baseRevision":3,"valueJson":"{\"a\":[true],\"b\":1}"}` {
		t.Errorf("%s, %s, %v", one.Payload(), two.Payload(), err)
	}
	three, err := settings.Parse(settings.RuntimeConfigReplace, []byte(`{"valueJson":"{\"a\":[true],\"b\":2}","baseRevision":3}`))
	if err != nil || three.Digest() == one.Digest() {
		t.Errorf("another value has the same digest: %v", err)
	}
}
