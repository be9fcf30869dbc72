package project

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON that is read here; it keeps every later
// recursion over the value shallow.
const maxDepth = 64

// position is a place in a text: line and column from 1, columns in characters.
type position struct{ line, column int }

// positionAt finds the place of a byte offset.
func positionAt(text []byte, offset int) position {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return position{bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1}
}

// Document is JSON that was read strictly: one value, valid UTF-8, no key
// twice in one object, nested at most 64 deep.
type Document struct {
	value any // numbers as json.Number
	text  []byte
	at    map[string]int // byte offset of each value, by pointer
}

// duplicate is a key that an object holds twice.
type duplicate struct {
	loc    []any
	offset int
}

// pointer makes the key of Document.at. A NUL cannot be in an index, and in a
// key it could only blur a position in a message.
func pointer(loc []any) string {
	var b strings.Builder
	for _, part := range loc {
		b.WriteByte(0)
		switch part := part.(type) {
		case string:
			b.WriteString(part)
		case int:
			b.WriteString(strconv.Itoa(part))
		}
	}
	return b.String()
}

// JSONError says where a text stops being the JSON that is accepted. Lines and
// columns count from 1, columns in characters.
type JSONError struct {
	Line, Column int
	Err          error
}

func (e *JSONError) Error() string {
	return fmt.Sprintf("invalid JSON: %v (line %d, column %d)", e.Err, e.Line, e.Column)
}

// Unwrap gives the cause.
func (e *JSONError) Unwrap() error { return e.Err }

// ParseJSON reads text strictly; every failure, a duplicate key included, is a
// *JSONError.
func ParseJSON(text []byte) (*Document, error) {
	doc, duplicates, offset, err := parseJSON(text)
	if err == nil && len(duplicates) > 0 {
		offset = duplicates[0].offset
		err = errors.New("a key is given twice")
	}
	if err != nil {
		at := positionAt(text, offset)
		return nil, &JSONError{at.line, at.column, err}
	}
	return doc, nil
}

// Value is the value: map[string]any, []any, string, json.Number, bool or nil.
func (d *Document) Value() any { return d.value }

// Place gives the line and the column at which the value at loc (keys and
// indexes) begins, or the nearest value around it.
func (d *Document) Place(loc ...any) (int, int) {
	at := positionAt(d.text, d.nearest(loc))
	return at.line, at.column
}

// parseJSON reads text strictly. On a syntax error it returns the error with
// the offset where reading stopped; duplicate keys do not stop it.
func parseJSON(text []byte) (*Document, []duplicate, int, error) {
	if !utf8.Valid(text) {
		return nil, nil, firstInvalid(text), errors.New("the text is not valid UTF-8")
	}
	// The whole text first: a decoder that gives token by token reports places
	// that are off by what it has buffered.
	err := json.Unmarshal(text, new(json.RawMessage))
	if err != nil {
		return nil, nil, syntaxOffset(text, err), err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	p := &parser{decoder: decoder, doc: &Document{text: text, at: map[string]int{}}}
	value, err := p.value(nil)
	if err != nil {
		return nil, nil, p.start, err
	}
	p.doc.value = value
	return p.doc, p.duplicates, 0, nil
}

// syntaxOffset is the offset of the character that cannot be there, or of the
// end of a text that ends too early.
func syntaxOffset(text []byte, err error) int {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || strings.HasPrefix(err.Error(), "unexpected end") {
		return len(text)
	}
	return int(syntax.Offset) - 1
}

func firstInvalid(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return len(text)
}

type parser struct {
	decoder    *json.Decoder
	doc        *Document
	duplicates []duplicate
	start      int // where the value that is read last begins
}

// next is the offset at which the next token begins.
func (p *parser) next() int {
	at := int(p.decoder.InputOffset())
	for at < len(p.doc.text) && strings.IndexByte(" \t\r\n,:", p.doc.text[at]) >= 0 {
		at++
	}
	return at
}

func (p *parser) value(loc []any) (any, error) {
	p.start = p.next()
	if len(loc) > maxDepth {
		return nil, errors.New("the JSON is nested deeper than 64 levels")
	}
	p.doc.at[pointer(loc)] = p.start
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return p.object(loc)
	case json.Delim('['):
		return p.array(loc)
	}
	if number, ok := token.(json.Number); ok && !modest(string(number)) {
		return nil, errors.New("the number is out of range")
	}
	return token, nil
}

// modest reports a number that later code may take apart without harm: exact
// arithmetic on 1e-999999999 would need gigabytes.
func modest(number string) bool {
	const digits, exponent = 64, 400
	_, power, _ := strings.Cut(strings.ToLower(number), "e")
	if power == "" {
		return len(number) <= digits
	}
	n, err := strconv.Atoi(power)
	return err == nil && n >= -exponent && n <= exponent && len(number) <= digits
}

func (p *parser) object(loc []any) (any, error) {
	object := map[string]any{}
	for p.decoder.More() {
		offset := p.next()
		token, err := p.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errors.New("an object key is not a string")
		}
		inner := append(loc[:len(loc):len(loc)], any(key))
		if _, twice := object[key]; twice && len(p.duplicates) < MaxProblems {
			p.duplicates = append(p.duplicates, duplicate{inner, offset})
		}
		object[key], err = p.value(inner)
		if err != nil {
			return nil, err
		}
	}
	_, err := p.decoder.Token()
	return object, err
}

func (p *parser) array(loc []any) (any, error) {
	array := []any{}
	for p.decoder.More() {
		item, err := p.value(append(loc[:len(loc):len(loc)], any(len(array))))
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := p.decoder.Token()
	return array, err
}
