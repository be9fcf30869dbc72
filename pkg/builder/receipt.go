package builder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// receiptVersion is the only version of the build receipt (S2-139).
const receiptVersion = "1"

// maxReceipt bounds what VerifyReceipt parses; a receipt has about 900 bytes.
const maxReceipt = 16 << 10

// ErrReceipt is the class of every failed receipt verification.
var ErrReceipt = errors.New("build receipt does not verify")

// receipt is the build receipt: exactly twelve keys (S2-138, S1-086).
type receipt struct {
	BuilderPolicy     Policy            `json:"builderPolicy"`
	BundleDigest      string            `json:"bundleDigest"`
	DependencyDigest  string            `json:"dependencyDigest"`
	LockDigest        string            `json:"lockDigest"`
	ManifestDigest    string            `json:"manifestDigest"`
	ProjectDigest     string            `json:"projectDigest"`
	ReleaseGeneration string            `json:"releaseGeneration"`
	ReceiptVersion    string            `json:"receiptVersion"`
	SBOM              receiptSBOM       `json:"sbom"`
	SBOMDigest        string            `json:"sbomDigest"`
	StaticData        receiptStaticData `json:"staticData"`
	StaticDataDigest  string            `json:"staticDataDigest"`
}

type receiptSBOM struct {
	Format      string `json:"format"`
	SpecVersion string `json:"specVersion"`
	Components  int    `json:"components"`
	Bytes       int    `json:"bytes"`
}

type receiptStaticData struct {
	Files int `json:"files"`
	Bytes int `json:"bytes"`
}

// receiptKeys is the exact key set of S2-138.
var receiptKeys = []string{
	"builderPolicy", "bundleDigest", "dependencyDigest", "lockDigest", "manifestDigest", "projectDigest",
	"releaseGeneration", "receiptVersion", "sbom", "sbomDigest", "staticData", "staticDataDigest",
}

// ReceiptFields is what a stored version says; a receipt must agree with it.
type ReceiptFields struct {
	BuilderPolicy     Policy
	CompatibilityDate string
	RuntimeDigest     string
	ReleaseGeneration string
	Digests           Digests
}

// VerifyReceipt checks a stored receipt: the exact key set, receiptVersion
// "1", seven digests of 64 hex digits that equal the wanted ones, and a release
// generation that equals both the wanted one and the one computed again from
// the parts (S2-137…S2-140, S1-085…S1-088). Every failure is ErrReceipt.
func VerifyReceipt(raw []byte, want ReceiptFields) error {
	err := verifyReceipt(raw, want)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return nil
}

func verifyReceipt(raw []byte, want ReceiptFields) error {
	got, err := parseReceipt(raw)
	if err != nil {
		return err
	}
	if got.SBOM.Format != sbomFormat || got.SBOM.SpecVersion != sbomVersion {
		return fmt.Errorf("sbom is of the format %q %q", got.SBOM.Format, got.SBOM.SpecVersion)
	}
	if got.ReceiptVersion != receiptVersion {
		return fmt.Errorf("receiptVersion %q", got.ReceiptVersion)
	}
	if got.BuilderPolicy != want.BuilderPolicy {
		return fmt.Errorf("builderPolicy %q differs from the version's %q", got.BuilderPolicy, want.BuilderPolicy)
	}
	err = want.Digests.Validate()
	if err != nil {
		return fmt.Errorf("the version's %w", err)
	}
	has, wants := got.digests().all(), want.Digests.all()
	for name, value := range wants {
		if has[name] != value {
			return fmt.Errorf("%s differs from the version's", name)
		}
	}
	return verifyGeneration(got, want)
}

func verifyGeneration(got receipt, want ReceiptFields) error {
	again, err := Generation(GenerationInput{
		BuilderPolicy:     want.BuilderPolicy,
		CompatibilityDate: want.CompatibilityDate,
		ProjectDigest:     got.ProjectDigest,
		ManifestDigest:    got.ManifestDigest,
		LockDigest:        got.LockDigest,
		DependencyDigest:  got.DependencyDigest,
		StaticDataDigest:  got.StaticDataDigest,
		RuntimeDigest:     want.RuntimeDigest,
	})
	if err != nil {
		return err
	}
	if got.ReleaseGeneration != again || want.ReleaseGeneration != again {
		return errors.New("releaseGeneration differs from the one computed again")
	}
	return nil
}

func (r receipt) digests() Digests {
	return Digests{
		Project: r.ProjectDigest, Bundle: r.BundleDigest, Manifest: r.ManifestDigest, Lock: r.LockDigest,
		Dependency: r.DependencyDigest, SBOM: r.SBOMDigest, StaticData: r.StaticDataDigest,
	}
}

// parseReceipt reads a receipt with exactly the twelve keys. The text must be
// canonical: our builder wrote it so, and duplicate keys cannot hide then.
func parseReceipt(raw []byte) (receipt, error) {
	var got receipt
	if len(raw) > maxReceipt {
		return got, errors.New("the receipt is too long")
	}
	text, err := canonical.Transform(raw)
	if err != nil {
		return got, err
	}
	if !bytes.Equal(text, raw) {
		return got, errors.New("the receipt is not canonical JSON")
	}
	var keys map[string]json.RawMessage
	err = json.Unmarshal(raw, &keys)
	if err != nil {
		return got, err
	}
	for _, key := range receiptKeys {
		if _, ok := keys[key]; !ok {
			return got, fmt.Errorf("key %s is missing", key)
		}
	}
	if len(keys) != len(receiptKeys) {
		return got, fmt.Errorf("%d keys instead of %d", len(keys), len(receiptKeys))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&got)
	return got, err
}
