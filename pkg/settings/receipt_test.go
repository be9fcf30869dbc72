package settings_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/settings"
)

const (
	mutation = "5b0e6f3c-6b1c-4c39-9c27-7f6f1d2a9f10"
	at       = "2026-01-02T03:04:05.678Z"
)

func policyAt(revision int, lastFour any) fields {
	return fields{
		"api_key_configured": lastFour != nil, "api_key_last_four": lastFour, "ip_allowlist": []string{"10.0.0.0/8"},
		"mode": "api_key", "revision": revision, "updated_at": at,
	}
}

func configAt(revision int, value string) fields {
	return fields{"valueJson": value, "sha256": canonical.SHA256([]byte(value)), "revision": revision, "updated_at": at}
}

func settingsAt(revision int) fields {
	return fields{
		"state": "reconciled", "revision": revision, "releaseGeneration": generation, "default_service_account_id": nil,
		"operations": fields{"echo.say": fields{}}, "updated_at": at,
	}
}

// results are good results of the commands of good(); those of revokes and
// deletes did something.
func results() map[settings.Operation]fields {
	plain := func(current fields) fields { return fields{"conflict": false, "current": current} }
	did := func(what string, current fields) fields {
		return fields{"conflict": false, what: true, "current": current}
	}
	return map[settings.Operation]fields{
		settings.AccessPolicyReplace:      plain(policyAt(4, "abcd")),
		settings.AccessPolicyKeyRotate:    plain(policyAt(4, "wxYZ")),
		settings.AccessPolicyKeyRevoke:    did("revoked", policyAt(4, nil)),
		settings.RuntimeConfigReplace:     plain(configAt(4, `{"a":[true],"b":1}`)),
		settings.RuntimeConfigDelete:      plain(configAt(4, `{}`)),
		settings.OperationSettingsReplace: plain(settingsAt(4)),
		settings.OperationKeyRotate:       plain(settingsAt(4)),
		settings.OperationKeyRevoke:       did("revoked", settingsAt(4)),
		settings.SecretsPut:               plain(fields{"name": "TOKEN", "sha256": canonical.SHA256([]byte(canaryValue)), "updated_at": at}),
		settings.SecretsDelete:            did("deleted", fields{"name": "TOKEN", "deleted": true, "updated_at": at}),
		settings.CredentialsPut:           plain(fields{"serviceAccountId": "sa-1", "username": "robot", "passwordDigest": credentialsDigest, "updated_at": at}),
		settings.CredentialsDelete:        did("deleted", fields{"serviceAccountId": "sa-1", "deleted": true, "updated_at": at}),
	}
}

// noOps are good results of revokes and deletes that found nothing.
func noOps() map[settings.Operation]fields {
	did := func(what string, current fields) fields {
		return fields{"conflict": false, what: false, "current": current}
	}
	return map[settings.Operation]fields{
		settings.AccessPolicyKeyRevoke: did("revoked", policyAt(3, nil)),
		settings.OperationKeyRevoke:    did("revoked", settingsAt(3)),
		settings.SecretsDelete:         did("deleted", fields{"name": "TOKEN", "deleted": false, "updated_at": at}),
		settings.CredentialsDelete:     did("deleted", fields{"serviceAccountId": "sa-1", "deleted": false, "updated_at": at}),
	}
}

func expect(t testing.TB, operation settings.Operation) settings.Expectation {
	t.Helper()
	c := parse(t, operation)
	return settings.Expectation{MutationID: mutation, Operation: operation, CommandDigest: c.Digest(), Command: c.Stored()}
}

// answer wraps a result as control.receipt.get does.
func answer(want settings.Expectation, result any) fields {
	return fields{"found": true, "receipt": fields{
		"mutationId": want.MutationID, "operation": want.Operation, "commandDigest": want.CommandDigest, "result": result, "createdAt": at,
	}}
}

func usable(t *testing.T, want settings.Expectation, result any, noOp bool) {
	t.Helper()
	got, err := settings.ReadReceipt(want, encode(t, answer(want, result)))
	if err != nil || !got.Found || got.NoOp != noOp {
		t.Errorf("%s: %+v, %v", want.Operation, got, err)
	}
}

func unusable(t *testing.T, want settings.Expectation, raw any, what string) {
	t.Helper()
	got, err := settings.ReadReceipt(want, encode(t, raw))
	if !errors.Is(err, settings.ErrReceipt) || got != (settings.Receipt{}) {
		t.Errorf("%s, %s: %+v, %v", want.Operation, what, got, err)
	}
	if err != nil && (strings.Contains(err.Error(), aDigest) || strings.Contains(err.Error(), "TOKEN")) {
		t.Errorf("%s, %s: the reason quotes a value: %v", want.Operation, what, err)
	}
}

// inside changes one member of a result's current.
func inside(result fields, key string, value any) fields {
	result = maps.Clone(result)
	current, _ := result["current"].(fields)
	result["current"] = with(current, key, value)
	return result
}

// The positive controls of all that follows: each operation's good result, and
// each no-op (S1-190).
func TestUsableReceipts(t *testing.T) {
	t.Parallel()
	for operation, result := range results() {
		usable(t, expect(t, operation), result, false)
	}
	for operation, result := range noOps() {
		usable(t, expect(t, operation), result, true)
	}
	got, err := settings.ReadReceipt(expect(t, settings.SecretsPut), []byte(`{"found":false,"receipt":null}`))
	if err != nil || got.Found || got.NoOp {
		t.Errorf("not found: %+v, %v", got, err)
	}
}

// S1-174, S1-210: the outer key sets are exact and speak of this very command,
// however good the inside is.
func TestOuterChecks(t *testing.T) {
	t.Parallel()
	for operation, result := range results() {
		want := expect(t, operation)
		whole := answer(want, result)
		receipt, _ := whole["receipt"].(fields)
		for key := range whole {
			unusable(t, want, without(whole, key), "outer without "+key)
		}
		unusable(t, want, with(whole, "more", 1), "outer with more")
		for _, value := range []any{nil, 1, "true", false} {
			unusable(t, want, with(whole, "found", value), "found")
		}
		unusable(t, want, fields{"found": true, "receipt": nil}, "found nothing")
		unusable(t, want, fields{"found": false}, "no receipt")
		for _, value := range []any{1, "x", []any{}, fields{}} {
			unusable(t, want, with(whole, "receipt", value), "receipt")
		}
		for key := range receipt {
			unusable(t, want, with(whole, "receipt", without(receipt, key)), "receipt without "+key)
			unusable(t, want, with(whole, "receipt", with(receipt, key, nil)), key+" null")
			unusable(t, want, with(whole, "receipt", with(receipt, key, "other")), key+" altered")
		}
		unusable(t, want, with(whole, "receipt", with(receipt, "more", 1)), "receipt with more")
		unusable(t, want, with(whole, "receipt", with(receipt, "commandDigest", strings.Repeat("0", 64))), "another command")
	}
}

// S1-175 to S1-178: the result's key set is exact for each operation, and
// conflict is false.
func TestResultKeys(t *testing.T) {
	t.Parallel()
	for operation, result := range results() {
		want := expect(t, operation)
		for key := range result {
			unusable(t, want, answer(want, without(result, key)), "without "+key)
		}
		for _, key := range []string{"revoked", "deleted", "more"} {
			if _, has := result[key]; !has {
				unusable(t, want, answer(want, with(result, key, true)), "with "+key)
				continue
			}
			for _, value := range []any{nil, 1, "true"} {
				unusable(t, want, answer(want, with(result, key, value)), key)
			}
		}
		for _, value := range []any{true, nil, 0, "false"} {
			unusable(t, want, answer(want, with(result, "conflict", value)), "conflict")
		}
	}
}

// S1-183, S1-186, S1-187, S1-189, S1-191, S1-211: current's key set is exact for
// each operation, and updated_at is a timestamp.
func TestCurrentKeys(t *testing.T) {
	t.Parallel()
	for operation, result := range results() {
		want := expect(t, operation)
		current, _ := result["current"].(fields)
		for key := range current {
			unusable(t, want, answer(want, with(result, "current", without(current, key))), "current without "+key)
			unusable(t, want, answer(want, inside(result, key, []any{1})), key+" altered")
		}
		unusable(t, want, answer(want, inside(result, "more", 1)), "current with more")
		for _, value := range []any{nil, "", "yesterday", 1, "2026-13-01T00:00:00Z", "2026-01-02"} {
			unusable(t, want, answer(want, inside(result, "updated_at", value)), "updated_at")
		}
		for _, value := range []any{nil, 1, "x", []any{}} {
			unusable(t, want, answer(want, with(result, "current", value)), "current")
		}
	}
}

// S1-180, S1-181, S1-212, S1-213: the revision is base + 1, and base + 0 for a
// revoke that revoked nothing and for nothing else.
func TestRevisions(t *testing.T) {
	t.Parallel()
	n := 0
	for operation, result := range results() {
		if current, _ := result["current"].(fields); current["revision"] == nil {
			continue
		}
		n++
		want := expect(t, operation)
		for _, revision := range []any{3, 5, 0, -4, 4.5, "4", nil, true, json.RawMessage("4.0"), json.RawMessage("4e0")} {
			unusable(t, want, answer(want, inside(result, "revision", revision)), "revision")
		}
	}
	if n != 8 {
		t.Errorf("%d operations have a revision", n)
	}
	for _, operation := range []settings.Operation{settings.AccessPolicyKeyRevoke, settings.OperationKeyRevoke} {
		want, nothing := expect(t, operation), noOps()[operation]
		unusable(t, want, answer(want, inside(nothing, "revision", 4)), "a no-op at base + 1")
		unusable(t, want, answer(want, inside(nothing, "revision", 2)), "a no-op at base − 1")
		unusable(t, want, answer(want, with(nothing, "revoked", true)), "a revoke at base + 0")
	}
}

// S1-179, S1-182: operation settings are reconciled, and a replace has the
// command's generation.
func TestOperationSettingsReceipts(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("cd", 32)
	for _, operation := range []settings.Operation{settings.OperationSettingsReplace, settings.OperationKeyRotate, settings.OperationKeyRevoke} {
		want, result := expect(t, operation), results()[operation]
		for _, state := range []any{"staged", "RECONCILED", "", nil, true} {
			unusable(t, want, answer(want, inside(result, "state", state)), "state")
		}
		unusable(t, want, answer(want, inside(result, "releaseGeneration", "x")), "generation")
		if operation == settings.OperationSettingsReplace {
			unusable(t, want, answer(want, inside(result, "releaseGeneration", other)), "another generation")
		} else {
			usable(t, want, inside(result, "releaseGeneration", other), false)
		}
		usable(t, want, inside(result, "default_service_account_id", "sa-1"), false)
	}
}

// S1-184, S1-185, S1-186, S1-188, S1-189: what was put or deleted is what the
// command named.
func TestNamedValuesAreTheCommands(t *testing.T) {
	t.Parallel()
	for operation, keys := range map[settings.Operation][]string{
		settings.SecretsPut: {"name", "sha256"}, settings.SecretsDelete: {"name"},
		settings.CredentialsPut: {"serviceAccountId", "username", "passwordDigest"}, settings.CredentialsDelete: {"serviceAccountId"},
	} {
		want, result := expect(t, operation), results()[operation]
		for _, key := range keys {
			unusable(t, want, answer(want, inside(result, key, "another")), key)
			unusable(t, want, answer(want, inside(result, key, canonical.SHA256([]byte("another")))), key)
		}
	}
	for _, operation := range []settings.Operation{settings.SecretsDelete, settings.CredentialsDelete} {
		want, result := expect(t, operation), results()[operation]
		unusable(t, want, answer(want, inside(result, "deleted", false)), "deleted contradicts")
		unusable(t, want, answer(want, with(result, "deleted", false)), "deleted contradicts")
	}
}

// S1-211, S1-214: the policy is well-formed; a rotation shows the command's
// last four; after a revocation there is no key.
func TestPolicyReceipts(t *testing.T) {
	t.Parallel()
	want, result := expect(t, settings.AccessPolicyKeyRotate), results()[settings.AccessPolicyKeyRotate]
	unusable(t, want, answer(want, inside(result, "api_key_last_four", "abcd")), "another last four")
	unusable(t, want, answer(want, with(result, "current", policyAt(4, nil))), "no key")
	want, result = expect(t, settings.AccessPolicyKeyRevoke), results()[settings.AccessPolicyKeyRevoke]
	unusable(t, want, answer(want, with(result, "current", policyAt(4, "abcd"))), "a key is left")
	want, result = expect(t, settings.AccessPolicyReplace), results()[settings.AccessPolicyReplace]
	for key, values := range map[string][]any{
		"api_key_configured": {false, nil, 1}, "api_key_last_four": {nil, "abcde", ""}, "ip_allowlist": {nil, "x", []any{1}}, "mode": {"disabled", nil},
	} {
		for _, value := range values {
			unusable(t, want, answer(want, inside(result, key, value)), key)
		}
	}
	usable(t, want, with(result, "current", policyAt(4, nil)), false)
	// A policy that was never changed has no time, and a revoke of nothing leaves it so.
	c, err := settings.Parse(settings.AccessPolicyKeyRevoke, []byte(`{"baseRevision":0}`))
	if err != nil {
		t.Fatal(err)
	}
	want = settings.Expectation{MutationID: mutation, Operation: settings.AccessPolicyKeyRevoke, CommandDigest: c.Digest(), Command: c.Stored()}
	never := inside(fields{"conflict": false, "revoked": false, "current": policyAt(0, nil)}, "updated_at", nil)
	usable(t, want, never, true)
	unusable(t, want, answer(want, with(inside(never, "revision", 1), "revoked", true)), "changed at no time")
}

// S1-215, S1-216: valueJson is canonical, an object, hashes to sha256, and is
// the value that was sent.
func TestConfigReceipts(t *testing.T) {
	t.Parallel()
	for _, operation := range []settings.Operation{settings.RuntimeConfigReplace, settings.RuntimeConfigDelete} {
		want, result := expect(t, operation), results()[operation]
		for _, value := range []string{`{"b":1,"a":[true]}`, `{"a":[true], "b":1}`, `{"a":[true],"b":1.0}`, `[]`, `null`, ``, `{`} {
			unusable(t, want, answer(want, with(result, "current", configAt(4, value))), value)
		}
		for _, value := range []string{`{"a":[true], "b":1}`, `{"b":1,"a":[true]}`} { // with the hash of the canonical form
			canonicalHash := configAt(4, `{"a":[true],"b":1}`)["sha256"]
			unusable(t, want, answer(want, with(result, "current", with(configAt(4, value), "sha256", canonicalHash))), value)
		}
		unusable(t, want, answer(want, inside(result, "sha256", canonical.SHA256([]byte("x")))), "another hash")
	}
	want, result := expect(t, settings.RuntimeConfigReplace), results()[settings.RuntimeConfigReplace]
	unusable(t, want, answer(want, with(result, "current", configAt(4, `{"a":[true],"b":2}`))), "another value")
}

// FuzzReadReceipt: whatever a Worker answers, the check ends with a verdict; a
// usable receipt is usable again, and an unknown operation never is.
func FuzzReadReceipt(f *testing.F) {
	all := settings.Operations()
	for i, operation := range all {
		want := expect(f, operation)
		f.Add(byte(i), encode(f, answer(want, results()[operation])))
	}
	f.Add(byte(0), []byte(`{"found":false,"receipt":null}`))
	f.Add(byte(1), []byte(strings.Repeat(`{"found":`, 100)))
	f.Fuzz(func(t *testing.T, i byte, raw []byte) {
		want := expect(t, all[int(i)%len(all)])
		got, err := settings.ReadReceipt(want, raw)
		again, also := settings.ReadReceipt(want, raw)
		if got != again || (err == nil) != (also == nil) || (err != nil) != errors.Is(err, settings.ErrReceipt) {
			t.Errorf("%+v, %v, then %+v, %v", got, err, again, also)
		}
		want.Operation = "secrets.purge"
		if got, err := settings.ReadReceipt(want, raw); err == nil && got.Found {
			t.Error("an unknown operation has a receipt")
		}
		_, _ = settings.Parse(all[int(i)%len(all)], raw)
	})
}
