package control

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const someTime = "2026-01-02T03:04:05.678Z"

// S1-176, S1-186: only the exact result of each command is one.
func TestSecretsResults(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("ab", 32)
	secret := `{"name":"A","sha256":"` + digest + `","updated_at":"` + someTime + `"}`
	names := func(raw json.RawMessage) error {
		got, err := DecodeSecretNames(raw)
		if err == nil && got == nil {
			t.Errorf("%s: nil names", raw)
		}
		return err
	}
	deleted := func(raw json.RawMessage) error { return CheckDeleted(raw, "A") }
	good := `{"conflict":false,"deleted":true,"current":{"name":"A","deleted":true,"updated_at":"` + someTime + `"}}`
	for _, c := range []struct {
		check func(json.RawMessage) error
		good  []string
		bad   []string
	}{
		{names, []string{`{"secrets":[]}`, `{"secrets":[` + secret + `]}`}, []string{
			``, `null`, `[]`, `{}`, `{"secrets":null}`, `{"secrets":{}}`, `{"secrets":["A"]}`, `{"Secrets":[]}`, `{"names":["A"]}`, `{"secrets":[],"secrets":[]}`,
			`{"secrets":[],"x":1}`, `{"secrets":[null]}`, `{"secrets":[` + secret + `,` + secret + `]}`,
			`{"secrets":[` + strings.Replace(secret, `"A"`, `"a"`, 1) + `]}`, `{"secrets":[` + strings.Replace(secret, `"A"`, `1`, 1) + `]}`,
			`{"secrets":[` + strings.Replace(secret, digest, "x", 1) + `]}`, `{"secrets":[` + strings.Replace(secret, someTime, "now", 1) + `]}`,
			`{"secrets":[` + strings.Replace(secret, `{`, `{"value":"x",`, 1) + `]}`,
		}},
		{CheckPurged, []string{`{"purged":0}`, `{"purged":64}`}, []string{
			``, `{}`, `{"purged":null}`, `{"purged":-1}`, `{"purged":1.5}`, `{"purged":"1"}`, `{"purged":true}`, `{"Purged":1}`, `{"purged":1,"conflict":false}`, `{"conflict":false}`,
		}},
		{deleted, []string{good, strings.ReplaceAll(good, `"deleted":true`, `"deleted":false`)}, []string{
			``, `{}`, strings.Replace(good, `"conflict":false`, `"conflict":true`, 1), strings.Replace(good, `"conflict":false`, `"conflict":null`, 1),
			strings.Replace(good, `"conflict":false,`, ``, 1), strings.Replace(good, `"deleted":true`, `"deleted":false`, 1), strings.ReplaceAll(good, `"deleted":true`, `"deleted":null`),
			strings.Replace(good, `"A"`, `"B"`, 1), strings.Replace(good, someTime, "", 1), strings.Replace(good, `{"name"`, `{"x":1,"name"`, 1), `{"conflict":false,"deleted":true,"current":null}`,
		}},
		{CheckAcknowledged, []string{`{"acknowledged":true}`}, []string{``, `{}`, `{"acknowledged":false}`, `{"acknowledged":null}`, `{"acknowledged":1}`, `{"acknowledged":true,"x":1}`}},
	} {
		for _, raw := range c.good {
			if err := c.check(json.RawMessage(raw)); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
		}
		for _, raw := range c.bad {
			var malformed *MalformedError
			if err := c.check(json.RawMessage(raw)); !errors.As(err, &malformed) {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
	if got, _ := DecodeSecretNames(json.RawMessage(`{"secrets":[` + secret + `]}`)); !slices.Equal(got, []string{"A"}) {
		t.Errorf("names %v", got)
	}
}

// S1-120: a receipt is of the mutation that was asked for, in exactly its form.
func TestDecodeReceipt(t *testing.T) {
	t.Parallel()
	q := ReceiptQuery{MutationID: "m-1", CommandDigest: strings.Repeat("0", 64)}
	good := `{"found":true,"receipt":{"mutationId":"m-1","operation":"secrets.purge","commandDigest":"` + q.CommandDigest + `","result":{"purged":1},"createdAt":"` + someTime + `"}}`
	got, err := DecodeReceipt(json.RawMessage(good), SecretsPurge, q)
	none, also := DecodeReceipt(json.RawMessage(`{"found":false,"receipt":null}`), SecretsPurge, q)
	if err != nil || also != nil || !got.Found || string(got.Result) != `{"purged":1}` || none.Found || none.Result != nil {
		t.Fatalf("%+v, %v; %+v, %v", got, err, none, also)
	}
	for _, raw := range []string{
		``, `{}`, `{"found":true,"receipt":null}`, strings.Replace(good, "true", "false", 1), strings.Replace(good, "true", "null", 1), strings.Replace(good, "true", `"true"`, 1),
		`{"found":false}`, strings.Replace(good, "m-1", "m-2", 1), strings.Replace(good, "secrets.purge", "secrets.delete", 1), strings.Replace(good, q.CommandDigest, "1", 1),
		strings.Replace(good, someTime, "1", 1), strings.Replace(good, `"createdAt"`, `"created_at"`, 1), strings.Replace(good, `{"mutationId"`, `{"x":1,"mutationId"`, 1),
		strings.Replace(good, `{"found"`, `{"x":1,"found"`, 1), `{"found":true,"receipt":[]}`,
	} {
		var malformed *MalformedError
		if _, err := DecodeReceipt(json.RawMessage(raw), SecretsPurge, q); !errors.As(err, &malformed) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
