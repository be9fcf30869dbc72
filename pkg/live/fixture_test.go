package live_test

import (
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// fixture is a live Worker with two operations and a way to change it.
type fixture struct {
	*liveplane.System
	live models.Version
}

// project has the operations a and b, which show what they are given.
func project(text string, operations ...string) map[string]string {
	manifest, handlers := "", ""
	for i, id := range operations {
		if i > 0 {
			manifest += ","
		}
		manifest += `{"id":"` + id + `","method":"POST","path":"/` + id + `"}`
		handlers += `'` + id + `': (input, ctx) => ({ config: ctx.config, account: ctx.serviceAccount, secret: ctx.secrets.get('TOKEN') ?? null }),`
	}
	return map[string]string{
		"worker.json": `{"schema_version":1,"name":"show","language":"javascript","entry":"index.js","compatibility_date":"2026-01-01","operations":[` + manifest + `]}`,
		"index.js":    `/* ` + text + ` */ export default {` + handlers + `};`,
	}
}

func newFixture(t *testing.T, db *database.DB) *fixture {
	t.Helper()
	f := &fixture{System: liveplane.New(t, db)}
	f.live = f.Deploy(project("one", "a", "b"), "")
	f.Front.Sent()
	return f
}

func onMySQL(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return newFixture(t, databasetest.MySQL(t))
}

// onSQLite is a system whose Worker has no release yet.
func onSQLite(t *testing.T) *fixture {
	t.Helper()
	return &fixture{System: liveplane.New(t, databasetest.SQLite(t))}
}

// rows lists the control rows, newest last.
func (f *fixture) rows() []models.Outbox {
	f.T.Helper()
	var rows []models.Outbox
	f.Must(f.Tenant.Own(f.DB.Read(f.T.Context())).Where("operation = ?", models.OperationControlAudit).Order("created_at, id").Find(&rows).Error)
	return rows
}

// last is the newest control row.
func (f *fixture) last() models.Outbox {
	f.T.Helper()
	rows := f.rows()
	if len(rows) == 0 {
		f.T.Fatal("there is no control row")
	}
	return rows[len(rows)-1]
}

// facts counts the audit facts of an action.
func (f *fixture) facts(action string) int {
	f.T.Helper()
	n := 0
	for _, fact := range f.Facts() {
		if fact.Action == action {
			n++
		}
	}
	return n
}

// refusal checks an answer's kind, code and message.
func refusal(t *testing.T, err error, kind fault.Kind, code, message string) {
	t.Helper()
	got := fault.As(err)
	if got == nil || got.Kind != kind || got.Code != code || got.Message != message {
		t.Errorf("got %v, want %s %q %q", err, kind, code, message)
	}
}

// request is a table request of a JSON text.
func request(t *testing.T, raw string) settings.TableRequest {
	t.Helper()
	in, err := settings.ReadRequest([]byte(raw), "body")
	if err != nil {
		t.Fatalf("%s: %v", raw, errors.Join(err, errors.New("the test's own request")))
	}
	return in
}
