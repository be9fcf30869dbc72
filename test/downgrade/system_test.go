// Package downgrade deploys a release that knows no secrets over one that may
// hold some: real older bundles on real workerd behind the real edge host, a
// whole control plane, and both providers' clients. What goes to the provider
// and to the control door passes a recorder that also loses what it is told to.
package downgrade

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/purge"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

const (
	account = "0123456789abcdef0123456789abcdef"
	token   = "downgrade-test-token-0123"
	subject = "system:edge-worker-deploy"
)

// system is a control plane of one provider whose Workers run on an edge host.
type system struct {
	*plane.Plane
	*recorder
	direct   string // the data plane, past the recorder
	signer   *control.Signer
	client   *control.Client // past the recorder: what the test itself does
	provider provider.Provider
	task     *deploy.Task
	log      *observetest.Log
}

// each runs a test with either provider.
func each(t *testing.T, run func(t *testing.T, s *system)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []provider.Kind{provider.Cloudflare, provider.OnPrem} {
		t.Run(string(kind), func(t *testing.T) { run(t, newSystem(t, kind)) })
	}
}

func newSystem(t *testing.T, kind provider.Kind) *system {
	t.Helper()
	scope, accountID, namespace := outbox.CloudScope(plane.Namespace), account, plane.Namespace
	if kind == provider.OnPrem {
		scope, accountID, namespace = outbox.OnPremScope("host-1"), onprem.DefaultAccount, onprem.DefaultNamespace
	}
	s := &system{Plane: plane.NewIn(t, databasetest.MySQL(t), scope), recorder: &recorder{}, log: &observetest.Log{}}
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	host := edgehosttest.Start(t, edgehost.Params{Token: token, Account: accountID, Namespace: namespace, Logger: log})
	api := httptest.NewTLSServer(s.watch(host.ControlHandler()))
	t.Cleanup(api.Close)
	direct, dispatch := httptest.NewServer(host.DispatchHandler()), httptest.NewServer(s.watch(host.DispatchHandler()))
	t.Cleanup(direct.Close)
	t.Cleanup(dispatch.Close)
	s.direct = direct.URL

	public, private, err := ed25519.GenerateKey(nil)
	s.must(err)
	s.signer, err = control.NewSigner(private, nil)
	s.must(err)
	s.client, err = control.NewClient(direct.URL, s.signer)
	s.must(err)
	client, err := control.NewClient(dispatch.URL, s.signer)
	s.must(err)
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}})
	s.must(err)
	s.Submitter, err = version.NewSubmitter(version.Params{
		DB: s.DB, Outbox: s.Outbox, Builder: build, Store: s.Store, Provider: func() error { return nil }, Log: log,
	})
	s.must(err)
	s.provider = s.newProvider(kind, api)
	s.task = s.Task(func(p *deploy.Params) {
		p.Provider = func() (provider.Provider, error) { return s.provider, nil }
		p.Prober, p.Purger, p.Log = s, purge.New(client, subject, log), log
	})
	return s
}

func (s *system) newProvider(kind provider.Kind, api *httptest.Server) provider.Provider {
	s.T.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(api.Certificate())
	if kind == provider.OnPrem {
		target, err := onprem.New(onprem.Params{Origin: api.URL, Token: token, RootCAs: pool})
		s.must(err)
		return target
	}
	target, err := cloudflare.New(cloudflare.Params{AccountID: account, Namespace: plane.Namespace, Token: token, Origin: api.URL, RootCAs: pool})
	s.must(err)
	return target
}

func (s *system) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Probe is the readiness probe of production.
func (s *system) Probe(ctx context.Context, script, generation string) error {
	_, err := s.client.AccessPolicy(ctx, script, generation, subject)
	return err
}

// submit submits a project that shows a secret; text makes its bundle differ.
func (s *system) submit(policy builder.Policy, text string) models.Version {
	s.T.Helper()
	files := plane.Project(text)
	files["src/index.js"] = "export default { 'echo.say': (name, ctx) => ({ secret: ctx.secrets ? ctx.secrets.get(name) : 'no secrets', by: '" + text + "' }) };\n"
	v, err := s.Submitter.Submit(s.T.Context(), version.Submission{
		Tenant: s.Tenant, Actor: s.Actor, Archive: bytes.NewReader(projecttest.Archive(s.T, files)), Policy: policy,
	})
	s.must(err)
	return v
}

// run submits, admits and runs a deployment; it gives its version and ticket.
func (s *system) run(policy builder.Policy, text string) (models.Version, string) {
	s.T.Helper()
	v := s.submit(policy, text)
	view := s.Admit(v)
	messages := s.Published.Messages()
	s.must(s.task.Handle(s.T.Context(), messages[len(messages)-1]))
	return v, view.TicketID
}

// deploy brings a release of a policy live.
func (s *system) deploy(policy builder.Policy, text string) models.Version {
	s.T.Helper()
	v, id := s.run(policy, text)
	w := s.Worker()
	if row := s.Row(id); row.Status != models.OutboxCompleted || w.CurrentVersionID != v.ID || w.Status != models.WorkerActive {
		s.T.Fatalf("%s: ticket %s %s, Worker %s\n%s", policy, row.Status, row.LastErrorCode, w.Status, s.log)
	}
	s.must(s.Probe(s.T.Context(), w.ScriptName, v.ReleaseGeneration))
	return v
}

// put puts a secret through the signed channel.
func (s *system) put(v models.Version, name, value string) {
	s.T.Helper()
	_, err := s.client.Call(s.T.Context(), control.Command{
		Script: s.Worker().ScriptName, Generation: v.ReleaseGeneration, Subject: "user:1", Operation: "secrets.put", MutationID: uuid.NewString(),
		Payload: map[string]string{"name": name, "value": value, "valueDigest": canonical.SHA256([]byte(value))},
	})
	s.must(err)
}

// names lists the names of the secrets that a release holds.
func (s *system) names(v models.Version) []string {
	s.T.Helper()
	result, err := s.client.Call(s.T.Context(), control.Command{
		Script: s.Worker().ScriptName, Generation: v.ReleaseGeneration, Subject: "user:1", Operation: control.SecretsList,
	})
	s.must(err)
	secrets, err := settings.ReadSecrets(result)
	s.must(err)
	names := []string{}
	for _, secret := range secrets {
		names = append(names, secret.Name)
	}
	return names
}

// shows is the secret that the Worker's own code sees; nil when there is none.
func (s *system) shows(v models.Version, name string) any {
	s.T.Helper()
	script, body := s.Worker().ScriptName, []byte(`"`+name+`"`)
	assertion, err := s.signer.SignInvoke(control.Assertion{
		Script: script, Subject: "user:1", Operation: "echo.say", Generation: v.ReleaseGeneration, Body: body,
	}, control.Caller{Kind: "member", Subject: "user:1", CompanyID: s.Tenant.CompanyID, DepartmentID: s.Tenant.DepartmentID, RequestID: "r"})
	s.must(err)
	req, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, s.direct+"/"+script+"/__invoke/echo.say", bytes.NewReader(body))
	s.must(err)
	req.Header.Set("Authorization", "Bearer "+assertion)
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	s.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	s.must(err)
	var out map[string]any
	if resp.StatusCode != http.StatusOK || json.Unmarshal(raw, &out) != nil {
		s.T.Fatalf("invoke: %d %s", resp.StatusCode, raw)
	}
	return out["secret"]
}

// replace brings a stored release to the host behind the control plane's back.
func (s *system) replace(v models.Version) {
	s.T.Helper()
	bundle, err := s.Store.Get(s.T.Context(), artifact.Tenant(s.Tenant), artifact.Bundle, v.BundleObjectKey, 0)
	s.must(err)
	script := s.Worker().ScriptName
	s.must(s.provider.Upload(s.T.Context(), provider.Release{
		ScriptName: script, CompatibilityDate: v.CompatibilityDate, Bundle: bundle, BundleDigest: v.BundleDigest,
	}))
	s.must(s.Probe(s.T.Context(), script, v.ReleaseGeneration))
}
