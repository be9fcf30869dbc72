package httpapi_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/test/plane"
)

// api is the whole router over a control plane with a real database and
// Redis, and an edge host that the test scripts. Every answer that it gives is
// checked against the document.
type api struct {
	*plane.Plane
	t      *testing.T
	echo   *echo.Echo
	host   *edge
	key    ed25519.PrivateKey
	issuer *auth.Issuer
	log    *bytes.Buffer
}

// each runs the test on every engine.
func each(t *testing.T, run func(t *testing.T, a *api)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, newAPI(t, db, nil)) })
}

// on runs the test on MySQL only: the route has no SQL of its own.
func on(t *testing.T) *api {
	t.Helper()
	t.Parallel()
	return newAPI(t, databasetest.MySQL(t), nil)
}

func newAPI(t *testing.T, db *database.DB, change func(*httpapi.Params)) *api {
	t.Helper()
	a := &api{Plane: plane.New(t, db), t: t, host: newEdge(t), log: &bytes.Buffer{}}
	var err error
	_, a.key, err = ed25519.GenerateKey(nil)
	a.must(err)
	expected := auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience}
	a.issuer, err = auth.NewIssuer(a.key, expected)
	a.must(err)
	gate, err := gateway.New(gateway.Params{DB: db, Signer: plainSigner{}, DispatchURL: a.host.server.URL, Failures: gateway.NewFailures(a.Redis, a.Log)})
	a.must(err)
	p := httpapi.Params{
		Roles: []httpapi.Role{httpapi.Management, httpapi.Gateway}, Verifier: a.verifier(), DB: db, Store: a.Store, Submitter: a.Submitter,
		Desk: a.Desk, Mirror: a.Mirror, Directory: a.Directory, Gateway: gate, Log: observe.NewLogger(a.log, slog.LevelDebug),
	}
	if change != nil {
		change(&p)
	}
	a.echo, err = httpapi.New(p)
	a.must(err)
	return a
}

func (a *api) verifier() *auth.Verifier {
	a.t.Helper()
	public, _ := a.key.Public().(ed25519.PublicKey)
	v, err := auth.NewLocalVerifier(public, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	a.must(err)
	return v
}

func (a *api) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// principal is a caller of the plane's tenant with the roles.
func (a *api) principal(roles ...auth.Role) auth.Principal {
	return auth.Principal{Subject: "user:1", CompanyID: a.Tenant.CompanyID, DepartmentID: a.Tenant.DepartmentID, Roles: roles}
}

func (a *api) token(p auth.Principal) string {
	a.t.Helper()
	token, err := a.issuer.Issue(p, time.Minute)
	a.must(err)
	return token
}

// manager, platform and member are tokens of the plane's tenant.
func (a *api) manager() string  { return a.token(a.principal(auth.DepartmentManager)) }
func (a *api) platform() string { return a.token(a.principal(auth.PlatformAdmin)) }
func (a *api) member() string   { return a.token(a.principal()) }

// of is a manager's token of another tenant.
func (a *api) of(tenant models.Tenant) string {
	return a.token(auth.Principal{
		Subject: "user:stranger", CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID, Roles: []auth.Role{auth.DepartmentManager},
	})
}

// answer is what came back.
type answer struct {
	t      *testing.T
	code   int
	header http.Header
	body   []byte
}

// request is one call; its zero fields are left out.
type request struct {
	token, media string
	body         io.Reader
	header       map[string]string
}

func (a *api) do(method, target string, r request) answer {
	a.t.Helper()
	in := httptest.NewRequest(method, target, r.body)
	if r.token != "" {
		in.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.media != "" {
		in.Header.Set("Content-Type", r.media)
	}
	for name, value := range r.header {
		in.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	a.echo.ServeHTTP(recorder, in)
	got := answer{a.t, recorder.Code, recorder.Header(), recorder.Body.Bytes()}
	checkContract(a.t, method, target, got)
	return got
}

func (a *api) get(target string) answer {
	a.t.Helper()
	return a.do("GET", target, request{token: a.manager()})
}

// send sends JSON as the manager.
func (a *api) send(method, target, body string) answer {
	a.t.Helper()
	return a.do(method, target, request{token: a.manager(), media: "application/json", body: strings.NewReader(body)})
}

// submit sends an archive as the manager.
func (a *api) submit(archive []byte) answer {
	a.t.Helper()
	return a.do("POST", "/worker/versions", request{token: a.manager(), media: "application/gzip", body: bytes.NewReader(archive)})
}

// deploy asks for the deployment of a version at the Worker's revision.
func (a *api) deploy(v models.Version) answer {
	a.t.Helper()
	body, err := json.Marshal(gen.DeploymentRequest{VersionID: v.ID, BaseRevision: a.Worker().LatestRevision})
	a.must(err)
	return a.send("POST", "/worker/deployments", string(body))
}

// is checks the status and, as JSON, the whole body.
func (r answer) is(code int, body string) {
	r.t.Helper()
	if r.code != code || strings.TrimSpace(string(r.body)) != body {
		r.t.Errorf("got %d %s, want %d %s", r.code, r.body, code, body)
	}
}

// into decodes a body that came with the status.
func (r answer) into(code int, target any) {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("got %d %s, want %d", r.code, r.body, code)
	}
	if err := json.Unmarshal(r.body, target); err != nil {
		r.t.Fatalf("%s: %v", r.body, err)
	}
}

// problem is one entry of a 422, with its place as JSON.
type problem struct{ kind, loc string }

// problems checks a 422's entries without their texts.
func (r answer) problems(want ...problem) {
	r.t.Helper()
	var body struct {
		Detail []struct {
			Type string
			Loc  json.RawMessage
			Msg  string
		}
	}
	r.into(http.StatusUnprocessableEntity, &body)
	if len(body.Detail) != len(want) {
		r.t.Fatalf("%d problems, want %d: %s", len(body.Detail), len(want), r.body)
	}
	for i, p := range body.Detail {
		if p.Type != want[i].kind || string(p.Loc) != want[i].loc || p.Msg == "" {
			r.t.Errorf("problem %d is %s %s %q, want %v", i, p.Type, p.Loc, p.Msg, want[i])
		}
	}
}

// plainSigner shows the edge host what was asserted, without a signature: the
// real one is the control package's.
type plainSigner struct{}

func (plainSigner) SignInvocation(a gateway.Assertion) (string, error) {
	raw, err := json.Marshal(map[string]any{"script": a.ScriptName, "generation": a.Generation, "operation": a.Operation, "caller": a.Caller})
	return string(raw), err
}
