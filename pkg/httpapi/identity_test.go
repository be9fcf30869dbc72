package httpapi_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/plane"
)

// ids are what a request names.
type ids struct{ version, ticket, script, department string }

// unknown are well-formed ids of no row.
func unknown() ids {
	return ids{uuid.NewString(), uuid.NewString(), "dw-" + strings.Repeat("0", 48), uuid.NewString()}
}

// call is a request to an operation of the document.
type call struct{ method, target, media, body string }

// calls gives a good request for each operation of the document, as far as it
// can be told from the ids. Platform routes name a company and a department of
// their own.
func calls(t *testing.T, id ids) map[string]call {
	t.Helper()
	deployment := fmt.Sprintf(`{"version_id":%q,"base_revision":1}`, id.version)
	repair := fmt.Sprintf(`{"action":"reconcile_uncertain_deployment","ticket_id":%q,"observed_worker_revision":1}`, id.ticket)
	all := map[string]call{
		"listDepartments":      {"GET", "/company/departments", "", ""},
		"getDepartment":        {"GET", "/company/departments/" + id.department, "", ""},
		"repairDepartment":     {"POST", "/company/departments/" + id.department + "/repairs", "application/json", repair},
		"getWorker":            {"GET", "/worker", "", ""},
		"submitVersion":        {"POST", "/worker/versions", "application/gzip", string(projecttest.Archive(t, plane.Project("x")))},
		"listVersions":         {"GET", "/worker/versions", "", ""},
		"getVersion":           {"GET", "/worker/versions/" + id.version, "", ""},
		"getVersionSource":     {"GET", "/worker/versions/" + id.version + "/source", "", ""},
		"createDeployment":     {"POST", "/worker/deployments", "application/json", deployment},
		"getDeployment":        {"GET", "/worker/deployments/" + id.ticket, "", ""},
		"listAudit":            {"GET", "/worker/audit", "", ""},
		"getAccessPolicy":      {"GET", "/worker/access-policy", "", ""},
		"putAccessPolicy":      {"PUT", "/worker/access-policy", "application/json", `{"base_revision":0,"mode":"public","ip_allowlist":[]}`},
		"rotateAccessKey":      {"POST", "/worker/access-policy/api-key/rotate", "application/json", `{"base_revision":0}`},
		"revokeAccessKey":      {"POST", "/worker/access-policy/api-key/revoke", "application/json", `{"base_revision":0}`},
		"getRuntimeConfig":     {"GET", "/worker/runtime-config", "", ""},
		"putRuntimeConfig":     {"PUT", "/worker/runtime-config", "application/json", `{"base_revision":0,"value":{}}`},
		"deleteRuntimeConfig":  {"DELETE", "/worker/runtime-config?base_revision=0", "", ""},
		"getOperationSettings": {"GET", "/worker/operation-settings", "", ""},
		"putOperationSettings": {"PUT", "/worker/operation-settings", "application/json", `{"base_revision":0,"operations":{"echo.say":{"access":"public"}}}`},
		"rotateOperationKey":   {"POST", "/worker/operation-settings/echo.say/api-key/rotate", "application/json", `{"base_revision":0}`},
		"revokeOperationKey":   {"POST", "/worker/operation-settings/echo.say/api-key/revoke", "application/json", `{"base_revision":0}`},
		"listSecrets":          {"GET", "/worker/secrets", "", ""},
		"putSecret":            {"PUT", "/worker/secrets/TOKEN", "application/json", `{"value":"x"}`},
		"deleteSecret":         {"DELETE", "/worker/secrets/TOKEN", "", ""},
		"listServiceAccounts":  {"GET", "/worker/service-accounts", "", ""},
		"putCredentials":       {"PUT", "/worker/service-accounts/robot/credentials", "application/json", `{"username":"u","password":"p"}`},
		"deleteCredentials":    {"DELETE", "/worker/service-accounts/robot/credentials", "", ""},
		"listCompanyAudit":     {"GET", "/company/audit", "", ""},
		"invokeOperation":      {"POST", "/worker/invoke/echo.say", "application/json", "{}"},
		"publicGet":            {"GET", "/w/" + id.script + "/say", "", ""},
		"publicPost":           {"POST", "/w/" + id.script + "/say", "application/json", "{}"},
		"publicPut":            {"PUT", "/w/" + id.script + "/say", "application/json", "{}"},
		"publicPatch":          {"PATCH", "/w/" + id.script + "/say", "application/json", "{}"},
		"publicDelete":         {"DELETE", "/w/" + id.script + "/say", "", ""},
		"putCompany":           {"PUT", "/platform/companies/made", "application/json", `{"name":"Made"}`},
		"deleteCompany":        {"DELETE", "/platform/companies/made", "", ""},
		"putDepartment":        {"PUT", "/platform/departments/made", "application/json", `{"company_id":"made","name":"Made"}`},
		"deleteDepartment":     {"DELETE", "/platform/departments/made", "", ""},
		"getMaintenance":       {"GET", "/platform/maintenance", "", ""},
		"beginFence":           {"PUT", "/platform/maintenance/fence", "", ""},
		"endFence":             {"DELETE", "/platform/maintenance/fence", "", ""},
		"beginRestore":         {"PUT", "/platform/maintenance/restore", "", ""},
		"endRestore":           {"DELETE", "/platform/maintenance/restore", "", ""},
		"beginResync":          {"PUT", "/platform/maintenance/resync", "", ""},
		"endResync":            {"DELETE", "/platform/maintenance/resync", "", ""},
		"listDifferences":      {"GET", "/platform/maintenance/differences", "", ""},
	}
	open := map[string]bool{"getManifestSchema": true, "getDocument": true, "getDocumentPage": true}
	routes, err := gen.Routes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if _, ok := all[r.OperationID]; ok == open[r.OperationID] {
			t.Fatalf("the operation %s is new: say how it is called", r.OperationID)
		}
	}
	return all
}

func (a *api) call(token string, c call) answer {
	a.t.Helper()
	r := request{token: token, media: c.media}
	if c.body != "" {
		r.body = strings.NewReader(c.body)
	}
	return a.do(c.method, c.target, r)
}

// Every route but the documents' refuses every token that is not ours and
// good, each with the same 401, and nothing happens (D4).
func TestEveryRouteNeedsAGoodToken(t *testing.T) {
	a := on(t)
	roles := []auth.Role{auth.DepartmentManager, auth.CompanyAdmin, auth.PlatformAdmin}
	good := a.token(a.principal(roles...))
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{
			"iss": auth.LocalIssuer, "aud": auth.LocalAudience, "sub": "user:1", "exp": time.Now().Add(time.Minute).Unix(),
			"company_id": a.Tenant.CompanyID, "department_id": a.Tenant.DepartmentID, "roles": roles,
		}
		if change != nil {
			change(c)
		}
		return c
	}
	signed := func(method jwt.SigningMethod, key any, c jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		a.must(err)
		return token
	}
	_, other, err := ed25519.GenerateKey(nil)
	a.must(err)
	public, _ := a.key.Public().(ed25519.PublicKey)
	parts := strings.Split(good, ".")
	raised := strings.Split(signed(jwt.SigningMethodEdDSA, other, claims(func(c jwt.MapClaims) { c["sub"] = "user:2" })), ".")
	bad := map[string]string{
		"none": "", "no token at all": "x",
		"expired":              signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() })),
		"without end":          signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { delete(c, "exp") })),
		"not yet valid":        signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() })),
		"another issuer":       signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { c["iss"] = "elsewhere" })),
		"for another":          signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { c["aud"] = "elsewhere" })),
		"unknown role":         signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { c["roles"] = []string{"root"} })),
		"no company":           signed(jwt.SigningMethodEdDSA, a.key, claims(func(c jwt.MapClaims) { delete(c, "company_id") })),
		"another key":          signed(jwt.SigningMethodEdDSA, other, claims(nil)),
		"algorithm none":       signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil)),
		"public key as secret": signed(jwt.SigningMethodHS256, []byte(public), claims(nil)),
		"claims replaced":      parts[0] + "." + raised[1] + "." + parts[2],
		"signature cut off":    parts[0] + "." + parts[1] + ".",
	}
	for id, c := range calls(t, unknown()) {
		for name, token := range bad {
			if token == "" && strings.HasPrefix(id, "public") {
				continue // without a token they are for anyone: the Worker decides
			}
			got := a.call(token, c)
			got.is(401, `{"detail":"Not authenticated"}`)
			if got.header.Get("WWW-Authenticate") != "Bearer" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("%s, %s: headers %v", id, name, got.header)
			}
		}
	}
	if a.Count("edge_worker_versions")+a.Count("edge_workers") != 0 || len(a.host.seen) != 0 || len(a.Channel.Commands()) != 0 {
		t.Error("a refused request did something")
	}
	if got := a.call(signed(jwt.SigningMethodEdDSA, a.key, claims(nil)), calls(t, unknown())["submitVersion"]); got.code != 201 {
		t.Errorf("control: %d %s", got.code, got.body)
	}
	if strings.Contains(a.log.String(), parts[2]) {
		t.Error("the log holds a token")
	}
}

// No role implies another: each route of a role refuses all others with 403.
func TestEveryRouteNeedsItsRole(t *testing.T) {
	a := on(t)
	manager, company, platform := auth.DepartmentManager, auth.CompanyAdmin, auth.PlatformAdmin
	needed := map[string]auth.Role{
		"getWorker": manager, "submitVersion": manager, "listVersions": manager, "getVersion": manager, "getVersionSource": manager,
		"createDeployment": manager, "getDeployment": manager, "listAudit": manager,
		"getAccessPolicy": manager, "putAccessPolicy": manager, "rotateAccessKey": manager, "revokeAccessKey": manager,
		"getRuntimeConfig": manager, "putRuntimeConfig": manager, "deleteRuntimeConfig": manager,
		"getOperationSettings": manager, "putOperationSettings": manager, "rotateOperationKey": manager, "revokeOperationKey": manager,
		"listSecrets": manager, "putSecret": manager, "deleteSecret": manager,
		"listServiceAccounts": manager, "putCredentials": manager, "deleteCredentials": manager,
		"listDepartments": company, "getDepartment": company, "repairDepartment": company, "listCompanyAudit": company,
		"putCompany": platform, "deleteCompany": platform, "putDepartment": platform, "deleteDepartment": platform,
		"getMaintenance": platform, "beginFence": platform, "endFence": platform, "beginRestore": platform, "endRestore": platform,
		"beginResync": platform, "endResync": platform, "listDifferences": platform,
	}
	for id, c := range calls(t, unknown()) {
		role, restricted := needed[id]
		if !restricted { // a member's routes: without a role they are reached
			if got := a.call(a.member(), c); got.code == 401 || got.code == 403 {
				t.Errorf("%s refuses a member: %d", id, got.code)
			}
			continue
		}
		var others []auth.Role
		for _, r := range auth.Roles() {
			if r != role {
				others = append(others, r)
				a.call(a.token(a.principal(r)), c).is(403, `{"detail":"Not enough permissions"}`)
			}
		}
		a.call(a.token(a.principal(others...)), c).is(403, `{"detail":"Not enough permissions"}`)
		a.call(a.member(), c).is(403, `{"detail":"Not enough permissions"}`)
	}
	if a.Count("edge_worker_versions")+a.Count("edge_workers") != 0 || a.Count("companies") != 1 {
		t.Error("a refused request did something")
	}
	for _, id := range []string{"putCompany", "submitVersion"} { // the control
		token := a.token(a.principal(needed[id]))
		if got := a.call(token, calls(t, unknown())[id]); got.code/100 != 2 {
			t.Errorf("%s: %d %s", id, got.code, got.body)
		}
	}
}

// D4, S0-55: whoever names another tenant's rows gets, byte for byte, what he gets
// for rows that nobody has, on every route that takes an id. A department of
// the same company is as foreign as another company's.
func TestAnotherTenantsRowsDoNotExist(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		v := a.Submit("mine")
		theirs := ids{v.ID, a.Admit(v).TicketID, a.Worker().ScriptName, a.Tenant.DepartmentID}
		a.activate(v)
		sibling := models.Tenant{CompanyID: a.Tenant.CompanyID, DepartmentID: "sibling"}
		foreign := models.Tenant{CompanyID: "foreign", DepartmentID: "foreign-department"}
		a.Provision(sibling)
		a.Provision(foreign)
		for _, stranger := range []models.Tenant{sibling, foreign} {
			a.strange(stranger, theirs)
			// With a Worker of his own the stranger's answers are no different.
			got := a.do("POST", "/worker/versions", request{token: a.of(stranger), media: "application/gzip", body: bytes.NewReader(projecttest.Archive(t, plane.Project("theirs")))})
			var made gen.Version
			got.into(201, &made)
			a.strange(stranger, theirs)
		}
		got := a.get("/worker/deployments/" + theirs.ticket) // the control: the owner sees them
		if got.code != 200 || a.get("/worker/versions/"+theirs.version).code != 200 || a.get("/worker/versions/"+theirs.version+"/source").code != 200 {
			t.Errorf("the owner: %d %s", got.code, got.body)
		}
		for _, c := range a.host.callers(t) { // the Worker was asked, as for anybody
			if c.Kind != "public" || c.Subject+c.CompanyID+c.DepartmentID != "" || len(c.Roles) != 0 {
				t.Errorf("the Worker saw %+v", c)
			}
		}
		if got := a.call(a.member(), calls(t, theirs)["publicPost"]); got.code != 200 || len(a.host.seen) != 3 {
			t.Errorf("the owner's call: %d %s, %d requests at the host", got.code, got.body, len(a.host.seen))
		}
	})
}

// strange compares a stranger's answers about foreign rows with those about
// rows that do not exist. Worker calls are open to the company's members (D11),
// so only another company is a stranger there.
func (a *api) strange(stranger models.Tenant, theirs ids) {
	a.t.Helper()
	token := a.of(stranger)
	none := calls(a.t, unknown())
	for id, c := range calls(a.t, theirs) {
		switch {
		case strings.HasPrefix(id, "public") && stranger.CompanyID == a.Tenant.CompanyID:
			continue
		case strings.HasSuffix(id, "Department") && !strings.HasPrefix(c.target, "/company/"): // the platform's
			continue
		case c.target == none[id].target && c.body == none[id].body: // no id in it
			continue
		}
		as := token
		if strings.HasPrefix(c.target, "/company/") {
			if stranger.CompanyID == a.Tenant.CompanyID { // the company's own department
				continue
			}
			as = a.token(auth.Principal{Subject: "user:stranger", CompanyID: stranger.CompanyID, Roles: []auth.Role{auth.CompanyAdmin}})
		}
		got, want := a.call(as, c), a.call(as, none[id])
		if want.code != 404 || got.code != 404 || !bytes.Equal(got.body, want.body) {
			a.t.Errorf("%s of %s: %d %s, for no row %d %s", id, stranger.DepartmentID, got.code, got.body, want.code, want.body)
		}
	}
	if got := a.do("GET", "/worker/versions", request{token: token}); strings.Contains(string(got.body), theirs.version) {
		a.t.Errorf("the list of %s holds a foreign version", stranger.DepartmentID)
	}
	if n := a.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy' AND version_id = ?", theirs.version); n != 1 {
		a.t.Errorf("%d tickets of the version", n)
	}
}

// activate makes v the live version, as a completed deployment does.
func (a *api) activate(v models.Version) {
	a.t.Helper()
	a.Exec("UPDATE edge_worker_outbox SET status = 'completed' WHERE version_id = ? AND operation = 'deploy'", v.ID)
	a.Exec("UPDATE edge_worker_versions SET state = 'deployed' WHERE id = ?", v.ID)
	a.Exec("UPDATE edge_workers SET status = 'active', current_version_id = ? WHERE id = ?", v.ID, v.WorkerID)
}

func (a *api) count(sql string, args ...any) int64 {
	a.t.Helper()
	var n int64
	a.must(a.DB.Read(a.t.Context()).Raw(sql, args...).Scan(&n).Error)
	return n
}

// Ids are compared as they are: no other spelling, no padding, and no bytes
// that a database refuses are another way to a row, nor a way to a 500.
func TestIDsAreExact(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		v := a.Submit("one")
		ticket := a.Admit(v).TicketID
		for _, c := range []string{"%00", "%FF", "%20", "'", "%27%20OR%201=1", "%F0%9F%92%A9", "..", strings.Repeat("a", 300), "%25"} {
			a.get("/worker/versions/"+c).is(404, `{"detail":"Worker version not found"}`)
			a.get("/worker/versions/"+c+"/source").is(404, `{"detail":"Worker version not found"}`)
			a.get("/worker/deployments/"+c).is(404, `{"detail":"Deployment ticket not found"}`)
		}
		for _, id := range []string{v.ID + "%20", strings.ToUpper(v.ID), v.ID + "%00"} {
			a.get("/worker/versions/"+id).is(404, `{"detail":"Worker version not found"}`)
		}
		a.get("/worker/deployments/"+ticket+"%20").is(404, `{"detail":"Deployment ticket not found"}`)
		for _, id := range []string{v.ID + " ", strings.ToUpper(v.ID), "\x00", "\xff", ""} {
			body, err := json.Marshal(gen.DeploymentRequest{VersionID: id, BaseRevision: 1})
			a.must(err)
			a.send("POST", "/worker/deployments", string(body)).is(404, `{"detail":"Worker version not found"}`)
		}
		if got := a.get("/worker/versions/" + v.ID); got.code != 200 {
			t.Errorf("control: %d", got.code)
		}
	})
}
