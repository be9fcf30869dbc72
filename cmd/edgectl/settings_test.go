package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	policyAnswer   = `{"mode":"api_key","ip_allowlist":["192.0.2.0/24"],"api_key_configured":true,"api_key_last_four":"wxyz","revision":4,"updated_at":"2026-03-01T12:00:00Z"}`
	configAnswer   = `{"value":{"a":1},"sha256":"cafe","revision":5,"updated_at":"2026-03-01T12:00:00Z"}`
	settingsAnswer = `{"revision":6,"release_generation":"g","default_service_account_id":null,"operations":{` +
		`"b":{"access":"inherit","api_key_configured":false,"api_key_last_four":null,"service_account_id":"robot"},` +
		`"a":{"access":"api_key","api_key_configured":true,"api_key_last_four":"wxyz","service_account_id":null}},"updated_at":null}`
	secretAnswer  = `{"name":"TOKEN","sha256":"cafe","updated_at":"2026-03-01T12:00:00Z"}`
	accountAnswer = `{"service_account_id":"robot","username":"u\u001b[2J","updated_at":"2026-03-01T12:00:00Z"}`
	key           = "ewk_6nIchSNQBLWZXqDCdGxtqCVePhY0f7qAUjyiLEVbTQo"
	keyNote       = "This key is shown once; keep it now. The key before it opens nothing any more.\n"
)

// newLive is a backend with a live Worker.
func newLive(t *testing.T) *backend {
	t.Helper()
	b := newBackend(t, "completed")
	for request, answer := range map[string]string{
		"GET /worker/access-policy":                         policyAnswer,
		"PUT /worker/access-policy":                         policyAnswer,
		"POST /worker/access-policy/api-key/rotate":         `{"api_key":"` + key + `","policy":` + policyAnswer + `}`,
		"POST /worker/access-policy/api-key/revoke":         `{"revoked":true,"policy":` + policyAnswer + `}`,
		"GET /worker/runtime-config":                        configAnswer,
		"PUT /worker/runtime-config":                        configAnswer,
		"DELETE /worker/runtime-config":                     configAnswer,
		"GET /worker/operation-settings":                    settingsAnswer,
		"PUT /worker/operation-settings":                    settingsAnswer,
		"POST /worker/operation-settings/a/api-key/rotate":  `{"api_key":"` + key + `","settings":` + settingsAnswer + `}`,
		"POST /worker/operation-settings/a/api-key/revoke":  `{"revoked":false,"settings":` + settingsAnswer + `}`,
		"GET /worker/secrets":                               `{"secrets":[` + secretAnswer + `]}`,
		"PUT /worker/secrets/TOKEN":                         secretAnswer,
		"DELETE /worker/secrets/TOKEN":                      `{"name":"TOKEN","deleted":true}`,
		"GET /worker/service-accounts":                      `{"service_accounts":[` + accountAnswer + `]}`,
		"PUT /worker/service-accounts/robot/credentials":    accountAnswer,
		"DELETE /worker/service-accounts/robot/credentials": `{"service_account_id":"robot","deleted":false}`,
		"GET /worker/audit": `{"items":[{"id":"f1","department_id":"d1","actor_type":"user","actor_id":"user:1","auth_method":"bearer_jwt","action":"secrets.put",` +
			`"resource_type":"edge_worker","resource_id":"w1","result":"succeeded","reason_code":null,"digest":null,"request_id":null,"created_at":"2026-03-01T12:00:00Z"}],"next_cursor":"c2"}`,
		"GET /company/audit": `{"items":[],"next_cursor":null}`,
	} {
		b.override[request] = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }
	}
	return b
}

func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Each command makes its requests, of which the last is the one that counts,
// with the revision that it read, and prints what came of it.
func TestSettingsCommands(t *testing.T) {
	t.Parallel()
	policyText := "mode      api_key\nallowed   192.0.2.0/24\nAPI key   …wxyz\nrevision  4\n"
	settingsText := "OPERATION  ACCESS   OWN KEY  ACCOUNT\na          api_key  …wxyz    none\nb          inherit  none     robot\ndefault account none, revision 6\n"
	rows := written(t, ` { "operations" : {"a":{"access":"public","service_account_id":null}} } `)
	for _, c := range []struct {
		args, stdin string
		requests    string
		body        string
		out, err    string
	}{
		{"access get", "", "GET /worker/access-policy", "", policyText, ""},
		{"access set --mode public", "", "GET /worker/access-policy, PUT /worker/access-policy", `{"base_revision":4,"ip_allowlist":["192.0.2.0/24"],"mode":"public"}`, policyText, ""},
		{"access set --allow 10.0.0.0/8,2001:db8::/32 --revision 2", "", "GET /worker/access-policy, PUT /worker/access-policy", `{"base_revision":2,"ip_allowlist":["10.0.0.0/8","2001:db8::/32"],"mode":"api_key"}`, policyText, ""},
		{"access set --mode private --allow=", "", "GET /worker/access-policy, PUT /worker/access-policy", `{"base_revision":4,"ip_allowlist":[],"mode":"private"}`, policyText, ""},
		{"access rotate-key", "", "GET /worker/access-policy, POST /worker/access-policy/api-key/rotate", `{"base_revision":4}`, key + "\n", keyNote},
		{"access rotate-key --revision 0", "", "POST /worker/access-policy/api-key/rotate", `{"base_revision":0}`, key + "\n", keyNote},
		{"access revoke-key", "", "GET /worker/access-policy, POST /worker/access-policy/api-key/revoke", `{"base_revision":4}`, "the key was revoked\n", ""},
		{"config get", "", "GET /worker/runtime-config", "", "{\"a\":1}\n", ""},
		{"config set -", `{"n": 1.10}`, "GET /worker/runtime-config, PUT /worker/runtime-config", `{"base_revision":5,"value":{"n":1.10}}`, "the configuration is at revision 5, sha256 cafe\n", ""},
		{"config set - --revision 9", `{}`, "PUT /worker/runtime-config", `{"base_revision":9,"value":{}}`, "the configuration is at revision 5, sha256 cafe\n", ""},
		{"config clear", "", "GET /worker/runtime-config, DELETE /worker/runtime-config", "", "the configuration is at revision 5, sha256 cafe\n", ""},
		{"operations get", "", "GET /worker/operation-settings", "", settingsText, ""},
		{"operations set " + rows, "", "GET /worker/operation-settings, PUT /worker/operation-settings", `{"base_revision":6,"operations":{"a":{"access":"public","service_account_id":null}}}`, settingsText, ""},
		{"operations set - --revision 3", "{}", "PUT /worker/operation-settings", `{"base_revision":3}`, settingsText, ""},
		{"operations set -", `{"base_revision":2,"operations":{}}`, "PUT /worker/operation-settings", `{"base_revision":2,"operations":{}}`, settingsText, ""},
		{"operations rotate-key a", "", "GET /worker/operation-settings, POST /worker/operation-settings/a/api-key/rotate", `{"base_revision":6}`, key + "\n", keyNote},
		{"operations revoke-key a --revision 6", "", "POST /worker/operation-settings/a/api-key/revoke", `{"base_revision":6}`, "there was no key\n", ""},
		{"secrets list", "", "GET /worker/secrets", "", "NAME   UPDATED               SHA256\nTOKEN  2026-03-01T12:00:00Z  cafe\n", ""},
		{"secrets set TOKEN", "s3cr3t\n", "PUT /worker/secrets/TOKEN", `{"value":"s3cr3t"}`, "TOKEN is set, sha256 cafe\n", ""},
		{"secrets set TOKEN", "s3cr3t\r\n", "PUT /worker/secrets/TOKEN", `{"value":"s3cr3t"}`, "TOKEN is set, sha256 cafe\n", ""},
		{"secrets set TOKEN --from-file " + written(t, "a\nb\n"), "other", "PUT /worker/secrets/TOKEN", `{"value":"a\nb\n"}`, "TOKEN is set, sha256 cafe\n", ""},
		{"secrets delete TOKEN", "", "DELETE /worker/secrets/TOKEN", "", "TOKEN is deleted\n", ""},
		{"accounts list", "", "GET /worker/service-accounts", "", "ACCOUNT  UPDATED               USER NAME\nrobot    2026-03-01T12:00:00Z  u?[2J\n", ""},
		{"accounts set robot --username u", "p\n\n", "PUT /worker/service-accounts/robot/credentials", `{"password":"p\n","username":"u"}`, "robot is set\n", ""},
		{"accounts delete robot", "", "DELETE /worker/service-accounts/robot/credentials", "", "there was no robot\n", ""},
		{"audit --action secrets.put", "", "GET /worker/audit", "", "TIME                  ACTION       RESULT     ACTOR   DEPARTMENT  RESOURCE\n2026-03-01T12:00:00Z  secrets.put  succeeded  user:1  d1          edge_worker w1\nmore: the same command with --cursor c2\n", ""},
		{"audit --company", "", "GET /company/audit", "", "TIME  ACTION  RESULT  ACTOR  DEPARTMENT  RESOURCE\n", ""},
	} {
		b := newLive(t)
		r := against(b)
		r.stdin = c.stdin
		got := r.run(t, strings.Fields(c.args)...)
		seen := b.seen()
		if strings.Join(seen, ", ") != c.requests || (c.body != "" && b.body(seen[len(seen)-1]) != c.body) {
			t.Errorf("%s: %q %s", c.args, seen, b.body(seen[len(seen)-1]))
		}
		got.want(t, exitOK, c.out, c.err)
	}
}

// With --json the result is the API's own answer.
func TestSettingsAsJSON(t *testing.T) {
	t.Parallel()
	for args, part := range map[string]string{
		"access get": `"mode": "api_key"`, "access rotate-key": `"api_key": "` + key + `"`, "access revoke-key": `"revoked": true`, "config get": `"value": {`,
		"config clear": `"sha256": "cafe"`, "operations get": `"release_generation": "g"`, "operations revoke-key a": `"revoked": false`, "secrets list": `"secrets": [`,
		"secrets delete TOKEN": `"deleted": true`, "accounts list": `"username":`, "accounts delete robot": `"deleted": false`, "audit": `"next_cursor": "c2"`,
	} {
		got := against(newLive(t)).run(t, append(strings.Fields(args), "--json")...)
		if got.code != exitOK || !strings.Contains(got.out, part) {
			t.Errorf("%s: %d %s%s", args, got.code, got.out, got.err)
		}
	}
}

// Wrong command lines and input make no request; a secret is never an argument
// nor part of what is printed.
func TestSettingsUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, stdin string }{
		{"access set", ""}, {"access get extra", ""}, {"access rotate-key --revision x", ""}, {"config set", ""}, {"config set -", ""}, {"config set -", "[]"},
		{"config set -", `{"canary-value":`}, {"config set /does/not/exist", ""}, {"config set -", "{}" + strings.Repeat(" ", 128<<10)}, {"operations set", ""},
		{"operations set -", "null"}, {"operations set - --revision 2", `{"base_revision":1}`}, {"operations rotate-key", ""}, {"secrets set", "x"},
		{"secrets set TOKEN canary-value", "x"}, {"secrets set TOKEN", ""}, {"secrets set TOKEN", "\n"}, {"secrets set TOKEN", "canary-value\xff"},
		{"secrets set TOKEN --from-file /does/not/exist", "x"}, {"secrets delete", ""}, {"accounts set robot", "canary-value"}, {"accounts set robot --username u", ""},
		{"audit --limit 0", ""}, {"audit extra", ""}, {"deploy --version v3 --settings-revision 1", ""}, {"deploy --version v3 --settings /does/not/exist", ""},
	} {
		b := newLive(t)
		r := against(b)
		r.stdin = c.stdin
		got := r.run(t, strings.Fields(c.args)...)
		if got.code != exitUsage || got.out != "" || !strings.Contains(got.err, "next:") || len(b.seen()) != 0 {
			t.Errorf("%s: exit %d %q\n%s%s", c.args, got.code, b.seen(), got.out, got.err)
		}
		if strings.Contains(got.err, "canary-value") {
			t.Errorf("%s: the value is printed: %s", c.args, got.err)
		}
	}
}

// What the API does not know is told as such, with where to look; a race is
// told as one; other refusals keep their next steps.
func TestSettingsRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		answer string
		exit   int
		texts  []string
	}{
		{503, `{"detail":{"code":"control_outcome_unknown","message":"m"}}`, exitUnreachable, []string{"it is not known whether the change was made", "Run `edgectl access get` and see"}},
		{502, `a page`, exitUnreachable, []string{"it is not known whether the change was made", "edgectl access get"}},
		{409, `{"detail":{"code":"revision_stale","message":"m"}}`, exitRefused, []string{"Somebody was faster. Run `edgectl access get`"}},
		{409, `{"detail":"Operation-settings revision is stale"}`, exitRefused, []string{"Somebody was faster"}},
		{409, `{"detail":{"code":"live_release_required","message":"m"}}`, exitRefused, []string{"Deploy a version first"}},
		{409, `{"detail":{"code":"deployment_in_progress","message":"m"}}`, exitRefused, []string{"Wait until"}},
		{503, `{"detail":{"code":"worker_control_unavailable","message":"m"}}`, exitUnreachable, []string{"Nothing was changed."}},
		{422, `{"detail":[{"type":"value_invalid","loc":["body","mode"],"msg":"m"}]}`, exitRefused, []string{"body.mode: m (value_invalid)"}},
	} {
		b := newLive(t)
		b.override["PUT /worker/access-policy"] = fail(c.status, c.answer)
		got := against(b).run(t, "access", "set", "--mode", "public")
		if got.code != c.exit || got.out != "" {
			t.Errorf("%s: exit %d\n%s%s", c.answer, got.code, got.out, got.err)
		}
		for _, text := range c.texts {
			if !strings.Contains(got.err, text) {
				t.Errorf("%s: no %q in\n%s", c.answer, text, got.err)
			}
		}
		if n := len(b.seen()); n != 2 {
			t.Errorf("%s: %d requests", c.answer, n)
		}
	}
}

// A deployment with settings takes the live revision and its lost answer names
// the command that gets the same ticket; settings that cannot be read stop it
// before anything is submitted.
func TestDeployWithSettings(t *testing.T) {
	t.Parallel()
	file := written(t, `{"operations":{"a":{"access":"public"}}}`)
	b := newLive(t)
	got := against(b).run(t, "deploy", projectFolder(t), "--settings", file, "--wait")
	if got.code != exitOK {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
	want := `{"base_revision":3,"operation_settings":{"base_revision":6,"operations":{"a":{"access":"public"}}},"version_id":"v3"}`
	if sent := b.body("POST /worker/deployments"); sent != want || b.seen()[0] != "GET /worker/operation-settings" {
		t.Errorf("%s, %q", sent, b.seen())
	}
	b.override["POST /worker/deployments"] = fail(503, `{"detail":{"code":"deployment_outcome_unknown","message":"m"}}`)
	got = against(b).run(t, "deploy", "--version", "v3", "--settings", file)
	again := "edgectl deploy --version v3 --base-revision 3 --settings " + file + " --settings-revision 6 --wait"
	if got.code != exitUnreachable || !strings.Contains(got.err, again) {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
	delete(b.override, "POST /worker/deployments")
	again = strings.TrimSuffix(strings.TrimPrefix(again, "edgectl "), " --wait")
	if got = against(b).run(t, strings.Fields(again)...); got.code != exitOK || b.body("POST /worker/deployments") != want {
		t.Errorf("exit %d %s\n%s", got.code, b.body("POST /worker/deployments"), got.err)
	}
	b = newLive(t)
	b.override["GET /worker/operation-settings"] = fail(409, `{"detail":{"code":"live_release_required","message":"m"}}`)
	got = against(b).run(t, "deploy", projectFolder(t), "--settings", file)
	if got.code != exitRefused || slices.Contains(b.seen(), "POST /worker/versions") {
		t.Errorf("exit %d, %q", got.code, b.seen())
	}
}

// With `edgectl dev` the company's facts are asked for as its company admin.
func TestCompanyAuditOfDev(t *testing.T) {
	t.Parallel()
	b := newLive(t)
	data := t.TempDir()
	ready := `{"api_url":"` + b.URL + `","manager_token":"other","company_admin_token":"manager"}`
	if err := os.WriteFile(filepath.Join(data, readyName), []byte(ready), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (runner{}).run(t, "audit", "--company", "--dev-data", data); got.code != exitOK {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
	if got := (runner{}).run(t, "audit", "--dev-data", data); got.code != exitRefused { // the control: the manager's own
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}
