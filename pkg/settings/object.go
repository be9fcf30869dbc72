package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// object reads one JSON object that has exactly the given keys, each once and
// in this case.
func object(raw []byte, keys ...string) (map[string]json.RawMessage, error) {
	found, err := members(raw)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if found[key] == nil {
			return nil, fmt.Errorf("key %q is missing", key)
		}
	}
	if len(found) != len(keys) {
		return nil, errors.New("it has unknown keys")
	}
	return found, nil
}

// members reads one JSON object in UTF-8 whose keys are given once each.
func members(raw []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	token, err := decoder.Token()
	if err != nil || token != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	found := map[string]json.RawMessage{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, errors.New("it is not a JSON object")
		}
		name, _ := key.(string)
		var value json.RawMessage
		err = decoder.Decode(&value)
		if err != nil || found[name] != nil {
			return nil, errors.New("a key is repeated or has no value")
		}
		found[name] = value
	}
	_, err = decoder.Token()
	if err != nil {
		return nil, errors.New("it has no end")
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not one JSON object")
	}
	return found, nil
}
