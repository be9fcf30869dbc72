package gen_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// D11: at /w/ a token, a key, both or neither; everywhere else the token that
// the document demands of all routes, but for the documents themselves.
func TestSecurity(t *testing.T) {
	t.Parallel()
	var raw struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(gen.Document(), &raw); err != nil {
		t.Fatal(err)
	}
	open := 0
	for path, item := range raw.Paths {
		for method, text := range item {
			var o struct {
				Security  json.RawMessage
				Responses map[string]json.RawMessage
				Tags      []string
			}
			if json.Unmarshal(text, &o) != nil || o.Responses == nil {
				continue // the path's parameters
			}
			if !strings.HasPrefix(path, "/w/") {
				if len(o.Security) > 0 && o.Tags[0] != "documents" {
					t.Errorf("%s %s: %s", method, path, o.Security)
				}
				continue
			}
			open++
			var choices []map[string][]string
			if err := json.Unmarshal(o.Security, &choices); err != nil || len(choices) != 4 || len(choices[3]) != 0 {
				t.Errorf("%s %s: %s", method, path, o.Security)
			}
			for _, status := range []string{"401", "403", "429"} {
				if o.Responses[status] == nil {
					t.Errorf("%s %s has no %s", method, path, status)
				}
			}
		}
	}
	if open != 5 {
		t.Errorf("%d open routes", open)
	}
}
