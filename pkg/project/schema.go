package project

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// MaxOperationSchema bounds the canonical text of one input or output schema.
const MaxOperationSchema = 64 << 10

const dialect = "https://json-schema.org/draft/2020-12/schema"

// compiledManifest compiles the published schema once. It is part of the binary,
// so a failure is a defect that the first test finds.
var compiledManifest = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(manifestSchemaText))
	if err != nil {
		return nil, fmt.Errorf("read the manifest schema: %w", err)
	}
	return compile(doc)
})

// noLoader keeps a schema from making this process read a file or a URL.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("references to other documents are not supported")
}

func compile(doc any) (*jsonschema.Schema, error) {
	const name = "urn:teamsync:schema"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(commonRegexp)
	err := compiler.AddResource(name, doc)
	if err != nil {
		return nil, err
	}
	return compiler.Compile(name)
}

// validate runs the manifest's schema over a document.
func validate(doc *Document, found *problems) {
	schema, err := compiledManifest()
	if err != nil {
		found.add(manifestInvalid, []any{ManifestName}, "the manifest cannot be checked: %v", err)
		return
	}
	err = schema.Validate(doc.value)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return
	}
	for _, leaf := range leaves(invalid) {
		for _, loc := range locations(doc.value, leaf) {
			found.add(manifestInvalid, inManifest(loc), "%s%s", describe(leaf), doc.whereIs(loc))
		}
	}
}

// leaves returns the errors that have no finer cause, in the order of the
// document.
func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	slices.SortStableFunc(all, func(a, b *jsonschema.ValidationError) int {
		return slices.CompareFunc(a.InstanceLocation, b.InstanceLocation, natural)
	})
	return all
}

// natural orders array indexes by number and keys by text.
func natural(a, b string) int {
	m, errA := strconv.Atoi(a)
	n, errB := strconv.Atoi(b)
	if errA == nil && errB == nil {
		return m - n
	}
	return strings.Compare(a, b)
}

// locations says where an error is: for missing and for unknown keys, one
// place for each key.
func locations(value any, e *jsonschema.ValidationError) [][]any {
	at := typed(value, e.InstanceLocation)
	var keys []string
	switch reason := e.ErrorKind.(type) {
	case *kind.Required:
		keys = slices.Sorted(slices.Values(reason.Missing))
	case *kind.AdditionalProperties:
		keys = slices.Sorted(slices.Values(reason.Properties))
	default:
		return [][]any{at}
	}
	var all [][]any
	for _, key := range keys {
		all = append(all, append(at[:len(at):len(at)], any(key)))
	}
	return all
}

// typed turns a location's parts into keys and array indexes.
func typed(value any, parts []string) []any {
	loc := []any{}
	for _, part := range parts {
		switch inner := value.(type) {
		case map[string]any:
			loc, value = append(loc, part), inner[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(inner) {
				return loc
			}
			loc, value = append(loc, i), inner[i]
		}
	}
	return loc
}

// describe gives an error's text. The one for keys is ours, because each key
// has its own location.
func describe(e *jsonschema.ValidationError) string {
	switch reason := e.ErrorKind.(type) {
	case *kind.Required:
		return "the key is required"
	case *kind.AdditionalProperties:
		return "the key is not known here"
	default:
		return reason.LocalizedString(message.NewPrinter(language.English))
	}
}

// schema checks one operation's schema: bounded, of our dialect, complete in
// itself, valid against the meta-schema, its references resolved.
func (c *checker) schema(raw json.RawMessage, loc []any) {
	if len(raw) == 0 {
		return
	}
	if len(raw) > MaxOperationSchema {
		c.add(manifestSchema, loc, "the schema is longer than 64 KiB")
		return
	}
	if soundSchemas.has(raw) {
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		c.add(manifestSchema, loc, "the schema cannot be read: %v", err)
		return
	}
	before := len(c.found.list)
	c.keywords(value, loc)
	if len(c.found.list) > before {
		return
	}
	_, err = compile(value)
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	switch {
	case err == nil:
		soundSchemas.keep(raw)
	case errors.As(err, &invalid) && errors.As(invalid.Err, &details):
		for _, leaf := range leaves(details) {
			inner := append(loc[:len(loc):len(loc)], typed(value, leaf.InstanceLocation)...)
			c.add(manifestSchema, inner, "not a valid JSON Schema: %s", describe(leaf))
		}
	default:
		c.add(manifestSchema, loc, "not a valid JSON Schema: %s", schemaError(err))
	}
}

// schemaError drops the internal name that the compiler gives the document.
func schemaError(err error) string {
	return strings.ReplaceAll(err.Error(), "urn:teamsync:schema#", "#")
}

// keywords refuses what the validator inside a Worker would not follow: other
// documents, other dialects, and ids that change what a reference means.
func (c *checker) keywords(value any, loc []any) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			c.keywords(item, append(loc[:len(loc):len(loc)], any(i)))
		}
	case map[string]any:
		for _, key := range sortedKeys(value) {
			c.member(key, value[key], append(loc[:len(loc):len(loc)], any(key)))
		}
	}
}

// member checks one key of a schema. Data inside a schema is no schema, and
// below a map of schemas the keys are the author's names.
func (c *checker) member(key string, value any, loc []any) {
	switch key {
	case "enum", "const", "default", "examples":
		return
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		named, _ := value.(map[string]any)
		for _, name := range sortedKeys(named) {
			c.keywords(named[name], append(loc[:len(loc):len(loc)], any(name)))
		}
		return
	}
	if text, ok := value.(string); ok {
		c.keyword(key, text, loc)
	}
	c.keywords(value, loc)
}

func (c *checker) keyword(key, text string, loc []any) {
	switch key {
	case "$dynamicRef", "$recursiveRef", "$dynamicAnchor":
		c.add(manifestSchema, loc, "%s is not supported in an operation's schema", key)
	case "$ref":
		if !strings.HasPrefix(text, "#") {
			c.add(manifestSchema, loc, "references to other documents are not supported")
		}
	case "$id", "id":
		c.add(manifestSchema, loc, "an id is not supported in an operation's schema")
	case "$schema":
		if strings.TrimSuffix(text, "#") != dialect {
			c.add(manifestSchema, loc, "only the dialect %s is supported", dialect)
		}
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
