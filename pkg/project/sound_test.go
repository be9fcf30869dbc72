package project

import (
	"fmt"
	"testing"
)

// What was found valid is not looked at again; what was refused is refused
// again, and the memory stays within its bound.
func TestSoundSchemas(t *testing.T) {
	t.Parallel()
	s := &sound{}
	if s.has([]byte("{}")) {
		t.Error("it knows what nobody told it")
	}
	for i := range maxSound + 10 {
		text := fmt.Appendf(nil, `{"title":"%d"}`, i)
		s.keep(text)
		if !s.has(text) || len(s.known) > maxSound {
			t.Fatalf("after %d schemas it holds %d", i+1, len(s.known))
		}
	}
	for range 2 {
		for text, want := range map[string]bool{`{"type":"object"}`: true, `{"type":"nothing"}`: false} {
			doc, err := ParseJSON([]byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			c := checker{found: &problems{}, doc: doc}
			c.schema([]byte(text), []any{"x"})
			if (len(c.found.list) == 0) != want {
				t.Errorf("%s: %v", text, c.found.list)
			}
		}
	}
	if !soundSchemas.has([]byte(`{"type":"object"}`)) || soundSchemas.has([]byte(`{"type":"nothing"}`)) {
		t.Error("only what is valid is remembered")
	}
}
