package npm

import (
	"encoding/json"
	"errors"
	"strings"
)

// maxDepth bounds the nesting of a package.json.
const maxDepth = 32

// members is a JSON object with its order, which has a meaning in exports: the
// first condition that holds is taken.
type members []member

type member struct {
	key   string
	value any // nil, bool, string, json.Number, []any or members
}

// get gives the last value of a key, as JSON.parse does.
func (m members) get(key string) any {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].key == key {
			return m[i].value
		}
	}
	return nil
}

func (m members) text(key string) string {
	value, _ := m.get(key).(string)
	return value
}

func (m members) object(key string) members {
	value, _ := m.get(key).(members)
	return value
}

// parseObject reads a JSON object; a byte order mark before it is forgiven, as
// npm forgives it.
func parseObject(text string) (members, error) {
	decoder := json.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	decoder.UseNumber()
	value, err := parseValue(decoder, 0)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(members)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	return fields, nil
}

func parseValue(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		fields := members{}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string) // the decoder accepts no other
			value, err := parseValue(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			fields = append(fields, member{name, value})
		}
		_, err = decoder.Token()
		return fields, err
	case json.Delim('['):
		items := []any{}
		for decoder.More() {
			value, err := parseValue(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, value)
		}
		_, err = decoder.Token()
		return items, err
	}
	return token, nil
}
