// Package cloudflow runs the Cloudflare provider against real parts: the edge
// host speaks the same script API, so the cloud client, the whole control plane
// in a cloud scope and the signed control channel meet bundles on real workerd.
// A front between client and host loses, alters and refuses what it is told to.
// `make test-s3` runs it with a real S3 service as artifact store.
package cloudflow

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/edgehosttest"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/provider/providertest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/objects"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

const (
	account      = "0123456789abcdef0123456789abcdef"
	token        = "cloudflow-test-token-0123"
	probeSubject = "system:edge-worker-deploy" // S2-177
)

// system is a control plane whose cloud is an edge host.
type system struct {
	*plane.Plane
	front    *providertest.Front
	dispatch string
	signer   *control.Signer
	client   *control.Client
	cloud    *cloudflare.Provider
	task     *deploy.Task
	clock    *clock
}

// clock is that of the rate limit; the test moves it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newSystem(t *testing.T) *system {
	t.Helper()
	t.Parallel()
	s := &system{Plane: plane.New(t, databasetest.MySQL(t)), clock: &clock{now: time.Now()}}
	if objects.Available() {
		s.Store = objects.NewBucket(t).Store(t)
	}
	host := edgehosttest.Start(t, edgehost.Params{Token: token, Account: account, Namespace: plane.Namespace})
	s.front = providertest.NewFront(host.ControlHandler())
	api := httptest.NewTLSServer(s.front)
	t.Cleanup(api.Close)
	dispatch := httptest.NewServer(host.DispatchHandler())
	t.Cleanup(dispatch.Close)
	s.dispatch = startDispatcher(t, dispatch.URL)

	public, private, err := ed25519.GenerateKey(nil)
	s.must(err)
	s.signer, err = control.NewSigner(private, nil)
	s.must(err)
	s.client, err = control.NewClient(s.dispatch, s.signer)
	s.must(err)
	s.Channel.Answer = func(c control.Command) (any, error) { return s.client.Call(context.Background(), c) }
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}})
	s.must(err)
	s.Submitter, err = version.NewSubmitter(version.Params{
		DB: s.DB, Outbox: s.Outbox, Builder: build, Store: s.Store, Provider: func() error { return nil }, Log: s.Log,
	})
	s.must(err)
	pool := x509.NewCertPool()
	pool.AddCert(api.Certificate())
	s.cloud, err = cloudflare.New(cloudflare.Params{
		AccountID: account, Namespace: plane.Namespace, Token: token, Origin: api.URL, RootCAs: pool, Now: s.clock.Now,
	})
	s.must(err)
	s.task = s.Task(func(p *deploy.Params) {
		p.Provider = func() (provider.Provider, error) { return s.cloud, nil }
		p.Prober = s
	})
	return s
}

func (s *system) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Probe is the readiness probe of production: a signed command to the release.
func (s *system) Probe(ctx context.Context, script, generation string) error {
	_, err := s.client.AccessPolicy(ctx, script, generation, probeSubject)
	return err
}

// submit submits a project's archive.
func (s *system) submit(archive []byte) models.Version {
	s.T.Helper()
	v, err := s.Submitter.Submit(context.Background(), version.Submission{Tenant: s.Tenant, Actor: s.Actor, Archive: bytes.NewReader(archive)})
	s.must(err)
	return v
}

// small submits a project of a few lines that says text.
func (s *system) small(text string) models.Version {
	s.T.Helper()
	return s.submit(projecttest.Archive(s.T, plane.Project(text)))
}

func (s *system) orders() models.Version {
	s.T.Helper()
	archive, err := project.Pack("../../examples/orders")
	s.must(err)
	return s.submit(archive)
}

// deployment is one ticket.
type deployment struct {
	id      string
	version models.Version
	message transports.Message
}

func (s *system) admit(v models.Version) deployment {
	s.T.Helper()
	view := s.Admit(v)
	return deployment{id: view.TicketID, version: v, message: s.last()}
}

func (s *system) last() transports.Message {
	s.T.Helper()
	messages := s.Published.Messages()
	if len(messages) == 0 {
		s.T.Fatal("nothing was published")
	}
	return messages[len(messages)-1]
}

// deliver hands the message to the task; again says that the task is to ask for
// another delivery.
func (s *system) deliver(d deployment, again bool) {
	s.T.Helper()
	err := s.task.Handle(context.Background(), d.message)
	if (err != nil) != again || (again && !errors.Is(err, deploy.ErrRetry)) {
		s.T.Fatalf("run the task: %v", err)
	}
}

// deploy brings a version up without a fault.
func (s *system) deploy(v models.Version) deployment {
	s.T.Helper()
	s.front.Counts()
	d := s.admit(v)
	s.deliver(d, false)
	s.wantCompleted(d)
	s.wantRequests(1, 2)
	return d
}

// wantRequests checks what arrived at the provider since the last look.
func (s *system) wantRequests(puts, gets int) {
	s.T.Helper()
	got := s.front.Counts()
	if got[http.MethodPut] != puts || got[http.MethodGet] != gets || len(got) > 2 {
		s.T.Errorf("requests %v, want %d PUT and %d GET", got, puts, gets)
	}
}

// wantCompleted checks the rows and that this very release answers.
func (s *system) wantCompleted(d deployment) {
	s.T.Helper()
	s.want(d, models.OutboxCompleted, "", models.VersionDeployed, models.WorkerActive)
	if w := s.Worker(); w.CurrentVersionID != d.version.ID {
		s.T.Errorf("the current version is %s", w.CurrentVersionID)
	}
	s.wantAnswer(d.version)
}

func (s *system) want(d deployment, row models.OutboxStatus, code string, state models.VersionState, worker models.WorkerStatus) {
	s.T.Helper()
	r, v, w := s.Row(d.id), s.Version(d.version.ID), s.Worker()
	if r.Status != row || r.LastErrorCode != code || v.State != state || w.Status != worker {
		s.T.Errorf("ticket %s %q, version %s, Worker %s; want %s %q, %s, %s", r.Status, r.LastErrorCode, v.State, w.Status, row, code, state, worker)
	}
	if r.DispatchNamespace != plane.Namespace {
		s.T.Errorf("the row is of namespace %q", r.DispatchNamespace)
	}
}

func (s *system) wantAnswer(v models.Version) {
	s.T.Helper()
	err := s.Probe(context.Background(), s.Worker().ScriptName, v.ReleaseGeneration)
	if err != nil {
		s.T.Errorf("the release does not answer: %v", err)
	}
}
