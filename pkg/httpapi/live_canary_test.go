package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// S1-243 to S1-247, S3-59: secrets, passwords and keys are in no log, row, Redis
// key or answer, but a key in the one answer that shows it. That the scan finds
// what is there is shown by the digests and names.
func TestValuesStayInTheWorker(t *testing.T) {
	l := onLive(t)
	var answers []string
	note := func(got answer) answer {
		answers = append(answers, string(got.body))
		return got
	}
	const secret, password, config = "canary-secret-5f1c", "canary-password-77aa", "canary-config-09be"
	put := `{"value":"` + secret + `"}`
	note(l.send("PUT", secretsPath+"/TOKEN", put)).into(200, &gen.Secret{})
	note(l.send("PUT", secretsPath+"/token", put))                                                 // a wrong name
	note(l.send("PUT", secretsPath+"/TOKEN", `{"value":"`+secret+`","value":1}`))                  // a wrong body
	note(l.send("PUT", secretsPath+"/TOKEN", `{"value":"`+secret))                                 // a broken one
	note(l.send("PUT", secretsPath+"/TOKEN", `{"value":"`+secret+strings.Repeat("x", 6_000)+`"}`)) // too long
	for _, fault := range []liveplane.Fault{liveplane.LoseReply, liveplane.LoseRequest, liveplane.Garbage, liveplane.Twice} {
		l.system.Front.Once("secrets.put", fault)
		note(l.send("PUT", secretsPath+"/TOKEN", put)).is(503, unknownEnd)
	}
	account := accountsPath + "/robot/credentials"
	note(l.send("PUT", account, `{"username":"user","password":"`+password+`"}`)).into(200, &gen.ServiceAccount{})
	note(l.send("PUT", account, `{"username":"","password":"`+password+`"}`))
	note(l.send("PUT", configPath, `{"base_revision":7,"value":{"x":"`+config+`"}}`)).into(409, &gen.Error{})
	for _, value := range []string{`{"` + config + `":1,"` + config + `":2}`, `{"` + config + `":1e400}`, `["` + config + `"]`, `{"__proto__":"` + config + `"}`} {
		note(l.send("PUT", configPath, `{"base_revision":0,"value":`+value+`}`)).problems(problem{"value_invalid", `["body","value"]`})
	}
	var policy gen.AccessPolicyKey
	var operation gen.OperationSettingsKey
	l.send("POST", policyPath+"/api-key/rotate", `{"base_revision":0}`).into(200, &policy)
	l.send("POST", settingsPath+"/a/api-key/rotate", `{"base_revision":0}`).into(200, &operation)
	for _, target := range []string{policyPath, configPath, settingsPath, secretsPath, accountsPath, "/worker/audit", "/worker"} {
		note(l.get(target))
	}
	lane := l.system.Auditor()
	l.Exec("UPDATE edge_worker_outbox SET next_attempt_at = created_at WHERE operation = 'control_audit'")
	_, err := lane.RunOnce(t.Context(), time.Minute)
	l.must(err)

	places := map[string]string{"answers": strings.Join(answers, "\n"), "log": l.log.String(), "rows": l.dump("edge_worker_outbox"), "facts": l.dump("edge_worker_audit_logs"), "redis": l.redisDump()}
	for place, text := range places {
		for _, canary := range []string{secret, password, config, policy.APIKey, operation.APIKey} {
			if len(canary) < 12 || strings.Contains(text, canary) {
				t.Errorf("%q is in the %s", canary, place)
			}
		}
	}
	for place, control := range map[string]string{
		"answers": canonical.SHA256([]byte(secret)), "log": "/worker/secrets/:name", "rows": canonical.SHA256([]byte(secret)), "facts": "secrets.put", "redis": l.Tenant.DepartmentID,
	} {
		if !strings.Contains(places[place], control) {
			t.Errorf("the %s are without %q", place, control)
		}
	}
	if l.secret() != secret {
		t.Error("the handler does not have the secret")
	}
}

// dump is all that a table holds, as text.
func (l *liveAPI) dump(table string) string {
	l.t.Helper()
	var rows []map[string]any
	l.must(l.DB.Read(l.t.Context()).Table(table).Find(&rows).Error)
	var out strings.Builder
	for _, row := range rows {
		for _, value := range row {
			text, ok := value.([]byte)
			if ok {
				value = string(text)
			}
			_, _ = fmt.Fprintf(&out, "%v\n", value)
		}
	}
	return out.String()
}

// redisDump is every key of Redis, with the value of those that have a text; the
// lock of the department is held meanwhile, so that there is one.
func (l *liveAPI) redisDump() string {
	l.t.Helper()
	var out strings.Builder
	held := false
	l.system.Front.Next(func(s liveplane.Sent) liveplane.Fault {
		if s.Operation != "secrets.delete" || held {
			return liveplane.None
		}
		held = true
		names, err := l.Redis.Keys(l.t.Context(), "*").Result()
		l.must(err)
		for _, name := range names {
			out.WriteString(name + " " + l.Redis.Get(l.t.Context(), name).Val() + "\n")
		}
		return liveplane.None
	})
	l.remove(secretsPath+"/OTHER").shows(200, `{"name":"OTHER","deleted":false}`)
	return out.String()
}

// The server's usual time for an answer is no bound for a route that sends
// commands: its answer arrives although that time is over.
func TestAnswersOutliveTheServersTime(t *testing.T) {
	l := onLive(t)
	server := httptest.NewUnstartedServer(l.echo)
	server.Config.WriteTimeout = time.Nanosecond // over before any answer
	server.Start()
	t.Cleanup(server.Close)
	second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
	all := changes(t)
	all["createDeployment"] = change{call: call{"POST", "/worker/deployments", "application/json", fmt.Sprintf(`{"version_id":%q,"base_revision":2}`, second.ID)}}
	for _, id := range append(slices.Sorted(maps.Keys(changes(t))), "createDeployment") {
		c := all[id]
		code, err := l.over(server.URL, c.call)
		if err != nil || code >= 500 {
			t.Errorf("%s: %d, %v", id, code, err)
		}
	}
	if code, err := l.over(server.URL, call{"GET", "/worker", "", ""}); err == nil { // the control
		t.Errorf("an answer came in no time: %d", code)
	}
}

func (l *liveAPI) over(url string, c call) (int, error) {
	l.t.Helper()
	in, err := http.NewRequestWithContext(l.t.Context(), c.method, url+c.target, strings.NewReader(c.body))
	l.must(err)
	in.Header.Set("Authorization", "Bearer "+l.manager())
	if c.media != "" {
		in.Header.Set("Content-Type", c.media)
	}
	got, err := http.DefaultTransport.RoundTrip(in)
	if err != nil {
		return 0, err
	}
	defer got.Body.Close()
	var body any
	return got.StatusCode, json.NewDecoder(got.Body).Decode(&body)
}
