package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"sort"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
)

var (
	errNotJSON  = fault.New(fault.UnsupportedType, "The request body must be application/json")
	errBadJSON  = fault.Problem{Type: "json_invalid", Loc: []any{"body"}, Msg: "the body is not one JSON object"}
	errRequired = "Field required"
)

// object reads a JSON body with exactly the given fields, all of them
// required, each into its target. Every fault of it is one entry of the 422:
// missing, unknown, or of the wrong type.
func object(c echo.Context, fields map[string]any) error {
	if !saysJSON(c) {
		return errNotJSON
	}
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	var given map[string]json.RawMessage
	err = decoder.Decode(&given)
	if err != nil || given == nil {
		return fault.Refuse(errBadJSON).Because(err)
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return fault.Refuse(errBadJSON)
	}
	var problems []fault.Problem
	for _, name := range names(fields) {
		problems = append(problems, field(given, name, fields[name])...)
	}
	for _, name := range names(given) {
		if _, known := fields[name]; !known {
			problems = append(problems, fault.Problem{Type: "extra_forbidden", Loc: []any{"body", name}, Msg: "Extra inputs are not permitted"})
		}
	}
	if len(problems) > 0 {
		return fault.Refuse(problems...)
	}
	return nil
}

// saysJSON reports whether the request says that its body is JSON.
func saysJSON(c echo.Context) bool {
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	return err == nil && media == echo.MIMEApplicationJSON
}

func field(given map[string]json.RawMessage, name string, target any) []fault.Problem {
	raw, ok := given[name]
	if !ok {
		return []fault.Problem{{Type: "missing", Loc: []any{"body", name}, Msg: errRequired}}
	}
	err := json.Unmarshal(raw, target)
	if err != nil || string(raw) == "null" {
		return []fault.Problem{{Type: "type_error", Loc: []any{"body", name}, Msg: fmt.Sprintf("%s must be %s", name, kind(target))}}
	}
	return nil
}

func kind(target any) string {
	switch target.(type) {
	case *int64:
		return "an integer"
	case *string:
		return "a text"
	}
	return "of another type"
}

func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// knownID gives a row's id that a tenant names, or unknown. An id of a form
// that no row has never reaches the database, whose comparison may be looser
// than ours: MariaDB ignores trailing spaces.
func knownID(id string, unknown error) (string, error) {
	if !auth.ValidID(id) {
		return "", unknown
	}
	return id, nil
}

// pathID reads an id that a platform admin gives; its form is bounded before
// it reaches a row.
func pathID(c echo.Context, name string) (string, error) {
	id := c.Param(name)
	if !auth.ValidID(id) {
		return "", fault.Refuse(fault.Problem{Type: "id_invalid", Loc: []any{"path", name}, Msg: "an id has 1 to 64 letters, digits, '_' or '-'"})
	}
	return id, nil
}

// pageLimit reads the limit of a list; 0 stands for its default.
func pageLimit(c echo.Context, most int) (int, error) {
	text := c.QueryParam("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fault.Refuse(fault.Problem{Type: "limit_invalid", Loc: []any{"query", "limit"}, Msg: fmt.Sprintf("limit must be 1 to %d", most)})
	}
	return n, nil
}
