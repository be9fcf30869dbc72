package runtime_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/project"
)

// Real npm packages do on workerd what they are for: ES modules and CommonJS,
// under the runtime's own restrictions.
func TestRealPackagesRun(t *testing.T) {
	t.Parallel()
	archive, err := project.Pack("../pkg/builder/testdata/real")
	if err != nil {
		t.Fatal(err)
	}
	p, err := project.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	packages, err := npm.New(npm.Params{Registry: npmtest.Real(t)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public(currentKey), public(nextKey)}, Packages: packages})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Build(t.Context(), builder.Input{Project: p, ScriptName: scriptName})
	if err != nil {
		t.Fatal(err)
	}
	bundle := &built{out}
	w := mustStart(t, out.Bundle, t.TempDir())
	for _, c := range []struct{ operation, input, want string }{
		{"hono", `{"name":"world"}`, `{"hello":"world"}`},
		{"zod", `{"id":7}`, `{"ok":true,"value":{"id":7,"note":"none"}}`},
		{"zod", `{"id":-7,"note":1}`, `{"ok":false,"value":["id","note"]}`},
		{"itty", `{"a":2,"b":3}`, `5`},
		{"dates", `{}`, `"2026-03-01"`},
		{"commonjs", `{}`, `{"ms":172800000,"qs":{"a":{"b":"1"},"c":"2"},"back":"a%5Bb%5D=%C3%BC","lodash":"edgeWorker","chunk":[[1,2],[3]]}`},
		{"markdown", `{}`, `["heading"]`},
		{"streams", `{}`, `[1,4,9]`},
	} {
		if got := bundle.invoke(t, w, c.operation, c.input); got.status != 200 || got.body != c.want {
			t.Errorf("%s(%s): %d %s", c.operation, c.input, got.status, got.body)
		}
	}
}
