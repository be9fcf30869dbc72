// Package fleet runs the production programs as processes of their own: api,
// deployers and reconcilers with MariaDB, Redis, MinIO, a queue, and an edge host
// on workerd, with nothing between them but the network. The programs are built
// for it, because a kit's artifact service has a fixed address in them.
package fleet

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/test/objects"
)

// Params says what a fleet is made of.
type Params struct {
	// Transport is one of config's.
	Transport string
	// Deployers is how many; legacy has none, and with batch each deployment has
	// one of its own.
	Deployers int
	// Model serves releases from a model in place of an edge host.
	Model bool
	// Step, if not nil, is given each part of the start and of Stop with its name,
	// and does it.
	Step func(name string, do func())
	// Releases is the commit that a program is of, by its name; a program that is
	// not in it is of this tree.
	Releases map[string]string
}

// TB is the part of testing.TB that a fleet needs. A program that is no test
// has one of its own; there too, Fatal ends the goroutine.
type TB interface {
	processtest.TB
	Error(args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Fleet is a running system.
type Fleet struct {
	t           TB
	step        func(name string, do func())
	folder      string
	releases    map[string]string // as Params has it
	environment map[string]string
	servers     *servers
	broker      broker
	host        *host
	issuer      *auth.Issuer
	database    *database.DB

	api        *processtest.Process
	deployers  []*processtest.Process
	reconciler *processtest.Process // nil with legacy
}

// Start starts a fleet; it ends with the test.
func Start(t TB, p Params) *Fleet {
	t.Helper()
	f := &Fleet{t: t, step: p.Step, releases: p.Releases}
	if f.step == nil {
		f.step = func(_ string, do func()) { do() }
	}
	f.step("MariaDB and Redis", func() { f.servers = startServers(t) })
	var bucket *objects.Bucket
	f.step("the queue and the bucket", func() { f.broker, bucket = open(t, p.Transport), objects.NewBucket(t) })
	f.step("the programs' build", func() { f.folder = programs(t, bucket.Endpoint, "") })
	f.step("the edge host", func() {
		if p.Model {
			f.host = startModel(t)
		} else {
			f.host = startHost(t, t.TempDir(), f.folder)
		}
	})
	f.settings(bucket)
	var err error
	f.database, err = database.Open(t.Context(), database.Params{URL: f.servers.dsn})
	f.must(err)
	t.Cleanup(func() { _ = f.database.Close() })
	f.step("the api", f.startAPI)
	if p.Transport == config.Legacy {
		return f
	}
	f.step("the reconciler", f.startReconciler)
	if jobs, ok := f.broker.(*batchJobs); ok {
		jobs.compute(f.folder, f.environment)
		return f
	}
	for i := range p.Deployers {
		f.step(fmt.Sprintf("deployer %d", i+1), f.startDeployer)
	}
	return f
}

// settings is one environment for all processes, as a chart gives it.
func (f *Fleet) settings(bucket *objects.Bucket) {
	f.t.Helper()
	key := filepath.Join(f.t.TempDir(), "auth.pem")
	signing, err := auth.GenerateKeyFile(key)
	f.must(err)
	f.issuer, err = auth.NewIssuer(signing, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	f.must(err)
	f.environment = processtest.Environment(f.t, append([]string{
		"EDGE_WORKERS_DATABASE_URL", f.servers.dsn, "EDGE_WORKERS_REDIS_URL", f.servers.redisAddr,
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE", key, "EDGE_WORKERS_LISTEN_ADDR", "127.0.0.1:0", "EDGE_WORKERS_NPM_CACHE_DIR", f.t.TempDir(),
		"EDGE_WORKERS_EDGE_HOST_URL", f.host.api.URL, "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL", f.host.dispatch,
	}, f.broker.Environment()...)...)
	for name, value := range bucket.Environment() {
		f.environment[name] = value
	}
	f.environment["EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"] = bucket.Endpoint
}

func (f *Fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *Fleet) run(program string, servers int) *processtest.Process {
	f.t.Helper()
	folder := programs(f.t, f.environment["EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"], f.releases[program])
	return processtest.StartProgram(f.t, filepath.Join(folder, program), servers, f.environment)
}

func (f *Fleet) startAPI()        { f.t.Helper(); f.api = f.run("api", 2) }
func (f *Fleet) startReconciler() { f.t.Helper(); f.reconciler = f.run("reconciler", 1) }

func (f *Fleet) startDeployer() {
	f.t.Helper()
	f.deployers = append(f.deployers, f.run("deployer", 1))
}

// restartDeployer brings the first one back, killed or stopped.
func (f *Fleet) restartDeployer() {
	f.t.Helper()
	f.deployers[0] = f.run("deployer", 1)
}

// as is a client of somebody with all roles in a department.
func (f *Fleet) as(department string) *client.Client {
	f.t.Helper()
	c, err := client.New(client.Params{BaseURL: f.api.URL("api"), Token: f.token(department)})
	f.must(err)
	return c
}

func (f *Fleet) token(department string) string {
	f.t.Helper()
	token, err := f.issuer.Issue(auth.Principal{Subject: "user:1", CompanyID: "c", DepartmentID: department, Roles: auth.Roles()}, time.Hour)
	f.must(err)
	return token
}

// exec changes rows as time would.
func (f *Fleet) exec(statement string, args ...any) {
	f.t.Helper()
	f.must(f.database.Read(f.t.Context()).Exec(statement, args...).Error)
}

// passTime ends the claims and leases of dead processes, and makes rows that
// nobody works on old enough for the sweep.
func (f *Fleet) passTime() {
	f.t.Helper()
	f.servers.forget()
	f.exec("UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE status = 'leased'")
	f.exec("UPDATE edge_worker_outbox SET created_at = created_at - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR, next_attempt_at = NULL WHERE status = 'pending' AND operation = 'deploy'")
}
