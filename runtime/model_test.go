package runtime_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Of mutations that race for one revision one is applied; of one that arrives
// many times at once all get the same answer.
func TestRacingMutations(t *testing.T) {
	t.Parallel()
	b := example(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	race := func(id func() string, payload func(int) string) []string {
		results := make([]string, 16)
		var racing sync.WaitGroup
		for i := range results {
			racing.Go(func() { results[i] = b.mutate(t, w, "access_policy.replace", id(), payload(i)).result(t) })
		}
		racing.Wait()
		return results
	}
	const same = `{"baseRevision":1,"ipAllowlist":[],"mode":"public"}`
	won := 0
	for _, got := range race(uuid.NewString, func(i int) string {
		return fmt.Sprintf(`{"baseRevision":0,"ipAllowlist":["10.%d.0.0/16"],"mode":"private"}`, i)
	}) {
		if strings.HasPrefix(got, `{"conflict":false,`) {
			won++
		} else if !strings.HasPrefix(got, `{"conflict":true,`) {
			t.Errorf("%s", got)
		}
	}
	if won != 1 {
		t.Errorf("%d of 16 were applied", won)
	}
	one := uuid.NewString()
	for _, got := range race(func() string { return one }, func(int) string { return same }) {
		if got != `{"conflict":false,"current":`+policy("public", "[]", "null", 2)+`}` {
			t.Errorf("a copy: %s", got)
		}
	}
}

// Killed at any moment, a mutation is there with its receipt or not at all.
func TestReceiptAndChangeAreOne(t *testing.T) {
	t.Parallel()
	b := example(t)
	storage := t.TempDir()
	applied, lost, revision := 0, 0, 0
	w := mustStart(t, b.out.Bundle, storage)
	for round := range 24 {
		id := uuid.NewString()
		payload := fmt.Sprintf(`{"baseRevision":%d,"ipAllowlist":[],"mode":"public"}`, revision)
		body := b.mutation(t, "access_policy.replace", id, payload)
		bearer := b.assertion("control", "access_policy.replace", body).bearer(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://worker/__control", strings.NewReader(body))
			if err != nil {
				return
			}
			request.Header.Set("Authorization", bearer)
			response, err := w.client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
		}()
		// The moment of the kill is what varies: before, within and after.
		select {
		case <-ended:
		case <-time.After(time.Duration(round%12) * 500 * time.Microsecond):
		}
		w.kill()
		<-ended
		w = mustStart(t, b.out.Bundle, storage)
		found := strings.Contains(b.command(t, w, "control.receipt.get", receiptQuery(id, digestOf(t, "access_policy.replace", payload))).body, `"found":true`)
		result, _ := b.command(t, w, "access_policy.get", "{}").value(t)["result"].(map[string]any)
		now, _ := result["policy"].(map[string]any)
		if found {
			applied++
			revision++
		} else {
			lost++
		}
		if now["revision"] != float64(revision) {
			t.Fatalf("round %d: revision %v, receipt %t, want %d", round, now["revision"], found, revision)
		}
	}
	t.Logf("%d applied, %d not", applied, lost)
}

// model is what the control instance must hold.
type model struct {
	mode     string
	key      string // last four, quoted, or null
	revision int
	config   string
	configAt int
	secrets  map[string]string
	done     map[string]sent // by mutationId, until acknowledged
}

// sent is a mutation that was applied, and its result.
type sent struct{ op, payload, result string }

// policyText is the policy in an answer.
func (m *model) policyText() string { return policy(m.mode, "[]", m.key, m.revision) }

// next makes a random mutation, operation and payload, and what it must answer;
// a good one is applied to the model at once.
func (m *model) next(t *testing.T, r *rand.Rand) (string, string, string) {
	t.Helper()
	base := func(now int) (int, bool) {
		if r.IntN(4) == 0 {
			return now + 1 - 2*r.IntN(2)*min(now, 1), false
		}
		return now, true
	}
	conflict := func(good bool, extra, current string) string {
		return fmt.Sprintf(`{"conflict":%t,"current":%s%s}`, !good, current, extra)
	}
	name := string(rune('A' + r.IntN(3)))
	switch r.IntN(7) {
	case 0:
		at, good := base(m.revision)
		mode := []string{"private", "api_key", "public"}[r.IntN(3)]
		if good {
			m.mode, m.revision = mode, m.revision+1
		}
		return "access_policy.replace", fmt.Sprintf(`{"baseRevision":%d,"ipAllowlist":[],"mode":%q}`, at, mode), conflict(good, "", m.policyText())
	case 1:
		at, good := base(m.revision)
		four := fmt.Sprintf("%04d", r.IntN(10_000))
		if good {
			m.key, m.revision = `"`+four+`"`, m.revision+1
		}
		return "access_policy.api_key.rotate", fmt.Sprintf(`{"baseRevision":%d,"keyDigest":%q,"lastFour":%q}`, at, sha(four), four), conflict(good, "", m.policyText())
	case 2:
		at, good := base(m.revision)
		revoked := good && m.key != "null"
		if revoked {
			m.key, m.revision = "null", m.revision+1
		}
		current := m.policyText()
		if good {
			current = strings.Replace(current, `"updated_at":null`, `"updated_at":"T"`, 1)
		}
		return "access_policy.api_key.revoke", fmt.Sprintf(`{"baseRevision":%d}`, at), conflict(good, fmt.Sprintf(`,"revoked":%t`, revoked), current)
	case 3:
		at, good := base(m.configAt)
		value := fmt.Sprintf(`{"n":%d}`, r.IntN(1000))
		if good {
			m.config, m.configAt = value, m.configAt+1
		}
		return "runtime_config.replace", fmt.Sprintf(`{"baseRevision":%d,"valueJson":%s}`, at, quoted(value)), conflict(good, "", config(t, m.config, m.configAt))
	case 4:
		at, good := base(m.configAt)
		if good {
			m.config, m.configAt = "{}", m.configAt+1
		}
		return "runtime_config.delete", fmt.Sprintf(`{"baseRevision":%d}`, at), conflict(good, "", config(t, m.config, m.configAt))
	case 5:
		value := fmt.Sprint(r.IntN(1000))
		m.secrets[name] = value
		return "secrets.put", putSecret(name, value), conflict(true, "", secret(name, value))
	default:
		_, was := m.secrets[name]
		delete(m.secrets, name)
		return "secrets.delete", fmt.Sprintf(`{"name":%q}`, name), conflict(true, fmt.Sprintf(`,"deleted":%t`, was), fmt.Sprintf(`{"deleted":%t,"name":%q,"updated_at":"T"}`, was, name))
	}
}

// check compares all that can be read with the model.
func (m *model) check(t *testing.T, b *built, w *worker) {
	t.Helper()
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(m.secrets)) {
		secrets = append(secrets, secret(name, m.secrets[name]))
	}
	tell(t, b, w, []step{
		{"access_policy.get", `{}`, `{"policy":` + m.policyText() + `}`},
		{"runtime_config.get", `{}`, `{"config":` + config(t, m.config, m.configAt) + `}`},
		{"secrets.list", `{}`, `{"secrets":[` + strings.Join(secrets, ",") + `]}`},
	})
	for id, s := range m.done {
		digest := digestOf(t, s.op, s.payload)
		tell(t, b, w, []step{{"control.receipt.get", receiptQuery(id, digest),
			`{"found":true,"receipt":{"commandDigest":"` + digest + `","createdAt":"T","mutationId":"` + id + `","operation":"` + s.op + `","result":` + s.result + `}}`}})
	}
}

// Random mutations, stale ones among them, each delivered up to three times in
// two ways, with kills, restarts and acknowledgements in between: every one is
// applied at most once, and the receipts tell exactly which (D10).
func TestRandomMutationsAgainstAModel(t *testing.T) {
	t.Parallel()
	b := probe(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			storage := t.TempDir()
			w := mustStart(t, b.out.Bundle, storage)
			m := &model{mode: "private", key: "null", config: "{}", secrets: map[string]string{}, done: map[string]sent{}}
			for range 150 {
				op, payload, want := m.next(t, r)
				id := uuid.NewString()
				body := b.mutation(t, op, id, payload)
				bearer := b.assertion("control", op, body).bearer(t)
				if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)).result(t); got != want {
					t.Fatalf("%s %s:\ngot  %s\nwant %s", op, payload, got, want)
				}
				applied := strings.HasPrefix(want, `{"conflict":false`)
				if applied {
					m.done[id] = sent{op, payload, want}
				}
				if r.IntN(5) == 0 {
					w.kill()
					w = mustStart(t, b.out.Bundle, storage)
				}
				if r.IntN(3) == 0 { // the same request once more
					if got := w.do(t, "POST", "/__control", bearer, strings.NewReader(body)); got.code(t) != "assertion_replayed" {
						t.Fatalf("a copy: %v", got)
					}
				}
				if r.IntN(3) == 0 && applied { // the same mutation, signed anew
					if got := b.sign(t, w, op, body).result(t); got != want {
						t.Fatalf("%s again: %s", op, got)
					}
				}
				if r.IntN(4) == 0 {
					for acked, s := range m.done {
						tell(t, b, w, []step{{"control.receipt.ack", receiptQuery(acked, digestOf(t, s.op, s.payload)), `{"acknowledged":true}`}})
						delete(m.done, acked)
						break
					}
				}
			}
			m.check(t, b, w)
			w.kill()
			m.check(t, b, mustStart(t, b.out.Bundle, storage))
		})
	}
}
