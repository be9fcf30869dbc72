package builder

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

func fieldsOf(out *Output) ReceiptFields {
	return ReceiptFields{
		BuilderPolicy: out.BuilderPolicy, CompatibilityDate: out.CompatibilityDate, RuntimeDigest: out.RuntimeDigest,
		ReleaseGeneration: out.ReleaseGeneration, Digests: out.Digests,
	}
}

// edited is a receipt with keys replaced by JSON texts, canonical again; an
// empty text drops the key.
func edited(t *testing.T, raw []byte, changes map[string]string) []byte {
	t.Helper()
	var object map[string]json.RawMessage
	err := json.Unmarshal(raw, &object)
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range changes {
		object[key] = json.RawMessage(text)
		if text == "" {
			delete(object, key)
		}
	}
	out, err := canonical.JSON(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// S2-138, S1-086: exactly the twelve keys of the seed.
func TestReceiptHasExactlyTwelveKeys(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	var object map[string]any
	err := json.Unmarshal(out.Receipt, &object)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split("builderPolicy bundleDigest dependencyDigest lockDigest manifestDigest projectDigest receiptVersion "+
		"releaseGeneration sbom sbomDigest staticData staticDataDigest", " ")
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
		t.Errorf("keys %v", got)
	}
	if object["receiptVersion"] != "1" || object["builderPolicy"] != "department-worker-project-v2.8" {
		t.Errorf("receipt %s", out.Receipt)
	}
	err = VerifyReceipt(out.Receipt, fieldsOf(out))
	if err != nil {
		t.Errorf("the untouched receipt: %v", err)
	}
}

func refused(t *testing.T, name string, raw []byte, want ReceiptFields) {
	t.Helper()
	err := VerifyReceipt(raw, want)
	if !errors.Is(err, ErrReceipt) {
		t.Errorf("%s: %v", name, err)
	}
}

// S2-138, S1-086: each key missing in turn, and one more.
func TestVerifyReceiptKeySet(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	for _, key := range receiptKeys {
		refused(t, "without "+key, edited(t, out.Receipt, map[string]string{key: ""}), fieldsOf(out))
	}
	refused(t, "with an extra key", edited(t, out.Receipt, map[string]string{"extra": "1"}), fieldsOf(out))
	refused(t, "with one key for another", edited(t, out.Receipt, map[string]string{"sbom": "", "extra": "1"}), fieldsOf(out))
	refused(t, "with an extra key inside", edited(t, out.Receipt, map[string]string{"staticData": `{"files":0,"bytes":0,"x":1}`}), fieldsOf(out))
	refused(t, "with another SBOM format", edited(t, out.Receipt, map[string]string{"sbom": "null"}), fieldsOf(out))
}

// S2-139, S1-087: "2", the number 1 and nothing are refused.
func TestVerifyReceiptVersion(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	for _, version := range []string{`"2"`, `1`, `null`, `""`, `"1.0"`, ``} {
		refused(t, "version "+version, edited(t, out.Receipt, map[string]string{"receiptVersion": version}), fieldsOf(out))
	}
}

// S2-137, S1-085: each of the seven digests malformed or altered in turn, in
// the receipt and in the version.
func TestVerifyReceiptDigests(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	digests := out.Digests.all()
	if len(digests) != 7 {
		t.Fatalf("%d digests", len(digests))
	}
	for name, value := range digests {
		altered := strings.Map(func(r rune) rune { return map[bool]rune{true: '1', false: '0'}[r == '0'] }, value[:1]) + value[1:]
		for _, bad := range []string{altered, value[:63], value + "0", strings.ToUpper(value[:63]) + "G", "", strings.Repeat("z", 64)} {
			text, err := json.Marshal(bad)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, name+" in the receipt", edited(t, out.Receipt, map[string]string{name: string(text)}), fieldsOf(out))
		}
	}
	for i := range 7 {
		for _, bad := range []string{strings.Repeat("0", 64), "", strings.Repeat("z", 64)} {
			want := fieldsOf(out)
			d := &want.Digests
			*[]*string{&d.Project, &d.Bundle, &d.Manifest, &d.Lock, &d.Dependency, &d.SBOM, &d.StaticData}[i] = bad
			refused(t, "a digest of the version", out.Receipt, want)
		}
	}
	// Malformed in both alike is no agreement.
	want := fieldsOf(out)
	want.Digests.SBOM = "x"
	refused(t, "malformed in both", edited(t, out.Receipt, map[string]string{"sbomDigest": `"x"`}), want)
}

// S2-140, S1-088: the generation is computed again.
func TestVerifyReceiptGeneration(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	zero := strings.Repeat("0", 64)
	change := func(name string, change func(*ReceiptFields)) {
		want := fieldsOf(out)
		change(&want)
		refused(t, name, out.Receipt, want)
	}
	change("stored generation", func(f *ReceiptFields) { f.ReleaseGeneration = zero })
	change("runtime", func(f *ReceiptFields) { f.RuntimeDigest = zero })
	change("malformed runtime", func(f *ReceiptFields) { f.RuntimeDigest = "" })
	change("date", func(f *ReceiptFields) { f.CompatibilityDate = "2026-11-02" })
	change("policy", func(f *ReceiptFields) { f.BuilderPolicy = V2_7 })
	both := fieldsOf(out)
	both.ReleaseGeneration = zero
	refused(t, "generation in both", edited(t, out.Receipt, map[string]string{"releaseGeneration": `"` + zero + `"`}), both)
}

func TestVerifyReceiptText(t *testing.T) {
	t.Parallel()
	out := mustBuild(t, projectOf(t, sourcesOf(nil)))
	text := string(out.Receipt)
	for name, raw := range map[string]string{
		"nothing": "", "not JSON": "{", "a list": "[]", "white space": text + "\n", "null": "null",
		"a key twice": strings.Replace(text, `{"builderPolicy"`, `{"builderPolicy":"x","builderPolicy"`, 1),
		"too long":    text + strings.Repeat(" ", maxReceipt),
	} {
		refused(t, name, []byte(raw), fieldsOf(out))
	}
}

func FuzzVerifyReceipt(f *testing.F) {
	f.Add([]byte(`{"receiptVersion":"1"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := VerifyReceipt(raw, ReceiptFields{})
		if !errors.Is(err, ErrReceipt) {
			t.Errorf("got %v", err)
		}
	})
}
