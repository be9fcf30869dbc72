package httpapi_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// change is a good request that changes the live Worker or reads it. Its turn
// tells whether a deployment may not be in its way.
type change struct {
	call
	turn bool
}

// changes are the routes of the live Worker, for the operations a and b at
// revision 0.
func changes(t *testing.T) map[string]change {
	t.Helper()
	out := map[string]change{}
	for id, c := range calls(t, unknown()) {
		for _, resource := range []string{policyPath, configPath, settingsPath, secretsPath, accountsPath} {
			if !strings.HasPrefix(c.target, resource) {
				continue
			}
			c.target = strings.Replace(c.target, "echo.say", "a", 1)
			c.body = strings.Replace(c.body, `"echo.say":{"access":"public"}`, `"a":{"access":"public"},"b":{"access":"public"}`, 1)
			out[id] = change{c, c.method != "GET" && resource != policyPath && resource != configPath}
		}
	}
	if len(out) != 17 {
		t.Fatalf("%d routes", len(out))
	}
	return out
}

// all calls every route of the live Worker whose operation id is not left out.
func (l *liveAPI) all(token string, check func(id string, c change, got answer), but ...string) {
	l.t.Helper()
	for id, c := range changes(l.t) {
		if !slices.Contains(but, id) {
			check(id, c, l.call(token, c.call))
		}
	}
}

const (
	noWorker    = `{"detail":"Department Worker not found"}`
	noRelease   = `{"detail":{"code":"live_release_required","message":"The Worker has no live release yet; deploy a version first"}}`
	inFlight    = `{"detail":{"code":"deployment_in_progress","message":"Operation settings cannot change during a deployment"}}`
	lockHeld    = `{"detail":{"code":"deployment_in_progress","message":"Another Worker settings mutation or deployment is in progress"}}`
	noLock      = `{"detail":"Operation-settings mutation lock is unavailable"}`
	unreachable = `{"detail":{"code":"worker_control_unavailable","message":"The Worker did not answer; nothing was changed"}}`
	unknownEnd  = `{"detail":{"code":"control_outcome_unknown","message":"The change may or may not have been applied; read the current state before changing it again"}}`
	noSettings  = `{"detail":{"code":"operation_settings_unsupported","message":"The release does not support operation settings; upload the project again and deploy the new revision"}}`
	noSecrets   = `{"detail":{"code":"worker_secrets_unsupported","message":"The release does not support Worker secrets; upload the project again and deploy the new revision"}}`
	noAccounts  = `{"detail":{"code":"service_accounts_unsupported","message":"The release does not support service accounts; upload the project again and deploy the new revision"}}`
)

// D4: nobody but a manager, and no manager but the department's own: to all
// others, also of the same company, there is no Worker.
func TestLiveRoutesAreTheDepartments(t *testing.T) {
	l := onLive(t)
	sibling := models.Tenant{CompanyID: l.Tenant.CompanyID, DepartmentID: "sibling-of-" + l.Tenant.DepartmentID}
	foreign := models.Tenant{CompanyID: "foreign-" + l.Tenant.CompanyID, DepartmentID: l.Tenant.DepartmentID}
	l.Provision(sibling)
	for _, stranger := range []models.Tenant{sibling, foreign} {
		l.all(l.of(stranger), func(_ string, _ change, got answer) { got.is(404, noWorker) })
	}
	l.all("", func(_ string, _ change, got answer) { got.is(401, `{"detail":"Not authenticated"}`) })
	l.all(l.token(l.principal(auth.CompanyAdmin, auth.PlatformAdmin)), func(_ string, _ change, got answer) {
		got.is(403, `{"detail":"Not enough permissions"}`)
	})
	if sent := l.system.Front.Sent(); len(sent) != 0 || l.rows() != 0 {
		t.Errorf("%d commands, %d rows", len(sent), l.rows())
	}
	l.call(l.manager(), changes(t)["putSecret"].call).into(200, &gen.Secret{}) // the control
	if l.mutations() != 1 || l.rows() != 1 {
		t.Errorf("%d rows", l.rows())
	}
}

// Without a Worker, and without a live release, there is nothing to change.
func TestNoLiveRelease(t *testing.T) {
	l := withoutRelease(t)
	l.all(l.manager(), func(_ string, _ change, got answer) { got.is(404, noWorker) })
	l.SubmitArchive(archiveOf(t, showing("one", "a", "b")))
	l.all(l.manager(), func(_ string, _ change, got answer) { got.is(409, noRelease) })
	if l.rows() != 0 || len(l.system.Front.Sent()) != 0 {
		t.Errorf("%d rows", l.rows())
	}
}

// D13: what the live release is too old for is refused before anything is
// recorded; what it can do goes on.
func TestOldReleases(t *testing.T) {
	for _, c := range []struct {
		policy  builder.Policy
		refused map[string]string
	}{
		{builder.V2_5, map[string]string{secretsPath: noSecrets, settingsPath: noSettings, accountsPath: noAccounts}},
		{builder.V2_6, map[string]string{settingsPath: noSettings, accountsPath: noAccounts}},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			l := onRelease(t, c.policy)
			served := 0
			l.all(l.manager(), func(id string, ch change, got answer) {
				for resource, refusal := range c.refused {
					if strings.HasPrefix(ch.target, resource) {
						got.is(409, refusal)
						return
					}
				}
				served++
				if got.code != 200 && got.code != 409 { // an order in which a revision is not 0 any more
					t.Errorf("%s: %d %s", id, got.code, got.body)
				}
			})
			if want := 17 - len(c.refused)*3 - 1; served != want {
				t.Errorf("%d routes were served, want %d", served, want)
			}
		})
	}
}

// S2-033 to S2-037: what a deployment takes over or removes does not change
// beside it; access policy and configuration do.
func TestChangesAndDeployments(t *testing.T) {
	l := onLive(t)
	refusedWith := func(code int, body string) {
		t.Helper()
		refused, rows := 0, l.rows()
		l.system.Front.Sent()
		l.all(l.manager(), func(id string, c change, got answer) {
			switch {
			case c.turn:
				refused++
				got.is(code, body)
			case c.method == "GET" && got.code != 200:
				t.Errorf("%s: %d %s", id, got.code, got.body)
			}
		}, "putAccessPolicy", "rotateAccessKey", "revokeAccessKey", "putRuntimeConfig", "deleteRuntimeConfig")
		if refused != 7 || l.rows() != rows || l.mutations() != 0 {
			t.Errorf("%d routes were refused, %d rows, want %d", refused, l.rows(), rows)
		}
		before := l.rows() // the control: these go on
		l.send("PUT", policyPath, `{"base_revision":`+revisionOf(l, policyPath)+`,"mode":"public","ip_allowlist":[]}`).into(200, &gen.AccessPolicy{})
		l.send("PUT", configPath, `{"base_revision":`+revisionOf(l, configPath)+`,"value":{}}`).into(200, &gen.RuntimeConfig{})
		if l.rows() != before+2 || l.mutations() != 2 {
			t.Errorf("%d rows, want %d", l.rows(), before+2)
		}
	}
	lock, err := claim.Settings(t.Context(), l.Redis, l.Tenant.CompanyID, l.Tenant.DepartmentID)
	l.must(err)
	refusedWith(409, lockHeld)
	l.must(lock.Release(t.Context()))

	second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
	var ticket gen.Ticket
	l.deploy(second).into(202, &ticket)
	refusedWith(409, inFlight)
	for _, status := range []string{"leased", "uncertain"} {
		l.Exec("UPDATE edge_worker_outbox SET status = ? WHERE ticket_id = ?", status, ticket.TicketID)
		refusedWith(409, inFlight)
	}
	l.Exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE ticket_id = ?", ticket.TicketID)
	l.call(l.manager(), changes(t)["putOperationSettings"].call).into(200, &gen.OperationSettings{}) // the control
	l.withoutRedis()
	refusedWith(503, noLock)
}

// withoutRedis makes the desk's Redis a server that is away.
func (l *liveAPI) withoutRedis() {
	l.t.Helper()
	gone := httptest.NewServer(nil)
	gone.Close()
	away := redis.NewClient(&redis.Options{Addr: gone.Listener.Addr().String(), MaxRetries: -1})
	l.t.Cleanup(func() { _ = away.Close() })
	l.Redis = away
	l.api = newAPIOver(l.t, l.system.Plane, l.realParts)
}

// S2-032: a deployment and a change of the settings, in both orders: while the
// first is at its work with the Worker the second is refused.
func TestDeploymentAndSettingsTakeTurns(t *testing.T) {
	l := onLive(t)
	second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
	settingsBody := `{"base_revision":0,"operations":{"a":{"access":"public"},"b":{"access":"public"}}}`
	during := func(operation string, then func()) {
		done := false
		l.system.Front.Next(func(s liveplane.Sent) liveplane.Fault {
			if s.Operation == operation && !done {
				done = true
				then()
			}
			return liveplane.None
		})
	}
	during("operation_settings.replace", func() { l.deploy(second).is(409, lockHeld) })
	l.send("PUT", settingsPath, settingsBody).into(200, &gen.OperationSettings{})
	if l.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'") != 1 {
		t.Error("the deployment left a ticket")
	}
	rows := l.rows()
	during("operation_settings.stage", func() {
		l.send("PUT", settingsPath, strings.Replace(settingsBody, ":0", ":1", 1)).is(409, lockHeld)
	})
	l.deploy(second).into(202, &gen.Ticket{})
	if l.rows() != rows {
		t.Error("the refused change left a row")
	}
	l.send("PUT", settingsPath, strings.Replace(settingsBody, ":0", ":1", 1)).is(409, inFlight)
	l.system.Run()
	l.send("PUT", settingsPath, strings.Replace(settingsBody, ":0", ":2", 1)).into(200, &gen.OperationSettings{}) // the control
}

// A lost answer is told as such, and the state tells what happened: the command
// is not sent again. A Worker that cannot be reached was told nothing.
func TestLostAnswersOverHTTP(t *testing.T) {
	l := onLive(t)
	for id, operation := range map[string]string{
		"putAccessPolicy": "access_policy.replace", "putRuntimeConfig": "runtime_config.replace", "putSecret": "secrets.put",
		"putCredentials": "service_accounts.credentials.put", "putOperationSettings": "operation_settings.replace",
	} {
		c := changes(t)[id]
		l.system.Front.Once(operation, liveplane.LoseReply)
		l.system.Front.Sent()
		l.call(l.manager(), c.call).is(503, unknownEnd)
		if l.mutations() != 1 {
			t.Errorf("%s was not sent once", id)
		}
	}
	for target, want := range map[string]string{policyPath: "1", configPath: "1", settingsPath: "1"} {
		if got := revisionOf(l, target); got != want {
			t.Errorf("%s is at %s", target, got)
		}
	}
	if got := l.get(secretsPath); !strings.Contains(string(got.body), `"TOKEN"`) {
		t.Errorf("%s", got.body)
	}
	l.system.Front.Once("access_policy.get", liveplane.LoseReply)
	l.get(policyPath).is(503, unreachable)
	l.Invalid = errors.New("no provider")
	l.all(l.manager(), func(_ string, _ change, got answer) {
		got.is(503, `{"detail":"Edge Worker provider is not configured"}`)
	})
	l.Invalid = nil
	rows := l.rows()
	desk := l.system.WithoutConnection()
	l.api = newAPIOver(t, l.system.Plane, func(p *httpapi.Params) { p.Live = desk })
	l.all(l.manager(), func(_ string, _ change, got answer) { got.is(503, unreachable) })
	if l.mutations() != 0 || l.rows() == rows {
		t.Errorf("%d rows, before %d", l.rows(), rows)
	}
}
