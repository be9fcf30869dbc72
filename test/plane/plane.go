// Package plane builds a whole control plane for tests: a real database, real
// Redis, the real builder and a directory store, over a provider and a release
// whose answers a test scripts and whose requests it reads.
package plane

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/transports"
)

// Namespace is the dispatch namespace of a plane's cloud scope.
const Namespace = "edge-test"

// Plane is one control plane with one tenant. Change Providers, Answers and
// the parts' own fields before use.
type Plane struct {
	T         testing.TB
	DB        *database.DB
	Outbox    *outbox.Outbox
	Redis     redis.UniversalClient
	Backend   *artifact.Directory
	Store     artifact.Store
	Submitter *version.Submitter
	Desk      *admission.Desk
	Mirror    *ticket.Mirror
	Directory *tenancy.Directory
	Provider  *Provider
	Release   *Release
	Secrets   *Secrets
	Published *Published
	// Channel is what Live, and the desk's staging, talk to.
	Channel *Channel
	Live    *live.Desk
	Tenant  models.Tenant
	Actor   audit.Actor
	Log     *slog.Logger
	// Invalid, when set, is what the provider's settings check says.
	Invalid error
	builder *builder.Builder
}

// New returns a plane on db with a cloud scope.
func New(t testing.TB, db *database.DB) *Plane {
	t.Helper()
	return NewIn(t, db, outbox.CloudScope(Namespace))
}

// NewIn returns a plane of another scope.
func NewIn(t testing.TB, db *database.DB, scope outbox.Scope) *Plane {
	t.Helper()
	id := strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	p := &Plane{
		T: t, DB: db, Outbox: outbox.New(db, scope), Redis: Redis(t), Provider: &Provider{}, Release: &Release{}, Secrets: &Secrets{}, Published: &Published{}, Channel: &Channel{},
		Directory: tenancy.New(db), Tenant: models.Tenant{CompanyID: "company-" + id, DepartmentID: "dept-" + id},
		Actor: audit.Actor{Type: "user", ID: "user:manager", Method: "bearer_jwt", RequestID: "req-" + id},
		Log:   slog.New(slog.DiscardHandler),
	}
	var err error
	p.Backend, err = artifact.NewDirectory(t.TempDir())
	p.ok(err)
	t.Cleanup(func() { _ = p.Backend.Close() })
	p.Store = artifact.NewFenced(p.Backend)
	p.Mirror = ticket.NewMirror(p.Redis, p.Log)
	check := func() error { return p.Invalid }
	p.BuildFrom("")
	p.Live = p.LiveDesk(p.Channel)
	p.Desk, err = admission.New(admission.Params{
		DB: db, Outbox: p.Outbox, Redis: p.Redis, Mirror: p.Mirror, Publisher: p.Published, Stager: p.Live, Provider: check, Log: p.Log,
	})
	p.ok(err)
	p.openGate()
	p.Provision(p.Tenant)
	return p
}

// openGate gives an edge host the row that its API creates.
func (p *Plane) openGate() {
	p.T.Helper()
	scope := p.Outbox.Scope()
	if !scope.OnPrem() {
		return
	}
	keeper, err := maintenance.New(maintenance.Params{DB: p.DB, Scope: scope.Default().Namespace, Log: p.Log})
	p.ok(err)
	_, err = keeper.Prepare(context.Background())
	p.ok(err)
}

// LiveDesk is a desk over a channel.
func (p *Plane) LiveDesk(channel live.Channel) *live.Desk {
	p.T.Helper()
	metrics, err := live.NewMetrics(prometheus.NewRegistry())
	p.ok(err)
	desk, err := live.New(live.Params{
		DB: p.DB, Outbox: p.Outbox, Redis: p.Redis, Channel: channel, Provider: func() error { return p.Invalid }, Metrics: metrics, Log: p.Log,
	})
	p.ok(err)
	return desk
}

// BuildFrom makes later submissions take npm packages from a registry; empty is
// npm's own.
func (p *Plane) BuildFrom(registry string) {
	p.T.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	p.ok(err)
	packages, err := npm.New(npm.Params{Registry: registry})
	p.ok(err)
	p.builder, err = builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}, Packages: packages})
	p.ok(err)
	p.Submitter = p.SubmitterOn(p.Store)
}

// Redis returns a client of the server that EDGE_TEST_REDIS_URL names.
func Redis(t testing.TB) redis.UniversalClient {
	t.Helper()
	url := os.Getenv("EDGE_TEST_REDIS_URL")
	if url == "" {
		t.Fatal("EDGE_TEST_REDIS_URL is not set: run `make test`, or set it to a Redis server")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("EDGE_TEST_REDIS_URL: %v", err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (p *Plane) ok(err error) {
	p.T.Helper()
	if err != nil {
		p.T.Fatal(err)
	}
}

// Provision creates a tenant's company and department.
func (p *Plane) Provision(tenant models.Tenant) {
	p.T.Helper()
	p.ok(p.Directory.PutCompany(context.Background(), p.Actor, tenant.CompanyID, "A company"))
	p.ok(p.Directory.PutDepartment(context.Background(), p.Actor, tenant, "A department"))
}

// Task returns a deployment task of its own process identity. change may
// replace parts.
func (p *Plane) Task(change func(*deploy.Params)) *deploy.Task {
	p.T.Helper()
	metrics, err := deploy.NewMetrics(prometheus.NewRegistry())
	p.ok(err)
	params := deploy.Params{
		DB: p.DB, Outbox: p.Outbox, Redis: p.Redis, Mirror: p.Mirror, Store: p.Store, Prober: p.Release, Purger: p.Secrets, Metrics: metrics, Log: p.Log,
		Owner: "test-" + uuid.NewString()[:8],
		Provider: func() (provider.Provider, error) {
			if p.Invalid != nil {
				return nil, p.Invalid
			}
			return p.Provider, nil
		},
	}
	if change != nil {
		change(&params)
	}
	task, err := deploy.New(params)
	p.ok(err)
	return task
}

// SubmitterOn returns a submitter of another store; nil is one that is not
// configured.
func (p *Plane) SubmitterOn(store artifact.Store) *version.Submitter {
	p.T.Helper()
	s, err := version.NewSubmitter(version.Params{
		DB: p.DB, Outbox: p.Outbox, Builder: p.builder, Store: store, Provider: func() error { return p.Invalid }, Log: p.Log,
	})
	p.ok(err)
	return s
}

// Submit submits a small project; text makes its bundle differ.
func (p *Plane) Submit(text string) models.Version {
	p.T.Helper()
	return p.SubmitPolicy(text, "")
}

// SubmitPolicy is Submit with a builder policy, as an older builder did it.
func (p *Plane) SubmitPolicy(text string, policy builder.Policy) models.Version {
	p.T.Helper()
	return p.submit(projecttest.Archive(p.T, Project(text)), policy)
}

// SubmitArchive submits a packed project.
func (p *Plane) SubmitArchive(archive []byte) models.Version {
	p.T.Helper()
	return p.submit(archive, "")
}

func (p *Plane) submit(archive []byte, policy builder.Policy) models.Version {
	p.T.Helper()
	v, err := p.Submitter.Submit(context.Background(), version.Submission{Tenant: p.Tenant, Actor: p.Actor, Archive: bytes.NewReader(archive), Policy: policy})
	p.ok(err)
	return v
}

// Admit asks for the deployment of v at the Worker's latest revision.
func (p *Plane) Admit(v models.Version) ticket.Ticket {
	p.T.Helper()
	view, err := p.Desk.Deploy(context.Background(), p.Request(v))
	p.ok(err)
	return view
}

// Request is the admission request of v at the Worker's latest revision.
func (p *Plane) Request(v models.Version) admission.Request {
	p.T.Helper()
	return admission.Request{Tenant: p.Tenant, Actor: p.Actor, VersionID: v.ID, BaseRevision: p.Worker().LatestRevision}
}

// Worker reads the Worker back.
func (p *Plane) Worker() models.Worker {
	p.T.Helper()
	w, err := version.WorkerOf(p.DB.Read(context.Background()), p.Tenant)
	p.ok(err)
	return w
}

// Version reads a version back.
func (p *Plane) Version(id string) models.Version {
	p.T.Helper()
	v, err := version.Of(p.DB.Read(context.Background()), p.Tenant, id)
	p.ok(err)
	return v
}

// Row reads a ticket's outbox row back.
func (p *Plane) Row(ticketID string) models.Outbox {
	p.T.Helper()
	row, err := outbox.Ticket(p.DB.Read(context.Background()), p.Tenant, ticketID)
	p.ok(err)
	return row
}

// Facts lists the actions of the tenant's audit facts, oldest first.
func (p *Plane) Facts() []models.AuditLog {
	p.T.Helper()
	var rows []models.AuditLog
	p.ok(p.Tenant.Own(p.DB.Read(context.Background())).Order("created_at, id").Find(&rows).Error)
	return rows
}

// Count counts rows of a table.
func (p *Plane) Count(table string) int64 {
	p.T.Helper()
	var n int64
	p.ok(p.DB.Read(context.Background()).Table(table).Count(&n).Error)
	return n
}

// Exec runs a raw statement, as an outside hand would.
func (p *Plane) Exec(sql string, args ...any) {
	p.T.Helper()
	p.ok(p.DB.Read(context.Background()).Exec(sql, args...).Error)
}

// Project is a small good project.
func Project(text string) map[string]string {
	return map[string]string{
		"worker.json": `{"schema_version": 1, "name": "echo", "language": "javascript", "entry": "src/index.js",
			"compatibility_date": "2026-01-01", "operations": [{"id": "echo.say", "method": "POST", "path": "/say"}]}`,
		"src/index.js": fmt.Sprintf("export default { 'echo.say': (input) => ({ said: input, by: %q }) };\n", text),
	}
}

// Published records what was handed to the transport. Err, when set, is what
// the transport answers.
type Published struct {
	mu       sync.Mutex
	messages []transports.Message
	Err      error
	// Seen, when set, runs at the moment of each publication.
	Seen func(transports.Message)
}

// Publish records the message.
func (p *Published) Publish(_ context.Context, m transports.Message) error {
	if p.Seen != nil {
		p.Seen(m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Err != nil {
		return p.Err
	}
	p.messages = append(p.messages, m)
	return nil
}

// Messages returns what was published.
func (p *Published) Messages() []transports.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]transports.Message(nil), p.messages...)
}

// DeadRedis returns a client of a Redis that cannot be reached.
func DeadRedis(t testing.TB) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: t.TempDir() + "/nobody.sock", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
