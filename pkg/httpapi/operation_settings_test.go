package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const settingsPath = "/worker/operation-settings"

// table is a settings answer of l's live release; each row is {access, last
// four or null, account or null} as JSON.
func (l *liveAPI) table(revision int, account, at string, rows ...[3]string) string {
	var operations []string
	for i, row := range rows {
		operations = append(operations, fmt.Sprintf(`%q:{"access":%q,"api_key_configured":%t,"api_key_last_four":%s,"service_account_id":%s}`,
			string(rune('a'+i)), row[0], row[1] != "null", row[1], row[2]))
	}
	return fmt.Sprintf(`{"revision":%d,"release_generation":%q,"default_service_account_id":%s,"operations":{%s},"updated_at":%s}`,
		revision, l.live.ReleaseGeneration, account, strings.Join(operations, ","), at)
}

// D6, D11, S2-103: the table is read and replaced whole, an account that is left
// out stays and null clears it, and an operation keeps its key.
func TestOperationSettings(t *testing.T) {
	l := onLive(t)
	l.get(settingsPath).shows(200, l.table(0, "null", "null", [3]string{"inherit", "null", "null"}, [3]string{"inherit", "null", "null"}))
	l.send("PUT", accountsPath+"/robot/credentials", `{"username":"u","password":"p"}`).into(200, &gen.ServiceAccount{})
	l.send("PUT", settingsPath, `{"base_revision":0,"default_service_account_id":"robot","operations":{"a":{"access":"public"},"b":{"access":"api_key","service_account_id":"robot"}}}`).
		shows(200, l.table(1, `"robot"`, `"T"`, [3]string{"public", "null", "null"}, [3]string{"api_key", "null", `"robot"`}))

	var made gen.OperationSettingsKey
	rotated := l.send("POST", settingsPath+"/b/api-key/rotate", `{"base_revision":1}`)
	rotated.into(200, &made)
	four := fmt.Sprintf("%q", made.APIKey[len(made.APIKey)-4:])
	want := l.table(2, `"robot"`, `"T"`, [3]string{"public", "null", "null"}, [3]string{"api_key", four, `"robot"`})
	rotated.shows(200, `{"api_key":"K","settings":`+want+`}`)
	l.get(settingsPath).shows(200, want)
	l.send("PUT", settingsPath, `{"base_revision":2,"operations":{"b":{"access":"disabled"},"a":{"access":"private","service_account_id":null}}}`).
		shows(200, l.table(3, `"robot"`, `"T"`, [3]string{"private", "null", "null"}, [3]string{"disabled", four, `"robot"`}))
	want = l.table(4, "null", `"T"`, [3]string{"private", "null", "null"}, [3]string{"disabled", four, "null"})
	l.send("PUT", settingsPath, `{"base_revision":3,"default_service_account_id":null,"operations":{"a":{"access":"private"},"b":{"access":"disabled","service_account_id":null}}}`).
		shows(200, want)
	want = l.table(5, "null", `"T"`, [3]string{"private", "null", "null"}, [3]string{"disabled", "null", "null"})
	l.send("POST", settingsPath+"/b/api-key/revoke", `{"base_revision":4}`).shows(200, `{"revoked":true,"settings":`+want+`}`)
	l.send("POST", settingsPath+"/b/api-key/revoke", `{"base_revision":5}`).shows(200, `{"revoked":false,"settings":`+want+`}`)
	l.get(settingsPath).shows(200, want)

	stale := `{"detail":"Operation-settings revision is stale"}`
	for _, base := range []string{"0", "4", "6"} {
		l.send("PUT", settingsPath, `{"base_revision":`+base+`,"operations":{"a":{"access":"public"},"b":{"access":"public"}}}`).is(409, stale)
		l.send("POST", settingsPath+"/a/api-key/rotate", `{"base_revision":`+base+`}`).is(409, stale)
		l.send("POST", settingsPath+"/a/api-key/revoke", `{"base_revision":`+base+`}`).is(409, stale)
	}
	l.send("POST", settingsPath+"/c/api-key/rotate", `{"base_revision":5}`).is(404, `{"detail":"Operation not found"}`)
	l.send("POST", settingsPath+"/c/api-key/revoke", `{"base_revision":5}`).is(404, `{"detail":"Operation not found"}`)
	l.get(settingsPath).shows(200, want)
}

// bodies are objects with faults, and the places of those below the object.
func settingsBodies() map[string][]problem {
	return map[string][]problem{
		`{}`: {{"missing", `"base_revision"`}, {"missing", `"operations"`}},
		`[]`: {{"type_error", ``}},
		`7`:  {{"type_error", ``}},
		`{"base_revision":0,"operations":{},"x":1}`:                                           {{"extra_forbidden", `"x"`}},
		`{"base_revision":0,"operations":{},"release_generation":"g"}`:                        {{"extra_forbidden", `"release_generation"`}},
		`{"base_revision":1.0,"operations":[]}`:                                               {{"type_error", `"base_revision"`}, {"type_error", `"operations"`}},
		`{"base_revision":"0","operations":null}`:                                             {{"type_error", `"base_revision"`}, {"type_error", `"operations"`}},
		`{"base_revision":9007199254740992,"operations":{}}`:                                  {{"type_error", `"base_revision"`}},
		`{"base_revision":0,"default_service_account_id":7,"operations":{}}`:                  {{"type_error", `"default_service_account_id"`}},
		`{"base_revision":0,"default_service_account_id":"'; --","operations":{}}`:            {{"type_error", `"default_service_account_id"`}},
		`{"base_revision":0,"operations":{"a":{}}}`:                                           {{"missing", `"operations","a","access"`}},
		`{"base_revision":0,"operations":{"a":null}}`:                                         {{"type_error", `"operations","a"`}},
		`{"base_revision":0,"operations":{"a":{"access":"open"},"b":{"access":null}}}`:        {{"type_error", `"operations","a","access"`}, {"type_error", `"operations","b","access"`}},
		`{"base_revision":0,"operations":{"a":{"access":"public","api_key":"x"}}}`:            {{"extra_forbidden", `"operations","a","api_key"`}},
		`{"base_revision":0,"operations":{"a":{"access":"public","service_account_id":" "}}}`: {{"type_error", `"operations","a","service_account_id"`}},
		`{"base_revision":0,"operations":{"a":{"access":"public"},"a":{"access":"private"}}}`: {{"type_error", `"operations"`}},
		`{"base_revision":0,"operations":{"a":{"access":"public","access":"private"}}}`:       {{"type_error", `"operations","a"`}},
	}
}

// S2-090: one schema for the route and for a deployment: the same faults, each
// at its place, from both.
func TestSettingsBodies(t *testing.T) {
	l := onLive(t)
	second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
	place := func(prefix, below string) string {
		return `["` + strings.Join(strings.Fields(prefix), `","`) + `"` + strings.TrimSuffix(","+below, ",") + `]`
	}
	for body, faults := range settingsBodies() {
		var here, there []problem
		for _, f := range faults {
			here = append(here, problem{f.kind, place("body", f.loc)})
			there = append(there, problem{f.kind, place("body operation_settings", f.loc)})
		}
		l.send("PUT", settingsPath, body).problems(here...)
		l.send("POST", "/worker/deployments", fmt.Sprintf(`{"version_id":%q,"base_revision":2,"operation_settings":%s}`, second.ID, body)).problems(there...)
	}
	l.send("POST", "/worker/deployments", fmt.Sprintf(`{"version_id":%q,"base_revision":2,"operation_settings":null}`, second.ID)).
		problems(problem{"type_error", `["body","operation_settings"]`})
	l.send("POST", "/worker/deployments", fmt.Sprintf(`{"version_id":%q,"base_revision":2,"operation_settings":{"base_revision":0,"operations":{}},"operation_settings":{}}`, second.ID)).
		problems(problem{"duplicate_key", `["body","operation_settings"]`})
	// What only the live release can tell.
	l.send("PUT", settingsPath, `{"base_revision":0,"operations":{"a":{"access":"public"},"c":{"access":"public"},"DROP":{"access":"public"}}}`).problems(
		problem{"operation_not_found", `["body","operations","DROP"]`}, problem{"operation_not_found", `["body","operations","c"]`}, problem{"missing", `["body","operations","b"]`})
	l.send("PUT", settingsPath, `{"base_revision":0,"default_service_account_id":"x","operations":{"a":{"access":"public","service_account_id":"y"},"b":{"access":"public"}}}`).problems(
		problem{"service_account_not_found", `["body","default_service_account_id"]`}, problem{"service_account_not_found", `["body","operations","a","service_account_id"]`})
	l.revisions("POST", settingsPath+"/a/api-key/rotate", "")
	l.revisions("POST", settingsPath+"/a/api-key/revoke", "")
	l.noJSON("POST", settingsPath+"/a/api-key/rotate", 1<<10)
	l.noJSON("POST", settingsPath+"/a/api-key/revoke", 1<<10)
	for _, id := range []string{"A", "1", "a%20", "%00", strings.Repeat("a", 65)} {
		l.send("POST", settingsPath+"/"+id+"/api-key/rotate", `{"base_revision":0}`).problems(problem{"value_invalid", `["path","operation_id"]`})
		l.send("POST", settingsPath+"/"+id+"/api-key/revoke", `{"base_revision":0}`).problems(problem{"value_invalid", `["path","operation_id"]`})
	}
	for _, body := range []string{"", "{", "{}{}", "\xff", "{\"\xff\":1}"} {
		l.send("PUT", settingsPath, body).problems(problem{"type_error", `["body"]`})
	}
	good := `{"base_revision":0,"operations":{"a":{"access":"public"},"b":{"access":"public"}}}`
	l.do("PUT", settingsPath, request{token: l.manager(), media: "text/plain", body: strings.NewReader(good)}).is(415, `{"detail":"The request body must be application/json"}`)
	l.send("PUT", settingsPath, good+strings.Repeat(" ", 64<<10)).is(413, `{"detail":"Request body is too large"}`)
	if l.mutations() != 0 || l.rows() != 0 || l.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'") != 1 {
		t.Errorf("a refused body left %d rows", l.rows())
	}
	if got := l.send("PUT", settingsPath, good); got.code != 200 || l.mutations() != 1 { // the control
		t.Errorf("control: %d %s", got.code, got.body)
	}
}

// S2-090: the document says the same.
func TestSettingsHaveOneSchema(t *testing.T) {
	t.Parallel()
	type ref struct {
		Ref string `json:"$ref"`
	}
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas struct {
				DeploymentRequest struct {
					Properties map[string]ref
					Required   []string
				}
			}
		}
	}
	var put struct {
		RequestBody struct {
			Content map[string]struct{ Schema ref }
		}
	}
	err := json.Unmarshal(gen.Document(), &document)
	if err == nil {
		err = json.Unmarshal(document.Paths[settingsPath]["put"], &put)
	}
	if err != nil {
		t.Fatal(err)
	}
	schema := put.RequestBody.Content["application/json"].Schema.Ref
	deployment := document.Components.Schemas.DeploymentRequest
	if schema == "" || deployment.Properties["operation_settings"].Ref != schema || len(deployment.Required) != 2 {
		t.Errorf("PUT takes %q, a deployment %+v", schema, deployment)
	}
}
