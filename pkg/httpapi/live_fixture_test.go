package httpapi_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// liveAPI is the router over a control plane with real Workers. What the desks
// log is in the API's log.
type liveAPI struct {
	*api
	system *liveplane.System
	live   models.Version
}

// onLive has a live release with the operations a and b.
func onLive(t *testing.T) *liveAPI {
	t.Helper()
	return onRelease(t, "")
}

// onRelease is onLive with a release of an older policy.
func onRelease(t *testing.T, policy builder.Policy) *liveAPI {
	t.Helper()
	l := withoutRelease(t)
	l.live = l.system.Deploy(showing("one", "a", "b"), policy)
	l.system.Front.Sent()
	return l
}

// withoutRelease has no Worker yet.
func withoutRelease(t *testing.T) *liveAPI {
	t.Helper()
	t.Parallel()
	l := &liveAPI{system: liveplane.New(t, databasetest.MySQL(t))}
	l.api = newAPIOver(t, l.system.Plane, l.realParts)
	return l
}

// realParts makes the desks log where the API does, and the gateway call real
// Workers.
func (l *liveAPI) realParts(p *httpapi.Params) {
	s := l.system
	s.Log = p.Log
	p.Live = s.LiveDesk(s.Client)
	var err error
	p.Desk, err = admission.New(admission.Params{
		DB: s.DB, Outbox: s.Outbox, Redis: s.Redis, Mirror: s.Mirror, Publisher: s.Published, Stager: p.Live, Provider: func() error { return s.Invalid }, Log: p.Log,
	})
	s.Must(err)
	p.Gateway, err = gateway.New(gateway.Params{DB: s.DB, Signer: signer{s.Signer}, DispatchURL: s.Dispatch, Failures: gateway.NewFailures(s.Redis, p.Log)})
	s.Must(err)
}

// showing is a project whose operations show what they are given.
func showing(text string, operations ...string) map[string]string {
	manifest, handlers := []string{}, ""
	for _, id := range operations {
		manifest = append(manifest, `{"id":"`+id+`","method":"POST","path":"/`+id+`"}`)
		handlers += `'` + id + `': (input, ctx) => ({ config: ctx.config, account: ctx.serviceAccount && { username: ctx.serviceAccount.username, password: ctx.serviceAccount.password }, secret: ctx.secrets.get('TOKEN') ?? null }),`
	}
	return map[string]string{
		"worker.json": `{"schema_version":1,"name":"show","language":"javascript","entry":"index.js","compatibility_date":"2026-01-01","operations":[` + strings.Join(manifest, ",") + `]}`,
		"index.js":    `/* ` + text + ` */ export default {` + handlers + `};`,
	}
}

// times and keys stand in answers and differ each time.
var (
	times = regexp.MustCompile(`"updated_at":"[^"]+"`)
	keys  = regexp.MustCompile(`"api_key":"ewk_[A-Za-z0-9_-]{43}"`)
)

// shows checks status and whole body. The order of keys does not matter, a time
// is written T and a fresh key K.
func (r answer) shows(code int, body string) {
	r.t.Helper()
	got := times.ReplaceAllString(strings.TrimSpace(string(r.body)), `"updated_at":"T"`)
	got = keys.ReplaceAllString(got, `"api_key":"K"`)
	same := got == body
	form, err := canonical.Transform([]byte(got))
	if err == nil {
		want, err := canonical.Transform([]byte(body))
		same = err == nil && string(form) == string(want)
	}
	if r.code != code || !same {
		r.t.Errorf("got %d %s\nwant %d %s", r.code, got, code, body)
	}
	if r.header.Get("Cache-Control") != "no-store" {
		r.t.Errorf("Cache-Control is %q", r.header.Get("Cache-Control"))
	}
}

func (l *liveAPI) remove(target string) answer {
	l.t.Helper()
	return l.do("DELETE", target, request{token: l.manager()})
}

// rows counts the control rows.
func (l *liveAPI) rows() int64 {
	l.t.Helper()
	return l.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'control_audit'")
}

// mutations counts the commands since the last call that change something.
func (l *liveAPI) mutations() int {
	n := 0
	for _, sent := range l.system.Front.Sent() {
		if sent.MutationID != "" {
			n++
		}
	}
	return n
}

// called is what the live Worker's operation a is given.
type called struct {
	Config  json.RawMessage
	Account *struct{ Username, Password string }
	Secret  *string
}

// callA calls the operation a of the live release.
func (l *liveAPI) callA() called {
	l.t.Helper()
	var out called
	l.send("POST", "/worker/invoke/a", "{}").into(200, &out)
	return out
}

// secret is the secret TOKEN as the handler reads it.
func (l *liveAPI) secret() string {
	l.t.Helper()
	got := l.callA().Secret
	if got == nil {
		return ""
	}
	return *got
}

// account checks what the handler of a presents in its own calls.
func (l *liveAPI) account(username, password string) {
	l.t.Helper()
	got := l.callA().Account
	if got == nil || got.Username != username || got.Password != password {
		l.t.Errorf("the handler has %+v, want %q and %q", got, username, password)
	}
}

func archiveOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	return projecttest.Archive(t, files)
}

// signer signs invocations as production does.
type signer struct{ *control.Signer }

func (s signer) SignInvocation(a gateway.Assertion) (string, error) {
	return s.SignInvoke(control.Assertion{
		Script: a.ScriptName, Subject: a.Caller.Subject, Operation: a.Operation, Generation: a.Generation, Body: a.Body,
	}, control.Caller(a.Caller))
}
