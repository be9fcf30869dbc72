package httpapi_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project"
)

// What describes the API needs no token and asks no outside host for anything.
func TestDocuments(t *testing.T) {
	a := on(t)
	got := a.do("GET", "/openapi.json", request{})
	if got.code != 200 || !bytes.Equal(got.body, gen.Document()) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("/openapi.json: %d %s", got.code, got.header)
	}
	got = a.do("GET", "/schemas/worker.json", request{})
	if got.code != 200 || !bytes.Equal(got.body, project.ManifestSchema()) || !json.Valid(got.body) {
		t.Errorf("/schemas/worker.json: %d", got.code)
	}
	got = a.do("GET", "/docs", request{})
	page := string(got.body)
	if got.code != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") || !strings.Contains(page, "openapi.json") {
		t.Errorf("/docs: %d %v", got.code, got.header)
	}
	policy := got.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; connect-src 'self'") || strings.Contains(page, "https://") || strings.Contains(page, "http://") {
		t.Errorf("the page may reach outside: %s", policy)
	}
	a.do("GET", "/elsewhere", request{}).is(404, `{"detail":"Not Found"}`)
	a.do("POST", "/openapi.json", request{}).is(405, `{"detail":"Method Not Allowed"}`)
	a.do("PATCH", "/worker", request{token: a.manager()}).is(405, `{"detail":"Method Not Allowed"}`)
}

// Served and documented routes are the same, and each role serves its half and
// the documents (D5, D11).
func TestServedRoutes(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	served := func(roles ...httpapi.Role) []string {
		a := newAPI(t, db, func(p *httpapi.Params) { p.Roles = roles })
		var out []string
		for _, r := range a.echo.Routes() {
			out = append(out, r.Method+" "+r.Path)
		}
		return out
	}
	differences, err := gen.Differences(served(httpapi.Management, httpapi.Gateway))
	if err != nil || len(differences) != 0 {
		t.Errorf("%q %v", differences, err)
	}
	half := served(httpapi.Gateway)
	if slices.Contains(half, "GET /worker") || !slices.Contains(half, "GET /w/:script_name/*") || !slices.Contains(half, "GET /docs") {
		t.Errorf("the gateway serves %v", half)
	}
	if half := served(httpapi.Management); !slices.Contains(half, "GET /worker") || slices.Contains(half, "POST /worker/invoke/:operation_id") {
		t.Errorf("management serves %v", half)
	}
	if _, err := httpapi.New(httpapi.Params{}); err == nil {
		t.Error("an API of nothing")
	}
}
