package runtime_test

import (
	"bytes"
	"crypto/ed25519"
	"maps"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// built is a bundle and what the control plane knows of it.
type built struct {
	out *builder.Output
}

func build(t testing.TB, archive []byte, policy builder.Policy) *built {
	t.Helper()
	p, err := project.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	b, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public(currentKey), public(nextKey)}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Build(t.Context(), builder.Input{Project: p, ScriptName: scriptName, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return &built{out}
}

// example builds examples/orders.
func example(t testing.TB) *built {
	t.Helper()
	archive, err := project.Pack("../examples/orders")
	if err != nil {
		t.Fatal(err)
	}
	return build(t, archive, builder.Current)
}

// files builds a project of the given files; worker.json is added with the
// operations that are given as JSON.
func files(t testing.TB, operations string, sources map[string]string) *built {
	t.Helper()
	all := maps.Clone(sources)
	all["worker.json"] = `{"schema_version":1,"name":"probe","language":"javascript","entry":"index.js",` +
		`"compatibility_date":"2026-11-01","operations":` + operations + `}`
	return build(t, projecttest.Archive(t, all), builder.Current)
}

// invoke calls an operation with a good assertion.
func (b *built) invoke(t testing.TB, w *worker, op, input string) answer {
	t.Helper()
	return w.do(t, "POST", "/__invoke/"+op, b.assertion("invoke", op, input).bearer(t), bytes.NewReader([]byte(input)))
}

// command calls the control door with a good assertion.
func (b *built) command(t testing.TB, w *worker, op, payload string) answer {
	t.Helper()
	return b.sign(t, w, op, b.envelope(t, op, payload))
}

// mutate is command for a mutation.
func (b *built) mutate(t testing.TB, w *worker, op, id, payload string) answer {
	t.Helper()
	return b.sign(t, w, op, b.mutation(t, op, id, payload))
}

// sign sends a body to the control door with a good assertion.
func (b *built) sign(t testing.TB, w *worker, op, body string) answer {
	t.Helper()
	return w.do(t, "POST", "/__control", b.assertion("control", op, body).bearer(t), strings.NewReader(body))
}

// envelope is the canonical body of a command.
func (b *built) envelope(t testing.TB, op, payload string) string {
	t.Helper()
	return b.mutation(t, op, "", payload)
}

// mutation is the canonical body of a mutation.
func (b *built) mutation(t testing.TB, op, id, payload string) string {
	t.Helper()
	if id != "" {
		id = `"mutationId":"` + id + `",`
	}
	return `{"commandDigest":"` + digestOf(t, op, payload) + `",` + id + `"operation":"` + op +
		`","payload":` + payload + `,"releaseGeneration":"` + b.out.ReleaseGeneration + `"}`
}

// digestOf is a command's digest; its payload is canonical JSON.
func digestOf(t testing.TB, op, payload string) string {
	t.Helper()
	command, err := canonical.Transform([]byte(`{"operation":"` + op + `","payload":` + payload + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return canonical.Digest("teamsync-edge-worker-command", command)
}

// policyOf builds the project of the settings' tests under an older policy.
func policyOf(t testing.TB, policy builder.Policy) *built {
	t.Helper()
	return build(t, projecttest.Archive(t, map[string]string{
		"index.js": settingsSource,
		"worker.json": `{"schema_version":1,"name":"probe","language":"javascript","entry":"index.js",` +
			`"compatibility_date":"2026-11-01","operations":` + settingsOperations + `}`,
	}), policy)
}
