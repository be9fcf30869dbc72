package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// maxDepth bounds the nesting of a value: MAX_DEPTH of the Worker's runtime.
const maxDepth = 100

// members reads a body that is one JSON object in UTF-8. A key that is given
// twice is told: readers differ in which of the two counts. The map is nil
// when the body is no such object.
func members(body []byte) (map[string]json.RawMessage, []fault.Problem) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, notJSON()
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	first, err := decoder.Token()
	if err != nil || first != json.Delim('{') {
		return nil, notJSON()
	}
	given := map[string]json.RawMessage{}
	var problems []fault.Problem
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, notJSON()
		}
		name, _ := key.(string)
		var value json.RawMessage
		err = decoder.Decode(&value)
		if err != nil {
			return nil, notJSON()
		}
		if _, twice := given[name]; twice {
			problems = append(problems, fault.Problem{Type: "duplicate_key", Loc: []any{"body", name}, Msg: "the key is given twice"})
		}
		given[name] = value
	}
	return given, problems
}

func notJSON() []fault.Problem {
	return []fault.Problem{{Type: "json_invalid", Loc: []any{"body"}, Msg: "the body is not one JSON object"}}
}

// plain checks a value that a Worker is to read: no key is given twice in an
// object or changes its prototype in JavaScript, nothing is nested too deep,
// and each number is one in JavaScript. What it says quotes nothing of the
// value.
func plain(raw json.RawMessage) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return plainValue(decoder, 0)
}

func plainValue(decoder *json.Decoder, depth int) error {
	token, err := decoder.Token()
	if err != nil {
		return errors.New("it is not valid JSON")
	}
	start, nested := token.(json.Delim)
	number, isNumber := token.(json.Number)
	if isNumber {
		_, err = number.Float64()
		if err != nil {
			return errors.New("it has a number that is too large")
		}
	}
	switch {
	case !nested:
		return nil
	case depth > maxDepth:
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	seen := map[any]bool{}
	for decoder.More() {
		if start == '{' {
			key, err := decoder.Token()
			switch {
			case err != nil:
				return errors.New("it is not valid JSON")
			case seen[key]:
				return errors.New("it has an object with a key that is given twice")
			case key == "__proto__":
				return errors.New("it has the key __proto__")
			}
			seen[key] = true
		}
		err := plainValue(decoder, depth+1)
		if err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.New("it is not valid JSON")
	}
	return nil
}
