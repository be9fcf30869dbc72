package provider_test

import (
	"encoding/json"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

var release = provider.Release{
	ScriptName: "dw-52473c071373573354081d382e70c4569c975797e01245dd", CompatibilityDate: "2026-01-01",
	BundleDigest: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
}

// S2-199: the digest is SHA-256 over the domain, one NUL byte and the canonical
// JSON of exactly six fields; each input changes it, and the script's name and
// namespace do not.
func TestReleaseDigest(t *testing.T) {
	t.Parallel()
	const text = `{"bindings":[{"class_name":"TeamSyncDepartmentStorage","name":"TEAMSYNC_DEPARTMENT_STORAGE","type":"durable_object_namespace"}],` +
		`"bundle_digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","compatibility_date":"2026-01-01",` +
		`"exports":{"TeamSyncDepartmentStorage":{"storage":"sqlite","type":"durable-object"}},"main_module":"index.mjs","version":2}`
	got, err := release.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if want := canonical.SHA256([]byte("teamsync-edge-worker-release\x00" + text)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	tag, err := release.Tag()
	if err != nil || tag != "release-"+got {
		t.Errorf("tag %s, %v", tag, err)
	}
	for name, change := range map[string]func(*provider.Release){
		"bundle": func(r *provider.Release) { r.BundleDigest = canonical.SHA256(nil) },
		"date":   func(r *provider.Release) { r.CompatibilityDate = "2026-01-02" },
	} {
		other := release
		change(&other)
		if digest, err := other.Digest(); err != nil || digest == got {
			t.Errorf("%s: %s, %v", name, digest, err)
		}
	}
	other := release
	other.ScriptName, other.Namespace = "dw-other", "elsewhere"
	if digest, err := other.Digest(); err != nil || digest != got {
		t.Errorf("name and namespace: %s, %v", digest, err)
	}
}

// S2-157, S2-159, S2-160: the parts that never vary, as the provider spells them.
func TestFixedParts(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]any{provider.MainModule, provider.Bindings(), provider.Exports()})
	const want = `["index.mjs",[{"type":"durable_object_namespace","name":"TEAMSYNC_DEPARTMENT_STORAGE","class_name":"TeamSyncDepartmentStorage"}],` +
		`{"TeamSyncDepartmentStorage":{"type":"durable-object","storage":"sqlite"}}]`
	if err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
}
