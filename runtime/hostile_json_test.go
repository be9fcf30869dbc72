package runtime_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

var pollutingKeys = []string{"__proto__", "constructor", "prototype"}

// eachObject adds a polluting key to each object of a value, one at a time.
func eachObject(node any, key string, at func()) {
	switch n := node.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(n)) {
			eachObject(n[name], key, at)
		}
		n[key] = map[string]any{"mode": "public", "polluted": true, "payload": map[string]any{}}
		at()
		delete(n, key)
	case []any:
		for _, value := range n {
			eachObject(value, key, at)
		}
	}
}

// Keys that a careless merge would take for prototypes are refused at every
// level of every command, the envelope's included.
func TestPollutingKeysInCommands(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	tried := 0
	for op, good := range goods(b.out.ReleaseGeneration) {
		id := ""
		if !reads[op] {
			id = uuid.NewString()
		}
		for _, key := range pollutingKeys {
			payload := decoded(t, good)
			eachObject(payload, key, func() {
				tried++
				body := canonicalText(t, decoded(t, b.mutation(t, op, id, canonicalText(t, payload))))
				if got := b.sign(t, w, op, body); got.status != 422 || !strings.Contains(got.body, `"command_invalid"`) && !strings.Contains(got.body, key) {
					t.Errorf("%s, %s in %s: %v", op, key, body, got)
				}
			})
			envelope := decoded(t, b.mutation(t, op, id, good))
			envelope[key] = map[string]any{"operation": "secrets.list", "payload": map[string]any{}}
			if got := b.sign(t, w, op, canonicalText(t, envelope)); got.status != 422 {
				t.Errorf("%s, %s in the envelope: %v", op, key, got)
			}
		}
	}
	if tried < 3*(len(since)+4) {
		t.Errorf("only %d objects", tried)
	}
	unpolluted(t, b, w)
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	tell(t, b, w, []step{{"secrets.put", goods("")["secrets.put"], `{"conflict":false,…`}}) // the control
}

func unpolluted(t *testing.T, b *built, w *worker) {
	t.Helper()
	if got := b.invoke(t, w, "clean", ""); got.body != `["undefined","undefined","undefined","undefined"]` {
		t.Errorf("polluted: %v", got)
	}
}

// In what is the author's, an input and the configuration, __proto__ is refused
// at every level; the other two are data and arrive as such.
func TestPollutingKeysInData(t *testing.T) {
	t.Parallel()
	b, w, _ := shown(t)
	revision := 1
	for _, key := range pollutingKeys {
		value := decoded(t, `{"a":[{"b":{"c":[[{"d":1}]]}}],"e":{}}`)
		levels := 0
		eachObject(value, key, func() {
			levels++
			text := canonicalText(t, value)
			input := b.invoke(t, w, "echo", text)
			put := b.either(t, w, "runtime_config.replace", fmt.Sprintf(`{"baseRevision":%d,"valueJson":%s}`, revision, canonicalText(t, text)))
			if key == "__proto__" {
				if input.status != 422 || !strings.Contains(input.body, "input_key_forbidden") || put.status != 422 || !strings.Contains(put.body, "__proto__") {
					t.Errorf("%s: %v, %v", text, input, put)
				}
				return
			}
			if input.status != 200 || canonicalText(t, decoded(t, input.body)) != text || put.status != 200 {
				t.Errorf("%s: %v, %v", text, input, put)
			}
			revision++
			if seen := b.invoke(t, w, "config", ""); canonicalText(t, decoded(t, seen.body)) != text {
				t.Errorf("the handler sees %v, want %s", seen, text)
			}
		})
		if levels != 5 {
			t.Errorf("%d levels", levels)
		}
	}
	unpolluted(t, b, w)
}

// twice repeats the first key of each object of a text, one object at a time,
// before and after it.
func twice(text string) []string {
	var out []string
	for at, c := range text {
		if c != '{' || at+1 >= len(text) || text[at+1] != '"' {
			continue
		}
		key := text[at+1 : at+3+strings.IndexByte(text[at+2:], '"')]
		out = append(out, text[:at+1]+key+":0,"+text[at+1:], text[:at+1]+key+`:{"a":1},`+text[at+1:])
	}
	return out
}

// A key that is given twice in any object of a command is refused: what is
// signed, digested and executed is one reading. An input's last one counts, for
// its schema as for the handler.
func TestDuplicateKeys(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	tried := 0
	for op, good := range goods(b.out.ReleaseGeneration) {
		id := ""
		if !reads[op] {
			id = uuid.NewString()
		}
		for _, body := range twice(b.mutation(t, op, id, good)) {
			tried++
			if got := b.sign(t, w, op, body); got.status != 422 || !strings.Contains(got.body, "not canonical") {
				t.Errorf("%s: %v", body, got)
			}
		}
	}
	if tried < 3*len(since) {
		t.Errorf("only %d objects", tried)
	}
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	for input, want := range map[string]int{`{"n":"x","n":1}`: 200, `{"n":1,"n":"x"}`: 422, `{"n":1}`: 200} {
		if got := b.invoke(t, w, "number", input); got.status != want || (want == 200 && got.body != `{"n":1}`) {
			t.Errorf("%s: %v", input, got)
		}
	}
}

// Depth beyond every stack is refused at both doors, wherever it stands, and
// the Worker serves on.
func TestDeepJSONEverywhere(t *testing.T) {
	t.Parallel()
	b, w, state := shown(t)
	before := state()
	deep := nested(100_000)
	objects := strings.Repeat(`{"a":`, 30_000) + "1" + strings.Repeat("}", 30_000)
	for name, body := range map[string]string{"the body": deep, "the body, objects": objects, "unclosed": strings.Repeat("[", 200_000)} {
		if got := b.sign(t, w, "access_policy.get", body); got.status != 422 {
			t.Errorf("control, %s: %d %.200s", name, got.status, got.body)
		}
		if got := b.invoke(t, w, "echo", body); got.status != 422 {
			t.Errorf("invoke, %s: %d %.200s", name, got.status, got.body)
		}
	}
	for op, good := range goods(b.out.ReleaseGeneration) {
		id := ""
		if !reads[op] {
			id = uuid.NewString()
		}
		// No digest is needed: depth is seen before anything is compared.
		body := strings.Replace(b.mutation(t, op, id, good), good, `{"x":`+deep+`}`, 1)
		if got := b.sign(t, w, op, body); got.status != 422 || !strings.Contains(got.body, "nested deeper") {
			t.Errorf("%s: %d %.200s", op, got.status, got.body)
		}
	}
	value := `{"a":` + nested(32_000) + `}`
	got := b.either(t, w, "runtime_config.replace", `{"baseRevision":1,"valueJson":`+quoted(value)+`}`)
	if got.status != 422 || !strings.Contains(got.body, "nested deeper") {
		t.Errorf("configuration: %d %.200s", got.status, got.body)
	}
	who := caller("member")
	who["roles"] = []any{decoded(t, `{"a":`+nested(3000)+`}`)}
	if got := b.invokeAs(t, w, who, "echo", "1"); got.status != 401 {
		t.Errorf("claims: %d %.200s", got.status, got.body)
	}
	if after := state(); !slices.Equal(after, before) {
		t.Error("something changed")
	}
}
