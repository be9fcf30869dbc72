package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// contract is the document, ready to judge answers.
type contract struct {
	paths    map[string]map[string]operation
	compiler *jsonschema.Compiler
	mu       sync.Mutex
}

type operation struct {
	Responses map[string]struct {
		Ref     string `json:"$ref"`
		Content map[string]json.RawMessage
	}
}

const documentURL = "mem:///openapi.json"

var loadContract = sync.OnceValues(func() (*contract, error) {
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(gen.Document()))
	if err != nil {
		return nil, err
	}
	c := &contract{compiler: jsonschema.NewCompiler(), paths: map[string]map[string]operation{}}
	c.compiler.DefaultDraft(jsonschema.Draft7)
	c.compiler.AssertFormat()
	var parsed struct {
		Paths map[string]map[string]json.RawMessage
	}
	err = json.Unmarshal(gen.Document(), &parsed)
	if err != nil {
		return nil, err
	}
	for path, item := range parsed.Paths {
		c.paths[path] = map[string]operation{}
		for method, text := range item {
			var o operation
			if json.Unmarshal(text, &o) == nil && len(o.Responses) > 0 {
				c.paths[path][strings.ToUpper(method)] = o
			}
		}
	}
	return c, c.compiler.AddResource(documentURL, nullable(raw))
})

// nullable turns OpenAPI 3.0's nullable into JSON Schema's list of types.
func nullable(node any) any {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			n[key] = nullable(value)
		}
		if kind, ok := n["type"].(string); ok && n["nullable"] == true {
			n["type"] = []any{kind, "null"}
		}
	case []any:
		for i, value := range n {
			n[i] = nullable(value)
		}
	}
	return node
}

// template finds the document's path for a request's.
func (c *contract) template(path string) string {
	if strings.HasPrefix(path, "/w/") {
		return "/w/{script_name}/{operation_path}"
	}
	given := strings.Split(path, "/")
	best := ""
	for candidate := range c.paths {
		parts := strings.Split(candidate, "/")
		if len(parts) != len(given) {
			continue
		}
		fits := true
		for i, part := range parts {
			fits = fits && (part == given[i] || strings.HasPrefix(part, "{"))
		}
		if fits && (best == "" || !strings.Contains(candidate, "{")) {
			best = candidate
		}
	}
	return best
}

// checkContract holds an answer against what the document says of its route:
// the status, the media type and, for JSON, the schema. Requests that match no
// route have no contract.
func checkContract(t *testing.T, method, target string, got answer) {
	t.Helper()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(target, "?")
	template := c.template(path)
	o, known := c.paths[template][method]
	if !known {
		return
	}
	status := fmt.Sprint(got.code)
	response, documented := o.Responses[status]
	if !documented && strings.HasPrefix(status, "4") {
		status = "4XX"
		response, documented = o.Responses[status]
	}
	if !documented {
		t.Errorf("%s %s answers %d, which the document does not know: %s", method, template, got.code, got.body)
		return
	}
	pointer := fmt.Sprintf("#/paths/%s/%s/responses/%s", strings.ReplaceAll(template, "/", "~1"), strings.ToLower(method), status)
	if response.Ref != "" {
		pointer = response.Ref
	}
	media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if got.code == 204 || (response.Ref == "" && len(response.Content) == 0) {
		if len(got.body) != 0 {
			t.Errorf("%s %s: a body with %d", method, template, got.code)
		}
		return
	}
	if response.Ref == "" {
		if _, ok := response.Content[media]; !ok {
			t.Errorf("%s %s: media type %q", method, template, media)
			return
		}
	}
	if media == "application/json" {
		c.validate(t, pointer+"/content/application~1json/schema", got.body)
	}
}

func (c *contract) validate(t *testing.T, pointer string, body []byte) {
	t.Helper()
	c.mu.Lock()
	schema, err := c.compiler.Compile(documentURL + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer))
	c.mu.Unlock()
	if err != nil {
		t.Fatalf("%s: %v", pointer, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s does not fit %s: %v", body, pointer, err)
	}
}

// The judge itself judges: a wrong field, a missing one, an undocumented status.
func TestContractIsJudged(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	schema, err := c.compiler.Compile(documentURL + "#/components/schemas/Ticket")
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]any{
		"ticket_id": "t", "operation": "deploy", "company_id": "c", "department_id": "d",
		"status": "pending", "worker_id": "w", "version_id": "v", "error_code": nil,
	}
	if err := schema.Validate(good); err != nil {
		t.Errorf("control: %v", err)
	}
	for name, value := range map[string]any{"status": "done", "error_code": 7, "more": "x", "operation": "purge"} {
		bad := map[string]any{}
		for k, v := range good {
			bad[k] = v
		}
		bad[name] = value
		if schema.Validate(bad) == nil {
			t.Errorf("%s = %v passes", name, value)
		}
	}
	if got := c.template("/w/dw-1/orders/7/cancel"); got != "/w/{script_name}/{operation_path}" {
		t.Errorf("the gateway's path is %q", got)
	}
	if got := c.template("/worker/versions"); got != "/worker/versions" {
		t.Errorf("a plain path is %q", got)
	}
}
