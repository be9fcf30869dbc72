package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sort"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// MaxInput bounds an operation's input in bytes: the invoke door's own bound.
const MaxInput = 1 << 20

// maxQueryValues bounds what a query string may add to an input.
const maxQueryValues = 200

var errNotJSON = fault.New(fault.UnsupportedType, "An operation takes application/json")

func problem(kind string, loc []any, format string, args ...any) error {
	return fault.Refuse(fault.Problem{Type: kind, Loc: loc, Msg: fmt.Sprintf(format, args...)})
}

// checkMediaType demands JSON when there is a body.
func checkMediaType(header http.Header, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	if !isJSON(header.Get("Content-Type")) {
		return errNotJSON
	}
	return nil
}

// compose merges a JSON body, query values and path parameters into one input
// (docs/projects.md): a query value is a string, a repeated one a list of
// strings. Without query and parameters the body is the input as it is. A name
// that stands in two places is refused rather than decided.
func compose(body []byte, rawQuery string, params map[string]string) ([]byte, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, problem("query_invalid", []any{"query"}, "the query string cannot be read")
	}
	body = bytes.TrimSpace(body)
	if len(query) == 0 && len(params) == 0 {
		if len(body) == 0 {
			return []byte("{}"), nil
		}
		if !json.Valid(body) {
			return nil, problem("json_invalid", []any{"body"}, "the body is not valid JSON")
		}
		return body, nil
	}
	input := map[string]json.RawMessage{}
	if len(body) > 0 {
		err := json.Unmarshal(body, &input)
		if err != nil || input == nil {
			return nil, problem("json_invalid", []any{"body"}, "the body must be a JSON object when the path or the query carry values")
		}
	}
	err = addQuery(input, query)
	if err != nil {
		return nil, err
	}
	for _, name := range sorted(params) {
		err := add(input, "path", name, params[name])
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(input)
}

func addQuery(input map[string]json.RawMessage, query url.Values) error {
	total := 0
	for _, name := range sorted(query) {
		values := query[name]
		total += len(values)
		if total > maxQueryValues {
			return problem("query_too_long", []any{"query"}, "the query has more than %d values", maxQueryValues)
		}
		var value any = values
		if len(values) == 1 {
			value = values[0]
		}
		err := add(input, "query", name, value)
		if err != nil {
			return err
		}
	}
	return nil
}

func add(input map[string]json.RawMessage, where, name string, value any) error {
	if _, taken := input[name]; taken {
		return problem("input_conflict", []any{where, name}, "%q is given twice", name)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	input[name] = raw
	return nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
