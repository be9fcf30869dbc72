// Package gen holds the API's document and what is derived from it: the types
// of bodies, generated from openapi.yaml, and the routes.
package gen

import (
	_ "embed" // for the document
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:generate go run -C ../../../tools/openapi . -document ../../pkg/httpapi/openapi.yaml -out ../../pkg/httpapi/gen

//go:embed openapi.json
var document []byte

// Document gives the OpenAPI 3.0 document as JSON. Do not write to it.
func Document() []byte { return document }

// Route is one operation of the document.
type Route struct {
	Method      string // upper case
	Path        string // in the router's form, for example /worker/versions/:version_id
	OperationID string
}

// wildcard is the extension of a path whose last parameter may hold slashes,
// which OpenAPI 3.0 cannot say.
const wildcard = "x-edge-workers-wildcard"

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Routes gives the document's operations, sorted by path and method. It fails
// only for a document that is not one.
func Routes() ([]Route, error) {
	var parsed struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	err := json.Unmarshal(document, &parsed)
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	var routes []Route
	for path, item := range parsed.Paths {
		routed := routerPath(path, item[wildcard] != nil)
		for _, method := range methods {
			if item[method] == nil {
				continue
			}
			var operation struct {
				OperationID string `json:"operationId"`
			}
			err := json.Unmarshal(item[method], &operation)
			if err != nil {
				return nil, fmt.Errorf("read %s %s of the API's document: %w", method, path, err)
			}
			routes = append(routes, Route{Method: strings.ToUpper(method), Path: routed, OperationID: operation.OperationID})
		}
	}
	slices.SortFunc(routes, func(a, b Route) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return routes, nil
}

// routerPath turns /w/{script_name}/{operation_path} into the router's
// /w/:script_name/* form.
func routerPath(path string, lastIsWildcard bool) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		name, ok := strings.CutPrefix(segment, "{")
		if !ok {
			continue
		}
		segments[i] = ":" + strings.TrimSuffix(name, "}")
		if lastIsWildcard && i == len(segments)-1 {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// Differences compares the document with the routes that a server has, each as
// "METHOD /path" in the router's form, and says what one has and the other
// lacks. Parameter names count: handlers read them.
func Differences(served []string) ([]string, error) {
	routes, err := Routes()
	if err != nil {
		return nil, err
	}
	var documented []string
	for _, route := range routes {
		documented = append(documented, route.Method+" "+route.Path)
	}
	var differences []string
	for _, route := range documented {
		if !slices.Contains(served, route) {
			differences = append(differences, "documented but not served: "+route)
		}
	}
	for _, route := range served {
		if !slices.Contains(documented, route) {
			differences = append(differences, "served but not documented: "+route)
		}
	}
	return differences, nil
}
