package runtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
)

func TestDefaultAccessPolicy(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	want := `{"operation":"access_policy.get","releaseGeneration":"` + b.out.ReleaseGeneration + `","result":{"policy":{` +
		`"api_key_configured":false,"api_key_last_four":null,"ip_allowlist":[],"mode":"private","revision":0,"updated_at":null}}}`
	if got := b.command(t, w, "access_policy.get", "{}"); got.status != 200 || got.body != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

// An unknown operation is only told apart after the digest was compared: 404
// shows that both sides write and hash the same canonical form (RFC 8785).
func TestCommandDigestAgreesWithTheControlPlane(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	for _, payload := range []string{
		`{}`,
		`{"z":1,"a":[true,null,{"ü":"€","$":"\u0001\n\"\\/"}]}`,
		`{"n":[1e21,0.000001,1e-7,123456789012345680000,-0,0.1,9007199254740991,5e-324]}`,
		`{"":0,"\ud83d\ude00":1,"\ufb33":2,"\u20ac":3,"1":4,"10":5,"2":6}`,
	} {
		text, err := canonical.Transform([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		got := b.command(t, w, "no.such", string(text))
		if got.status != 404 || got.code(t) != "control_operation_unknown" {
			t.Errorf("%s: %v", payload, got)
		}
	}
}

func TestControlRefusesBadCommands(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	good := b.envelope(t, "access_policy.get", "{}")
	digest := canonical.Digest("teamsync-edge-worker-command", []byte(`{"operation":"access_policy.get","payload":{}}`))
	generation := b.out.ReleaseGeneration
	cases := []struct {
		name, body string
		status     int
		code       string
	}{
		{"good", good, 200, ""},
		{"not JSON", "{", 422, ""},
		{"a list", "[]", 422, ""},
		{"white space", good + " ", 422, ""},
		{"a key twice", strings.Replace(good, `"operation"`, `"operation":"x","operation"`, 1), 422, ""},
		{"an unknown key", strings.Replace(good, `"operation"`, `"extra":1,"operation"`, 1), 422, ""},
		{"no payload", strings.Replace(good, `"payload":{},`, ``, 1), 422, ""},
		{"payload as list", strings.Replace(good, `"payload":{}`, `"payload":[]`, 1), 422, ""},
		{"a deep payload", strings.Replace(good, `"payload":{}`, `"payload":{"a":`+nested(100_000)+`}`, 1), 422, ""},
		{"a polluting key", strings.Replace(good, `"payload":{}`, `"payload":{"a":[{"__proto__":{"mode":"public"}}]}`, 1), 422, ""},
		{"an envelope without prototype", strings.Replace(good, `{"commandDigest"`, `{"__proto__":{},"commandDigest"`, 1), 422, ""},
		{"half a surrogate pair", strings.Replace(good, `"payload":{}`, `"payload":{"a":"\udc00"}`, 1), 422, ""},
		{"an extra key in the payload", b.envelope(t, "access_policy.get", `{"x":1}`), 422, ""},
		{"a mutation id on a read", strings.Replace(good, `"operation"`, `"mutationId":"4f4f4f4f-0000-4000-8000-000000000000","operation"`, 1), 422, ""},
		{"a bad mutation id", strings.Replace(good, `"operation"`, `"mutationId":"1","operation"`, 1), 422, ""},
		{"another digest", strings.Replace(good, digest, strings.Repeat("0", 64), 1), 409, "command_digest_mismatch"},
		{"another generation", strings.Replace(good, generation, strings.Repeat("0", 64), 1), 409, "release_generation_mismatch"},
		{"another operation than signed", b.envelope(t, "secrets.purge", "{}"), 401, "assertion_invalid"},
	}
	for _, c := range cases {
		a := b.assertion("control", "access_policy.get", c.body)
		got := w.do(t, "POST", "/__control", a.bearer(t), strings.NewReader(c.body))
		if got.status != c.status || (c.code != "" && got.code(t) != c.code) {
			t.Errorf("%s: got %v, want %d %s", c.name, got, c.status, c.code)
		}
	}
}

// Every builder policy gives a bundle that starts and answers (D8).
func TestEveryPolicyRuns(t *testing.T) {
	t.Parallel()
	archive, err := project.Pack("../examples/orders")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, policy := range builder.Policies() {
		b := build(t, archive, policy)
		w := mustStart(t, b.out.Bundle, t.TempDir())
		if got := b.command(t, w, "access_policy.get", "{}"); got.status != 200 {
			t.Errorf("%s: %v", policy, got)
		}
		seen[b.out.ReleaseGeneration] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d generations for 4 policies", len(seen))
	}
}

// Both ends of the range of compatibility dates run: old ones lack parts of
// the platform that new ones have.
func TestEveryCompatibilityDateRuns(t *testing.T) {
	t.Parallel()
	b := example(t)
	for _, date := range []string{project.MinCompatibilityDate, "2024-10-01", "2025-06-01", project.MaxCompatibilityDate} {
		w, err := startAt(t, b.out.Bundle, t.TempDir(), date)
		if err != nil {
			t.Errorf("%s: %v", date, err)
			continue
		}
		if got := b.command(t, w, "access_policy.get", "{}"); got.status != 200 {
			t.Errorf("%s: %v", date, got)
		}
		if got := b.invoke(t, w, "orders.create", `{"customer":"ACME","lines":[{"sku":"CH-001","quantity":2}]}`); got.status != 200 {
			t.Errorf("%s: %v", date, got)
		}
	}
	// The newest date of the builder is the newest of the pinned workerd.
	day, err := time.Parse(time.DateOnly, project.MaxCompatibilityDate)
	if err != nil {
		t.Fatal(err)
	}
	_, err = startAt(t, b.out.Bundle, t.TempDir(), day.AddDate(0, 0, 1).Format(time.DateOnly))
	if err == nil {
		t.Error("workerd takes a later date than project.MaxCompatibilityDate")
	}
}
