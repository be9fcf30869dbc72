package project

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// manifest makes a worker.json: the good one with top-level keys replaced by
// JSON texts; an empty text drops the key.
func manifest(t *testing.T, changes map[string]string) string {
	t.Helper()
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(goodManifest), &object)
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range changes {
		if text == "" {
			delete(object, key)
			continue
		}
		object[key] = json.RawMessage(text)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func withManifest(t testing.TB, text string) []byte {
	return archiveOf(t, file("worker.json", text), file("index.js", ""), file("index.ts", ""), file("a.json", ""))
}

func op(id, method, path string) string {
	return fmt.Sprintf(`{"id":%q,"method":%q,"path":%q}`, id, method, path)
}

func TestManifestMissing(t *testing.T) {
	t.Parallel()
	projecttest.Same(t, read(t, archiveOf(t, file("index.js", ""))), "manifest_missing [archive worker.json]: the archive has no worker.json at its top")
	projecttest.Same(t, read(t, archiveOf(t, file("orders/worker.json", goodManifest))),
		"manifest_missing [archive worker.json]: the archive has no worker.json at its top; it has orders/worker.json: pack what is in the folder, not the folder")
}

func TestManifestText(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, text, want string }{
		{"empty", "", "manifest_invalid [worker.json 1 1]: invalid JSON: unexpected end of JSON input"},
		{"cut", "{\n  \"name\": ", "manifest_invalid [worker.json 2 11]: invalid JSON: unexpected end of JSON input"},
		{"a comment", "{\n  // no\n}", "manifest_invalid [worker.json 2 3]: invalid JSON: invalid character '/' looking for beginning of object key string"},
		{"a trailing comma", "{\"a\": 1,\n}", "manifest_invalid [worker.json 2 1]: invalid JSON: invalid character '}'"},
		{"two values", goodManifest + "\n{}", "manifest_invalid [worker.json 2 1]: invalid JSON: invalid character '{' after top-level value"},
		{"not UTF-8", "{\"name\":\n\"\xff\"}", "manifest_invalid [worker.json 2 2]: invalid JSON: the text is not valid UTF-8"},
		{"a byte order mark", "\ufeff" + goodManifest, "manifest_invalid [worker.json 1 1]: invalid JSON: invalid character"},
		{"too deep", strings.Repeat("[", 70) + strings.Repeat("]", 70), "manifest_invalid [worker.json 1 66]: invalid JSON: the JSON is nested deeper than 64 levels"},
		{"a huge number", "{\"schema_version\":1e999999999}", "manifest_invalid [worker.json 1 19]: invalid JSON: the number is out of range"},
		{"a tiny number", "{\"schema_version\":1e-999999999}", "manifest_invalid [worker.json 1 19]: invalid JSON: the number is out of range"},
		{"a long number", "{\"schema_version\":" + strings.Repeat("1", 65) + "}", "manifest_invalid [worker.json 1 19]: invalid JSON: the number is out of range"},
		{"a key twice", "{\"name\":\"a\",\n \"name\":\"b\"}", "manifest_duplicate_key [worker.json name]: the key is given twice (line 2, column 2)"},
		{"a list", "[]", "manifest_invalid [worker.json]: got array, want object (line 1, column 1)"},
		{"too long", strings.Repeat(" ", MaxManifest+1), "manifest_invalid [worker.json]: the manifest is longer than 1 MiB"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := read(t, withManifest(t, c.text))
			if len(got) == 0 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("got %v\nwant %s", got, c.want)
			}
		})
	}
}

func TestManifestKeys(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		changes map[string]string
		want    string // a problem that must be among those found; empty: none
	}{
		{"good", nil, ""},
		{"an editor's hint", map[string]string{"$schema": `"./x.json"`}, ""},
		{"no version", map[string]string{"schema_version": ""}, "manifest_invalid [worker.json schema_version]: the key is required"},
		{"another version", map[string]string{"schema_version": "2"}, "manifest_invalid [worker.json schema_version]: value must be 1"},
		{"version as text", map[string]string{"schema_version": `"1"`}, "manifest_invalid [worker.json schema_version]: value must be 1"},
		{"no name", map[string]string{"name": ""}, "manifest_invalid [worker.json name]: the key is required"},
		{"an empty name", map[string]string{"name": `""`}, "manifest_invalid [worker.json name]: "},
		{"a long name", map[string]string{"name": `"` + strings.Repeat("n", 65) + `"`}, "manifest_invalid [worker.json name]: maxLength"},
		{"another language", map[string]string{"language": `"python"`}, "manifest_invalid [worker.json language]: value must be one of 'javascript', 'typescript'"},
		{"an unknown key", map[string]string{"secrets": `[]`}, "manifest_invalid [worker.json secrets]: the key is not known here"},
		{"no entry", map[string]string{"entry": `"missing.js"`}, "manifest_entry_invalid [worker.json entry]: the archive has no file missing.js"},
		{"an entry outside", map[string]string{"entry": `"../index.js"`}, "manifest_entry_invalid [worker.json entry]: the archive has no file ../index.js"},
		{"an entry that is no module", map[string]string{"entry": `"a.json"`}, "manifest_invalid [worker.json entry]: "},
		{"an entry in the other language", map[string]string{"entry": `"index.ts"`}, "manifest_entry_invalid [worker.json entry]: the language is javascript, and index.ts is not"},
		{"TypeScript", map[string]string{"entry": `"index.ts"`, "language": `"typescript"`}, ""},
		{"the first date", map[string]string{"compatibility_date": `"2024-01-01"`}, ""},
		{"before it", map[string]string{"compatibility_date": `"2023-12-31"`}, "manifest_compatibility_date_invalid [worker.json compatibility_date]: 2023-12-31 is before"},
		{"the last date", map[string]string{"compatibility_date": `"2026-11-24"`}, ""},
		{"after it", map[string]string{"compatibility_date": `"2026-11-25"`}, "manifest_compatibility_date_invalid [worker.json compatibility_date]: 2026-11-25 is after"},
		{"no day", map[string]string{"compatibility_date": `"2026-02-30"`}, "manifest_compatibility_date_invalid [worker.json compatibility_date]: 2026-02-30 is not a day"},
		{"another form", map[string]string{"compatibility_date": `"2026-1-1"`}, "manifest_invalid [worker.json compatibility_date]: "},
		{"no operations", map[string]string{"operations": `[]`}, "manifest_invalid [worker.json operations]: minItems"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found(t, read(t, withManifest(t, manifest(t, c.changes))), c.want)
		})
	}
}

// found checks that a problem begins with want, and that there is none at all
// when want is empty.
func found(t *testing.T, got []string, want string) {
	t.Helper()
	if want == "" {
		projecttest.Same(t, got)
		return
	}
	for _, line := range got {
		if strings.HasPrefix(line, want) {
			return
		}
	}
	t.Errorf("got\n  %s\nwant among them\n  %s", strings.Join(got, "\n  "), want)
}

func TestManifestOperations(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, op(fmt.Sprintf("o%d", i), "GET", fmt.Sprintf("/o%d", i)))
		}
		return strings.Join(all, ",")
	}
	cases := []struct{ name, operations, want string }{
		{"200", many(200), ""},
		{"201", many(201), "manifest_invalid [worker.json operations]: maxItems"},
		{"the longest id", op("a"+strings.Repeat("b", 63), "GET", "/"), ""},
		{"a longer id", op("a"+strings.Repeat("b", 64), "GET", "/"), "manifest_invalid [worker.json operations 0 id]: "},
		{"an id in capitals", op("a", "GET", "/a") + "," + op("Orders", "GET", "/"), "manifest_invalid [worker.json operations 1 id]: "},
		{"an id that begins with a digit", op("1a", "GET", "/"), "manifest_invalid [worker.json operations 0 id]: "},
		{"an unknown method", op("a", "HEAD", "/"), "manifest_invalid [worker.json operations 0 method]: "},
		{"no method", `{"id":"a","path":"/"}`, "manifest_invalid [worker.json operations 0 method]: the key is required"},
		{"an unknown key", `{"id":"a","method":"GET","path":"/","auth":1}`, "manifest_invalid [worker.json operations 0 auth]: the key is not known here"},
		{"the same id", op("a", "GET", "/a") + "," + op("a", "GET", "/b"), "manifest_operation_conflict [worker.json operations 1 id]: operation 0 has the id a already"},
		{"the same route", op("a", "GET", "/a") + "," + op("b", "GET", "/a"), "manifest_operation_conflict [worker.json operations 1 path]: GET /a matches requests that operation 0 (GET /a) matches too"},
		{"another method", op("a", "GET", "/a") + "," + op("b", "POST", "/a"), ""},
		{"two parameters in one place", op("a", "GET", "/a/{x}") + "," + op("b", "GET", "/a/{y}"), "manifest_operation_conflict [worker.json operations 1 path]: "},
		{"a parameter over a literal", op("a", "GET", "/a/{x}") + "," + op("b", "GET", "/a/b"), "manifest_operation_conflict [worker.json operations 1 path]: "},
		{"patterns that cross", op("a", "GET", "/{x}/b") + "," + op("b", "GET", "/a/{y}"), "manifest_operation_conflict [worker.json operations 1 path]: "},
		{"patterns that do not meet", op("a", "GET", "/a/{x}") + "," + op("b", "GET", "/b/{x}") + "," + op("c", "GET", "/a/{x}/y"), ""},
		{"the root", op("a", "GET", "/"), ""},
		{"no slash", op("a", "GET", "a"), "manifest_invalid [worker.json operations 0 path]: "},
		{"a trailing slash", op("a", "GET", "/a/"), "manifest_invalid [worker.json operations 0 path]: "},
		{"an empty segment", op("a", "GET", "/a//b"), "manifest_invalid [worker.json operations 0 path]: "},
		{"a query", op("a", "GET", "/a?b"), "manifest_invalid [worker.json operations 0 path]: "},
		{"an encoded character", op("a", "GET", "/%61"), "manifest_invalid [worker.json operations 0 path]: "},
		{"half a parameter", op("a", "GET", "/a{b}"), "manifest_invalid [worker.json operations 0 path]: "},
		{"an empty parameter", op("a", "GET", "/{}"), "manifest_invalid [worker.json operations 0 path]: "},
		{"a parameter that is no name", op("a", "GET", "/{__proto__}"), "manifest_invalid [worker.json operations 0 path]: "},
		{"a parameter twice", op("a", "GET", "/{x}/{x}"), "manifest_invalid [worker.json operations 0 path]: the path has the parameter {x} twice"},
		{"a parent segment", op("a", "GET", "/a/.."), "manifest_invalid [worker.json operations 0 path]: the path has a segment .."},
		{"the platform's paths", op("a", "GET", "/__control"), "manifest_invalid [worker.json operations 0 path]: paths that begin with /__ belong to the platform"},
		{"one underscore", op("a", "GET", "/_a"), ""},
		{"the longest path", op("a", "GET", "/"+strings.Repeat("a", 254)), ""},
		{"a longer path", op("a", "GET", "/"+strings.Repeat("a", 255)), "manifest_invalid [worker.json operations 0 path]: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found(t, read(t, withManifest(t, manifest(t, map[string]string{"operations": "[" + c.operations + "]"}))), c.want)
		})
	}
}

func TestManifestProblemsNameTheirPlace(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer(`"operations":[`, "\n\"operations\": [\n  ", `"method":"GET"`, "\n    \"method\": \"get\"").Replace(goodManifest)
	projecttest.Same(t, read(t, withManifest(t, text)),
		"manifest_invalid [worker.json operations 0 method]: value must be one of 'GET', 'POST', 'PUT', 'PATCH', 'DELETE' (line 4, column 15)")
	projecttest.Same(t, read(t, withManifest(t, strings.Replace(goodManifest, `"name":"n"`, `"nam":"n"`, 1))),
		"manifest_invalid [worker.json name]: the key is required (line 1, column 1)",
		"manifest_invalid [worker.json nam]: the key is not known here (line 1, column 27)")
}

func TestOperationSchemas(t *testing.T) {
	t.Parallel()
	const at = "manifest_schema_invalid [worker.json operations 0 input_schema"
	deep := strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70)
	cases := []struct{ name, schema, want string }{
		{"empty", `{}`, ""},
		{"a usual one", `{"type":"object","required":["id"],"properties":{"id":{"type":"string","pattern":"^[a-z]+$"}}}`, ""},
		{"its own dialect", `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, ""},
		{"a reference inside", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, ""},
		{"an anchor", `{"$ref":"#a","$defs":{"a":{"$anchor":"a","type":"string"}}}`, ""},
		{"names that are keywords", `{"properties":{"$ref":{"type":"string"},"$id":{},"enum":{"type":"string"},"pattern":{}}}`, ""},
		{"data that looks like keywords", `{"enum":[{"$ref":"http://x"}],"const":{"id":"x"},"default":{"$id":"x"},"examples":[{"id":"a"},{"id":"a"}]}`, ""},
		{"not an object", `true`, "manifest_invalid [worker.json operations 0 input_schema]: "},
		{"a wrong type", `{"type":"text"}`, at + " type]: not a valid JSON Schema: "},
		{"a wrong keyword value", `{"properties":{"a":{"minLength":-1}}}`, at + " properties a minLength]: not a valid JSON Schema: "},
		{"another dialect", `{"$schema":"http://json-schema.org/draft-07/schema#"}`, at + " $schema]: only the dialect"},
		{"a reference outside", `{"items":{"$ref":"https://example.com/a.json"}}`, at + " items $ref]: references to other documents are not supported"},
		{"a reference to the meta-schema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, at + " $ref]: references to other documents"},
		{"a reference to a file", `{"$ref":"file:///etc/passwd"}`, at + " $ref]: references to other documents"},
		{"a reference to nothing", `{"$ref":"#/$defs/b"}`, at + "]: not a valid JSON Schema: "},
		{"an id", `{"$id":"https://example.com/"}`, at + " $id]: an id is not supported"},
		{"a dynamic reference", `{"$dynamicRef":"#a"}`, at + " $dynamicRef]: $dynamicRef is not supported"},
		{"a pattern that is broken", `{"pattern":"("}`, at + " pattern]: "},
		{"a pattern only RE2 knows", `{"pattern":"(?i)a"}`, at + " pattern]: "},
		{"a pattern only JavaScript knows", `{"pattern":"(?=a)"}`, at + " pattern]: "},
		{"too long", `{"description":"` + strings.Repeat("d", MaxOperationSchema) + `"}`, at + "]: the schema is longer than 64 KiB"},
		{"deep", deep, "manifest_invalid [worker.json 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			operations := `[{"id":"a","method":"GET","path":"/","input_schema":` + c.schema + `}]`
			found(t, read(t, withManifest(t, manifest(t, map[string]string{"operations": operations}))), c.want)
		})
	}
}

// What a pattern may be: RE2 and JavaScript with its u flag must both take it
// and mean the same.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`^[a-z][a-z0-9_.-]{0,63}$`, `^\d{4}-\d{2}-\d{2}$`, `a|b`, `(a)(?:b)(?<c>d)`, `[\-\]\\]`, `\/\.`, `\p{L}+`, `\x41`, `a{2,}`, `[^"]*`, `\b`, ``, `[(?i)]`,
	} {
		_, err := commonRegexp(pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, pattern := range []string{
		`(?i)a`, `(?P<a>b)`, `\Aa\z`, `\Qa\E`, `[[:alpha:]]`, `\-`, `\_`, `\pL`, `\x{41}`, `a{`, `a}`, `]`, `[]a]`, `[^]a]`, `[]`, `(?=a)`, `(?!a)`, `(?<=a)b`,
		`\1`, `\k<a>`, `\u0041`, `\cA`, `a**`, `a{1001}`, `\`, `(`, `[\b]`, `(?<1>a)`, `\C`,
	} {
		_, err := commonRegexp(pattern)
		if err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/", "/", true}, {"/", "/a", false}, {"/", "/{x}", false}, {"/a", "/{x}", true}, {"/a/{x}", "/{y}/b", true}, {"/a/b", "/a/c", false},
	} {
		if Overlap(c.a, c.b) != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("Overlap(%s, %s) is not %v", c.a, c.b, c.want)
		}
	}
}

// The published schema cannot be changed through what ManifestSchema returns.
func TestManifestSchemaIsACopy(t *testing.T) {
	t.Parallel()
	clear(ManifestSchema())
	var doc map[string]any
	err := json.Unmarshal(ManifestSchema(), &doc)
	if err != nil || doc["$schema"] != dialect {
		t.Errorf("schema %v: %v", doc["$schema"], err)
	}
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	doc, err := ParseJSON([]byte("{\"a\": [1,\n  {\"ü\": null}]}"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": []any{json.Number("1"), map[string]any{"ü": nil}}}
	if !reflect.DeepEqual(doc.Value(), want) {
		t.Errorf("value %v", doc.Value())
	}
	for _, c := range []struct {
		loc          []any
		line, column int
	}{{nil, 1, 1}, {[]any{"a"}, 1, 7}, {[]any{"a", 1}, 2, 3}, {[]any{"a", 1, "ü"}, 2, 9}, {[]any{"a", 7}, 1, 7}} {
		line, column := doc.Place(c.loc...)
		if line != c.line || column != c.column {
			t.Errorf("%v is at %d:%d, want %d:%d", c.loc, line, column, c.line, c.column)
		}
	}
	_, err = ParseJSON([]byte("{\"a\":1,\n\"a\":2}"))
	if err == nil || err.Error() != "invalid JSON: a key is given twice (line 2, column 1)" {
		t.Errorf("a key twice: %v", err)
	}
}

func FuzzReadManifest(f *testing.F) {
	for _, seed := range []string{goodManifest, "", "{}", "[[[", `{"a":1,"a":2}`, `{"operations":[{"input_schema":{"$ref":"#"}}]}`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Read(bytes.NewReader(withManifest(t, text)))
		if (p == nil) == (err == nil) {
			t.Errorf("project %v, error %v", p, err)
		}
		if err == nil && !json.Valid(p.ManifestJSON) {
			t.Errorf("the canonical manifest is no JSON: %q", p.ManifestJSON)
		}
	})
}

func FuzzReadTar(f *testing.F) {
	f.Add(tarOf(f, good(folder("a/"), file("a/b", "c"), link(tarSymlink, "l", "x"))...))
	f.Add([]byte("not a tar"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := Read(bytes.NewReader(zipOf(t, content)))
		if (p == nil) == (err == nil) {
			t.Errorf("project %v, error %v", p, err)
		}
		if err != nil {
			return
		}
		for path := range p.Files {
			if clean, fault := cleanPath(path, false); fault != "" || clean != path {
				t.Errorf("the path %q was let in: %s", path, fault)
			}
		}
	})
}

const tarSymlink = '2'
