//go:build s3

// Package processes runs the production programs as processes of their own: a
// control plane, an edge host, MariaDB, Redis and MinIO, with nothing between
// them but the network. The programs are built for the test, because a kit's
// artifact service has a fixed address in them.
package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/test/objects"
)

const (
	hostToken = "processes-test-token-0123"
	patience  = 3 * time.Minute // it tells a test that hangs from one that is slow
)

// fleet is a control plane and an edge host.
type fleet struct {
	t           *testing.T
	folder      string
	environment map[string]string // of the control plane
	host        *processtest.Process
	api         *processtest.Process
	database    *database.DB
	issuer      *auth.Issuer
}

func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, folder: t.TempDir()}
	bucket := objects.NewBucket(t)
	f.build("-X github.com/teamsync/edge-workers/pkg/config.artifactsOrigin=" + bucket.Endpoint)
	f.startHost()
	dsn := databasetest.MySQLURL(t)
	var err error
	f.database, err = database.Open(t.Context(), database.Params{URL: dsn})
	f.must(err)
	t.Cleanup(func() { _ = f.database.Close() })
	_, err = control.LoadOrCreateKey(filepath.Join(f.folder, "control.pem"))
	f.must(err)
	key, err := auth.GenerateKeyFile(filepath.Join(f.folder, "auth.pem"))
	f.must(err)
	f.issuer, err = auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	f.must(err)
	f.environment = map[string]string{
		"EDGE_WORKERS_DATABASE_URL": dsn, "EDGE_WORKERS_REDIS_URL": os.Getenv("EDGE_TEST_REDIS_URL"),
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": filepath.Join(f.folder, "control.pem"), "EDGE_WORKERS_AUTH_LOCAL_KEY_FILE": filepath.Join(f.folder, "auth.pem"),
		"EDGE_WORKERS_PROVIDER": "onprem", "EDGE_WORKERS_EDGE_HOST_API_TOKEN": hostToken, "EDGE_WORKERS_EDGE_HOST_IDENTITY": "host-1",
		"EDGE_WORKERS_EDGE_HOST_URL": f.host.URL("script API"), "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL": f.host.URL("dispatch"),
		"EDGE_WORKERS_LISTEN_ADDR": "127.0.0.1:0", "EDGE_WORKERS_METRICS_ADDR": "127.0.0.1:0", "EDGE_WORKERS_NPM_CACHE_DIR": t.TempDir(),
	}
	maps.Copy(f.environment, bucket.Environment())
	f.environment["EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"] = bucket.Endpoint
	f.startAPI()
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) build(flags string) {
	f.t.Helper()
	build := exec.CommandContext(f.t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", f.folder+"/", "../../cmd/api", "../../cmd/edgehost")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	if err != nil {
		f.t.Fatalf("build: %v\n%s", err, text)
	}
}

func (f *fleet) startHost() {
	f.t.Helper()
	binary, err := workerd.Find("")
	f.must(err)
	f.host = processtest.StartProgram(f.t, filepath.Join(f.folder, "edgehost"), 3, map[string]string{
		"EDGE_WORKERS_HOST_DATA_DIR": filepath.Join(f.folder, "host"), "EDGE_WORKERS_HOST_API_TOKEN": hostToken, "EDGE_WORKERS_HOST_WORKERD": binary,
		"EDGE_WORKERS_HOST_API_ADDR": "127.0.0.1:0", "EDGE_WORKERS_HOST_DISPATCH_ADDR": "127.0.0.1:0", "EDGE_WORKERS_HOST_METRICS_ADDR": "127.0.0.1:0",
		"EDGE_WORKERS_HOST_ISOLATION": "off",
	})
}

func (f *fleet) startAPI() {
	f.t.Helper()
	f.api = processtest.StartProgram(f.t, filepath.Join(f.folder, "api"), 2, f.environment)
}

// as is a client of somebody with all roles.
func (f *fleet) as() *client.Client {
	f.t.Helper()
	token, err := f.issuer.Issue(auth.Principal{Subject: "user:1", CompanyID: "c", DepartmentID: "d", Roles: auth.Roles()}, time.Hour)
	f.must(err)
	c, err := client.New(client.Params{BaseURL: f.api.URL("api"), Token: token})
	f.must(err)
	return c
}

// exec changes rows as time would.
func (f *fleet) exec(statement string) {
	f.t.Helper()
	f.must(f.database.Read(f.t.Context()).Exec(statement).Error)
}

// submit submits the example; text makes its bundle differ.
func (f *fleet) submit(text string) gen.Version {
	f.t.Helper()
	folder := filepath.Join(f.t.TempDir(), "orders")
	f.must(os.CopyFS(folder, os.DirFS("../../examples/orders")))
	f.must(os.MkdirAll(filepath.Join(folder, "static"), 0o755))
	f.must(os.WriteFile(filepath.Join(folder, "static", "note.txt"), []byte(text), 0o600))
	archive, err := project.Pack(folder)
	f.must(err)
	v, err := f.as().SubmitVersion(f.t.Context(), archive, nil)
	f.must(err)
	return v
}

// ended waits for a ticket's end.
func (f *fleet) ended(ticketID string) gen.Ticket {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	got, err := f.as().Wait(ctx, ticketID, client.WaitParams{})
	if err != nil {
		f.t.Fatalf("%v\n%s", err, f.api.Log())
	}
	return got
}

// D1, S1-004, S1-020, S1-025, S1-251: separate processes take a project from its
// archive to answers and settings; one that is told to stop in the midst of a
// deployment, and one that is killed, lose nothing: the next one goes on.
func TestControlPlaneAndHost(t *testing.T) {
	f := start(t)
	ctx := t.Context()
	f.exec("INSERT INTO companies (id, name) VALUES ('c', 'A company')")
	f.exec("INSERT INTO departments (id, company_id, name) VALUES ('d', 'c', 'A department')")
	first := f.submit("one")
	ticket, err := f.as().Deploy(ctx, first.ID, first.Revision)
	f.must(err)
	if got := f.ended(ticket.TicketID); got.Status != "completed" {
		t.Fatalf("ticket %+v\n%s", got, f.api.Log())
	}
	out, err := f.as().Invoke(ctx, "orders.create", json.RawMessage(`{"customer":"Ada","lines":[{"sku":"CH-001","quantity":2}]}`))
	if err != nil || !strings.Contains(string(out), "Ada") {
		t.Errorf("answer %s, %v", out, err)
	}
	secret, err := f.as().PutSecret(ctx, "TOKEN", "canary-of-the-processes")
	if err != nil || secret.Name != "TOKEN" {
		t.Errorf("secret %+v, %v", secret, err)
	}
	for i, end := range []func(){func() { f.api.Stop() }, func() { f.api.Kill() }} {
		v := f.submit(fmt.Sprintf("again %d", i))
		ticket, err := f.as().Deploy(ctx, v.ID, v.Revision)
		f.must(err)
		end()
		if strings.Contains(f.api.Log(), "canary") || strings.Contains(f.host.Log(), "canary") {
			t.Error("a log has the secret")
		}
		// The dead process's lease ends and its row becomes old enough.
		f.exec("UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE status = 'leased'")
		f.exec("UPDATE edge_worker_outbox SET created_at = created_at - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR, next_attempt_at = NULL WHERE status = 'pending' AND operation = 'deploy'")
		f.startAPI()
		got := f.ended(ticket.TicketID)
		if got.Status != "completed" && got.Status != "uncertain" {
			t.Errorf("run %d: ticket %+v\n%s", i, got, f.api.Log())
		}
		if got.Status == "uncertain" { // it was killed between fence and upload: a person looks, and decides
			f.exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE status = 'uncertain'")
			f.exec("UPDATE edge_worker_versions SET state = 'failed' WHERE state = 'uncertain'")
			f.exec("UPDATE edge_workers SET status = 'active'")
		}
	}
	var left int64
	f.must(f.database.Read(ctx).Model(&models.Outbox{}).Where("status IN ?", []models.OutboxStatus{models.OutboxPending, models.OutboxLeased}).Where("operation = 'deploy'").Count(&left).Error)
	if left != 0 {
		t.Errorf("%d deployments are unfinished", left)
	}
	if out, err = f.as().Invoke(ctx, "orders.get", json.RawMessage(`{"id":"1"}`)); err != nil || !strings.Contains(string(out), "Ada") {
		t.Errorf("the data after all: %s, %v", out, err)
	}
	if code := f.api.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, f.api.Log())
	}
	if code := f.host.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, f.host.Log())
	}
}
