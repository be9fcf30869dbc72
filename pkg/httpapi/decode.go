package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"slices"
	"sort"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
)

var (
	errNotJSON  = fault.New(fault.UnsupportedType, "The request body must be application/json")
	errRequired = "Field required"
)

// object reads a JSON body with exactly the given fields, all of them
// required, each into its target. Every fault of it is one entry of the 422:
// missing, unknown, given twice, or of the wrong type.
func object(c echo.Context, fields map[string]any) error {
	return objectOr(c, fields, nil)
}

// objectOr is object with further fields that may be left out, but not be null.
func objectOr(c echo.Context, fields, optional map[string]any) error {
	body, err := jsonBody(c)
	if err != nil {
		return err
	}
	given, problems := members(body)
	if given == nil {
		return fault.Refuse(problems...)
	}
	for _, name := range names(fields) {
		problems = append(problems, field(given, name, fields[name])...)
	}
	for _, name := range names(given) {
		if _, known := fields[name]; known {
			continue
		}
		if target, known := optional[name]; known {
			problems = append(problems, field(given, name, target)...)
			continue
		}
		problems = append(problems, fault.Problem{Type: "extra_forbidden", Loc: []any{"body", name}, Msg: "Extra inputs are not permitted"})
	}
	if len(problems) > 0 {
		return fault.Refuse(problems...)
	}
	return nil
}

// jsonBody is the body of a request that says that it is JSON.
func jsonBody(c echo.Context) ([]byte, error) {
	if !saysJSON(c) {
		return nil, errNotJSON
	}
	return io.ReadAll(c.Request().Body)
}

func field(given map[string]json.RawMessage, name string, target any) []fault.Problem {
	raw, ok := given[name]
	switch {
	case !ok:
		return []fault.Problem{{Type: "missing", Loc: []any{"body", name}, Msg: errRequired}}
	case !read(raw, target):
		return []fault.Problem{{Type: "type_error", Loc: []any{"body", name}, Msg: fmt.Sprintf("%s must be %s", name, kind(target))}}
	}
	return nil
}

// saysJSON reports whether the request says that its body is JSON.
func saysJSON(c echo.Context) bool {
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	return err == nil && media == echo.MIMEApplicationJSON
}

// read puts a value into its target. Numbers are true integers, so that no
// revision is rounded on its way; a text whose escapes make no character is
// none, so that it is not stored as another.
func read(raw json.RawMessage, target any) bool {
	if string(raw) == "null" {
		return false
	}
	switch into := target.(type) {
	case *int64:
		n, err := integer(string(raw))
		*into = n
		return err == nil
	case *string:
		_, err := canonical.Transform(raw)
		return err == nil && json.Unmarshal(raw, into) == nil
	case *[]string:
		var list []*string
		_, err := canonical.Transform(raw)
		if err != nil || json.Unmarshal(raw, &list) != nil || list == nil || slices.Contains(list, nil) {
			return false
		}
		*into = []string{} // an empty list is not a missing one
		for _, text := range list {
			*into = append(*into, *text)
		}
		return true
	case *json.RawMessage:
		*into = raw
		return true
	}
	return false
}

var integerForm = regexp.MustCompile(`\A(0|[1-9][0-9]{0,15})\z`)

// integer reads an integer of 0 to settings.MaxRevision: no sign, no fraction,
// no exponent.
func integer(text string) (int64, error) {
	if !integerForm.MatchString(text) {
		return 0, errors.New("not an integer")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n > settings.MaxRevision {
		err = errors.New("too large")
	}
	return n, err
}

func kind(target any) string {
	switch target.(type) {
	case *int64:
		return fmt.Sprintf("an integer of 0 to %d", int64(settings.MaxRevision))
	case *string:
		return "a text"
	case *[]string:
		return "a list of texts"
	}
	return "an object"
}

// queryRevision reads ?base_revision=, which must be given once.
func queryRevision(c echo.Context) (int64, error) {
	given := c.QueryParams()["base_revision"]
	if len(given) == 0 {
		return 0, fault.Refuse(fault.Problem{Type: "missing", Loc: []any{"query", "base_revision"}, Msg: errRequired})
	}
	var n int64
	n, err := integer(given[0])
	if err != nil || len(given) > 1 {
		return 0, fault.Refuse(fault.Problem{Type: "type_error", Loc: []any{"query", "base_revision"}, Msg: "base_revision must be " + kind(&n)})
	}
	return n, nil
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
