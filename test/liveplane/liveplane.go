// Package liveplane is a control plane with real Workers for tests: that of
// package plane, an edge host that runs bundles on real workerd, and the signed
// control channel between them, in which a Front loses, repeats and spoils what
// a test tells it to.
package liveplane

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

const token = "liveplane-test-token-0123"

// System is a control plane over an edge host.
type System struct {
	*plane.Plane
	Front    *Front
	Dispatch string // where the Workers are called, through the Front
	Signer   *control.Signer
	Client   *control.Client
	Deployer *deploy.Task
	Workers  *Processes
}

// New returns a system on db. It is a cloud's scope with the edge host in the
// cloud's place: nothing about the control channel differs.
func New(t testing.TB, db *database.DB) *System {
	t.Helper()
	return NewLogging(t, db, slog.New(slog.DiscardHandler))
}

// NewLogging is New with a log, that of the edge host too.
func NewLogging(t testing.TB, db *database.DB, log *slog.Logger) *System {
	t.Helper()
	s := &System{Plane: plane.New(t, db), Workers: &Processes{}}
	s.Log = log
	host := edgehosttest.Start(t, edgehost.Params{Token: token, Logger: slog.New(watch{log.Handler(), s.Workers})})
	s.Front = &Front{host: host.DispatchHandler(), answers: map[string][]Answer{}}
	api, dispatch := httptest.NewServer(host.ControlHandler()), httptest.NewServer(s.Front)
	t.Cleanup(api.Close)
	t.Cleanup(dispatch.Close)
	s.Dispatch = dispatch.URL
	public, private, err := ed25519.GenerateKey(nil)
	s.Must(err)
	s.Signer, err = control.NewSigner(private, nil)
	s.Must(err)
	s.Client, err = control.NewClient(s.Dispatch, s.Signer)
	s.Must(err)
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}})
	s.Must(err)
	valid := s.valid
	s.Submitter, err = version.NewSubmitter(version.Params{DB: s.DB, Outbox: s.Outbox, Builder: build, Store: s.Store, Provider: valid, Log: s.Log})
	s.Must(err)
	target, err := onprem.New(onprem.Params{Origin: api.URL, Token: token})
	s.Must(err)
	s.Deployer = s.Task(func(p *deploy.Params) {
		p.Provider = func() (provider.Provider, error) { return target, nil }
		p.Prober = s
	})
	s.Live = s.LiveDesk(s.Client)
	s.Desk, err = admission.New(admission.Params{
		DB: s.DB, Outbox: s.Outbox, Redis: s.Redis, Mirror: s.Mirror, Publisher: s.Published, Stager: s.Live, Provider: valid, Log: s.Log,
	})
	s.Must(err)
	return s
}

func (s *System) valid() error { return s.Invalid }

// Must ends the test on an error.
func (s *System) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Probe is the readiness probe of production.
func (s *System) Probe(ctx context.Context, script, generation string) error {
	_, err := s.Client.AccessPolicy(ctx, script, generation, "system:edge-worker-deploy")
	return err
}

// By is the tenant's manager.
func (s *System) By() live.By { return live.By{Tenant: s.Tenant, Actor: s.Actor} }

// Deploy submits a project with a builder policy, empty for the current one,
// brings it up and checks that it is live.
func (s *System) Deploy(files map[string]string, policy builder.Policy) models.Version {
	s.T.Helper()
	v, err := s.Submitter.Submit(context.Background(), version.Submission{
		Tenant: s.Tenant, Actor: s.Actor, Archive: bytes.NewReader(projecttest.Archive(s.T, files)), Policy: policy,
	})
	s.Must(err)
	s.Admit(v)
	s.Run()
	if got := s.Version(v.ID); got.State != models.VersionDeployed {
		s.T.Fatalf("the version is %s (%s)", got.State, got.ErrorCode)
	}
	return s.Version(v.ID)
}

// Run hands the last published message to the deployment task.
func (s *System) Run() {
	s.T.Helper()
	messages := s.Published.Messages()
	s.Must(s.Deployer.Handle(context.Background(), messages[len(messages)-1]))
}

// WithoutConnection is a desk whose channel leads nowhere.
func (s *System) WithoutConnection() *live.Desk {
	s.T.Helper()
	gone := httptest.NewServer(nil)
	gone.Close()
	client, err := control.NewClient(gone.URL, s.Signer)
	s.Must(err)
	return s.LiveDesk(client)
}

// Auditor is the control-audit lane over the same channel.
func (s *System) Auditor() *reconcile.ControlAuditor {
	s.T.Helper()
	lane, err := reconcile.NewControlAuditor(reconcile.ControlAuditParams{
		DB: s.DB, Outbox: s.Outbox, Receipts: control.NewReceipts(s.Client, "system:edge-worker-control-audit"), Owner: "sweep", Log: s.Log,
	})
	s.Must(err)
	return lane
}

// Command sends a command that changes nothing to the live release.
func (s *System) Command(operation string, payload any) json.RawMessage {
	s.T.Helper()
	w := s.Worker()
	result, err := s.Client.Call(context.Background(), control.Command{
		Script: w.ScriptName, Generation: s.Version(w.CurrentVersionID).ReleaseGeneration, Subject: "user:test", Operation: operation, Payload: payload,
	})
	s.Must(err)
	return result
}
