package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// changesOf is every change of a live Worker with the request that it makes.
func changesOf(c *client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		`PUT /worker/access-policy {"base_revision":1,"ip_allowlist":["192.0.2.0/24"],"mode":"public"}`: func(ctx context.Context) error {
			_, err := c.ReplaceAccessPolicy(ctx, gen.AccessPolicyRequest{BaseRevision: 1, Mode: "public", IPAllowlist: []string{"192.0.2.0/24"}})
			return err
		},
		`POST /worker/access-policy/api-key/rotate {"base_revision":1}`: func(ctx context.Context) error { _, err := c.RotateAccessKey(ctx, 1); return err },
		`POST /worker/access-policy/api-key/revoke {"base_revision":1}`: func(ctx context.Context) error { _, err := c.RevokeAccessKey(ctx, 1); return err },
		`PUT /worker/runtime-config {"base_revision":1,"value":{"n":1.10}}`: func(ctx context.Context) error {
			_, err := c.ReplaceRuntimeConfig(ctx, 1, json.RawMessage(`{"n": 1.10}`))
			return err
		},
		`DELETE /worker/runtime-config?base_revision=1`: func(ctx context.Context) error { _, err := c.DeleteRuntimeConfig(ctx, 1); return err },
		`PUT /worker/operation-settings {"base_revision":1,"operations":{"a":{"access":"public","service_account_id":null}}}`: func(ctx context.Context) error {
			_, err := c.ReplaceOperationSettings(ctx, json.RawMessage(`{"base_revision":1,"operations":{"a":{"access":"public","service_account_id":null}}}`))
			return err
		},
		`POST /worker/operation-settings/a.b/api-key/rotate {"base_revision":1}`: func(ctx context.Context) error { _, err := c.RotateOperationKey(ctx, "a.b", 1); return err },
		`POST /worker/operation-settings/a.b/api-key/revoke {"base_revision":1}`: func(ctx context.Context) error { _, err := c.RevokeOperationKey(ctx, "a.b", 1); return err },
		`PUT /worker/secrets/TOKEN {"value":"x"}`:                                func(ctx context.Context) error { _, err := c.PutSecret(ctx, "TOKEN", "x"); return err },
		`DELETE /worker/secrets/TOKEN`:                                           func(ctx context.Context) error { _, err := c.DeleteSecret(ctx, "TOKEN"); return err },
		`PUT /worker/service-accounts/robot/credentials {"password":"p","username":"u"}`: func(ctx context.Context) error {
			_, err := c.PutCredentials(ctx, "robot", "u", "p")
			return err
		},
		`DELETE /worker/service-accounts/robot/credentials`: func(ctx context.Context) error { _, err := c.DeleteCredentials(ctx, "robot"); return err },
	}
}

func answerWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// A change is sent once, whatever comes back, and an answer that does not tell
// what happened is told as such.
func TestChangesAreSentOnce(t *testing.T) {
	t.Parallel()
	for _, answer := range []struct {
		handler http.HandlerFunc
		good    bool
		unknown bool
	}{
		{answerWith(200, `{}`), true, false},
		{answerWith(409, `{"detail":{"code":"revision_stale","message":"x"}}`), false, false},
		{answerWith(503, `{"detail":{"code":"control_outcome_unknown","message":"x"}}`), false, true},
		{answerWith(503, `{"detail":{"code":"worker_control_unavailable","message":"x"}}`), false, false},
		{answerWith(503, `{"detail":"Operation-settings mutation lock is unavailable"}`), false, false},
		{answerWith(502, `a proxy's page`), false, true},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, true},
	} {
		a, c := newAPI(t, answer.handler)
		var want []string
		for request, change := range changesOf(c) {
			want = append(want, request)
			err := change(t.Context())
			if (err == nil) != answer.good || client.OutcomeUnknown(err) != answer.unknown {
				t.Errorf("%s: %v", request, err)
			}
		}
		slices.Sort(want)
		got := a.seen()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("requests\n%q\nwant\n%q", got, want)
		}
	}
}

// States and audit facts are read, and read again when the API is away for a
// moment.
func TestStatesAreReadAgain(t *testing.T) {
	t.Parallel()
	for path, read := range map[string]func(context.Context, *client.Client) error{
		"/worker/access-policy":      func(ctx context.Context, c *client.Client) error { _, err := c.AccessPolicy(ctx); return err },
		"/worker/runtime-config":     func(ctx context.Context, c *client.Client) error { _, err := c.RuntimeConfig(ctx); return err },
		"/worker/operation-settings": func(ctx context.Context, c *client.Client) error { _, err := c.OperationSettings(ctx); return err },
		"/worker/secrets":            func(ctx context.Context, c *client.Client) error { _, err := c.Secrets(ctx); return err },
		"/worker/service-accounts":   func(ctx context.Context, c *client.Client) error { _, err := c.ServiceAccounts(ctx); return err },
		"/worker/audit": func(ctx context.Context, c *client.Client) error {
			_, err := c.Audit(ctx, client.AuditQuery{})
			return err
		},
		"/company/audit?action=secrets.put&cursor=c&limit=5&resource=w&since=s&until=u": func(ctx context.Context, c *client.Client) error {
			_, err := c.Audit(ctx, client.AuditQuery{Company: true, Action: "secrets.put", Resource: "w", Since: "s", Until: "u", Cursor: "c", Limit: 5})
			return err
		},
	} {
		a, c := newAPI(t, answerWith(503, "away"), answerWith(200, "{}"))
		err := read(t.Context(), c)
		if err != nil || !slices.Equal(a.seen(), []string{"GET " + path, "GET " + path}) {
			t.Errorf("%q, %v", a.seen(), err)
		}
	}
}

// A deployment with settings carries them as they are, and is asked for again.
func TestDeployWithSettings(t *testing.T) {
	t.Parallel()
	a, c := newAPI(t, answerWith(503, "away"), answerWith(202, `{"ticket_id":"t1"}`))
	ticket, err := c.DeployWith(t.Context(), "v1", 3, json.RawMessage(`{"base_revision":0,"default_service_account_id":null,"operations":{}}`))
	want := `POST /worker/deployments {"base_revision":3,"operation_settings":{"base_revision":0,"default_service_account_id":null,"operations":{}},"version_id":"v1"}`
	if err != nil || ticket.TicketID != "t1" || !slices.Equal(a.seen(), []string{want, want}) {
		t.Errorf("%q, %v", a.seen(), err)
	}
}
