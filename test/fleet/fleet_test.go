//go:build e2e

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/pkg/project"
)

// patience tells a test that hangs from one that is slow.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	RemovePrograms()
	os.Exit(code)
}

// kinds are the transports that separate processes work over.
var kinds = []string{config.Legacy, config.PubSubBroker, config.SQSBroker, config.BatchBroker}

func each(t *testing.T, run func(t *testing.T, transport string)) {
	t.Helper()
	for _, transport := range kinds {
		t.Run(transport, func(t *testing.T) { run(t, transport) })
	}
}

// provision makes the company and its departments.
func (f *Fleet) provision(departments ...string) { f.t.Helper(); f.Provision("c", departments...) }

// archive is the example; text makes its bundle differ.
func (f *Fleet) archive(text string) []byte {
	f.t.Helper()
	folder := filepath.Join(f.t.TempDir(), "orders")
	f.must(os.CopyFS(folder, os.DirFS("../../examples/orders")))
	f.must(os.MkdirAll(filepath.Join(folder, "static"), 0o755))
	f.must(os.WriteFile(filepath.Join(folder, "static", "note.txt"), []byte(text), 0o600))
	archive, err := project.Pack(folder)
	f.must(err)
	return archive
}

// deploy submits a version and asks for its deployment.
func (f *Fleet) deploy(text string) gen.Ticket {
	f.t.Helper()
	v, err := f.as("d").SubmitVersion(f.t.Context(), f.archive(text), nil)
	f.must(err)
	ticket, err := f.as("d").Deploy(f.t.Context(), v.ID, v.Revision)
	f.must(err)
	return ticket
}

func (f *Fleet) wait(ticket gen.Ticket) gen.Ticket {
	f.t.Helper()
	ended := make(chan gen.Ticket, 1)
	go func() {
		got, err := f.as("d").Wait(f.t.Context(), ticket.TicketID, client.WaitParams{})
		if err != nil {
			f.t.Errorf("wait for the ticket: %v", err)
		}
		ended <- got
	}()
	select {
	case got := <-ended:
		return got
	case <-time.After(patience):
		f.t.Fatalf("the ticket has no end\n%s", f.logs())
		return gen.Ticket{}
	}
}

// logs is what all processes have logged.
func (f *Fleet) logs() string {
	var out strings.Builder
	for _, p := range slices.Concat([]*processtest.Process{f.api, f.reconciler, f.host.process}, f.deployers) {
		if p != nil {
			out.WriteString(p.Log() + "\n")
		}
	}
	return out.String()
}

func (f *Fleet) completes(what string, ticket gen.Ticket) {
	f.t.Helper()
	if got := f.wait(ticket); got.Status != gen.TicketStatusCompleted {
		f.t.Fatalf("%s: ticket %s\n%s", what, got.Status, f.logs())
	}
}

// worker is a process that does deployments.
type worker interface {
	Stop() int
	Kill()
	Log() string
}

// worker is the one that has the deployment in flight.
func (f *Fleet) worker() worker {
	if jobs, ok := f.broker.(*batchJobs); ok {
		return jobs.running()
	}
	if len(f.deployers) == 0 {
		return f.api
	}
	return f.deployers[0]
}

// restartWorker brings it back; a job of Batch comes by itself.
func (f *Fleet) restartWorker() {
	f.t.Helper()
	switch {
	case f.reconciler == nil:
		f.startAPI()
	case len(f.deployers) > 0:
		f.restartDeployer()
	}
}

// recover lets time pass and a sweep begin its first round.
func (f *Fleet) recover() {
	f.t.Helper()
	if f.reconciler == nil {
		f.api.Kill()
		f.passTime()
		f.startAPI()
		return
	}
	f.reconciler.Kill()
	f.passTime()
	f.startReconciler()
}

// settle recovers a deployment whose process died, and repairs it where its
// outcome is not known.
func (f *Fleet) settle(ticket gen.Ticket) gen.Ticket {
	f.t.Helper()
	f.recover()
	got := f.wait(ticket)
	if got.Status != gen.TicketStatusUncertain {
		return got
	}
	worker, err := f.as("d").Worker(f.t.Context())
	f.must(err)
	status, body := f.ask(http.MethodPost, "/company/departments/d/repairs", map[string]any{
		"action": "reconcile_uncertain_deployment", "ticket_id": ticket.TicketID, "observed_worker_revision": worker.LatestRevision,
	})
	if status != http.StatusAccepted && status != http.StatusOK {
		f.t.Fatalf("repair: %d %s\n%s", status, body, f.logs())
	}
	return f.wait(ticket)
}

func (f *Fleet) ask(method, path string, body any) (int, string) {
	f.t.Helper()
	raw, err := json.Marshal(body)
	f.must(err)
	request, err := http.NewRequestWithContext(f.t.Context(), method, f.api.URL("api")+path, bytes.NewReader(raw))
	f.must(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+f.token("d"))
	response, err := http.DefaultClient.Do(request)
	f.must(err)
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	f.must(err)
	return response.StatusCode, text.String()
}

// stopping waits until a process has taken notice of its SIGTERM. A job of Batch
// has no way to say so.
func (f *Fleet) stopping(w worker) {
	f.t.Helper()
	p, serves := w.(*processtest.Process)
	if !serves {
		return
	}
	p.AwaitReadiness(http.StatusServiceUnavailable)
}

// once checks that no release was uploaded more than once.
func (f *Fleet) once(what string) {
	f.t.Helper()
	for tag, n := range f.host.puts() {
		if n > 1 || tag == "" {
			f.t.Errorf("%s: release %q was uploaded %d times", what, tag, n)
		}
	}
}

// D1, S1-004, S1-020, S1-025, S1-251 to S1-271, S2-234: over each transport separate
// processes take a project from its archive to answers; a stop drains what is
// in flight; a kill of any process, a Redis that forgets and a database that
// restarts change no result and repeat no effect.
func TestFleet(t *testing.T) {
	each(t, func(t *testing.T, transport string) {
		f := Start(t, Params{Transport: transport, Deployers: 1})
		f.provision("d")
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"deploys and answers", f.deploysAndAnswers}, {"drains on stop", f.drainsOnStop}, {"survives kills", f.survivesKills},
			{"survives a flushed Redis", f.survivesForgetfulRedis}, {"survives a database that restarts", f.survivesDatabaseRestart},
			{"survives a killed host", f.survivesHostKill},
		} {
			began := time.Now()
			step.do()
			t.Logf("%s: %.1f s", step.name, time.Since(began).Seconds())
		}
		if out, err := f.as("d").Invoke(t.Context(), "orders.get", json.RawMessage(`{"id":"1"}`)); err != nil || !strings.Contains(string(out), "Ada") {
			t.Errorf("the data after all: %s, %v", out, err)
		}
		f.stopAll()
	})
}

func (f *Fleet) deploysAndAnswers() {
	f.t.Helper()
	f.completes("the first deployment", f.deploy("one"))
	out, err := f.as("d").Invoke(f.t.Context(), "orders.create", json.RawMessage(`{"customer":"Ada","lines":[{"sku":"CH-001","quantity":2}]}`))
	if err != nil || !strings.Contains(string(out), "Ada") {
		f.t.Fatalf("answer %s, %v", out, err)
	}
	secret, err := f.as("d").PutSecret(f.t.Context(), "TOKEN", "canary-of-the-fleet")
	if err != nil || secret.Name != "TOKEN" {
		f.t.Errorf("secret %+v, %v", secret, err)
	}
	f.once("the first deployment")
}

// S1-258 to S1-260.
func (f *Fleet) drainsOnStop() {
	f.t.Helper()
	gate := f.host.hold(f.t, false)
	ticket := f.deploy("drained")
	<-gate.arrived
	p := f.worker()
	code := make(chan int, 1)
	go func() { code <- p.Stop() }()
	f.stopping(p)
	gate.open()
	if got := <-code; got != 0 {
		f.t.Errorf("exit code %d\n%s", got, p.Log())
	}
	f.restartWorker() // legacy is to be asked
	f.completes("drained", ticket)
	f.once("drained")
	if n := f.broker.Dead(); n != 0 {
		f.t.Errorf("%d messages in the dead-letter queue", n)
	}
}

// S1-261, S1-268: what a kill cut off is recovered, and an effect that may have
// happened is read back and not repeated.
func (f *Fleet) survivesKills() {
	f.t.Helper()
	for _, after := range []bool{true, false} {
		gate := f.host.hold(f.t, after)
		ticket := f.deploy(fmt.Sprintf("killed, after %v", after))
		<-gate.arrived
		f.worker().Kill()
		gate.open()
		f.restartWorker()
		got := f.settle(ticket)
		if got.Status != gen.TicketStatusCompleted && (after || got.Status != gen.TicketStatusUncertain) {
			f.t.Errorf("killed, after %v: ticket %s\n%s", after, got.Status, f.logs())
		}
		f.once("killed")
		if got.Status == gen.TicketStatusUncertain { // the host does not have it: a person looks, and gives it up
			f.exec("UPDATE edge_worker_outbox SET status = 'failed' WHERE status = 'uncertain'")
			f.exec("UPDATE edge_worker_versions SET state = 'failed' WHERE state = 'uncertain'")
			f.exec("UPDATE edge_workers SET status = 'active'")
		}
	}
	if f.reconciler == nil {
		return
	}
	gate := f.host.hold(f.t, false)
	ticket := f.deploy("without an api")
	<-gate.arrived
	f.api.Kill()
	f.reconciler.Kill()
	gate.open()
	f.startAPI()
	f.completes("without api and reconciler", ticket)
	f.startReconciler()
	f.once("without api and reconciler")
}

func (f *Fleet) survivesForgetfulRedis() {
	f.t.Helper()
	gate := f.host.hold(f.t, false)
	ticket := f.deploy("forgotten")
	<-gate.arrived
	f.servers.forget()
	gate.open()
	f.completes("Redis was flushed", ticket)
	f.once("Redis was flushed")
}

func (f *Fleet) survivesDatabaseRestart() {
	f.t.Helper()
	gate := f.host.hold(f.t, false)
	ticket := f.deploy("without a database")
	<-gate.arrived
	seen := f.runs()
	f.servers.restartDatabase()
	gate.open()
	f.awaitRun(seen)
	if got := f.settle(ticket); got.Status != gen.TicketStatusCompleted {
		f.t.Errorf("the database restarted: ticket %s\n%s", got.Status, f.logs())
	}
	f.once("the database restarted")
}

// runs counts the deliveries that the worker has ended, with or without a
// settlement.
func (f *Fleet) runs() int {
	log := f.worker().Log()
	return strings.Count(log, `"deployment settled"`) + strings.Count(log, `"message not done; it is delivered again"`)
}

func (f *Fleet) awaitRun(seen int) {
	f.t.Helper()
	limit := time.After(patience)
	for f.runs() <= seen {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			f.t.Fatalf("the run does not end\n%s", f.logs())
		}
	}
}

func (f *Fleet) survivesHostKill() {
	f.t.Helper()
	gate := f.host.hold(f.t, true)
	ticket := f.deploy("without a host")
	<-gate.arrived
	f.host.restart(f.t, f.folder)
	gate.open()
	got := f.wait(ticket)
	if got.Status == gen.TicketStatusUncertain {
		got = f.settle(ticket)
	}
	if got.Status != gen.TicketStatusCompleted {
		f.t.Errorf("the host was killed: ticket %s\n%s", got.Status, f.logs())
	}
	f.once("the host was killed")
}

// stopAll stops every process; none has anything left to do.
func (f *Fleet) stopAll() {
	f.t.Helper()
	var left int64
	f.must(f.database.Read(f.t.Context()).Raw("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy' AND status IN ('pending', 'leased')").Scan(&left).Error)
	if left != 0 {
		f.t.Errorf("%d deployments are unfinished", left)
	}
	for _, p := range slices.Concat(f.deployers, []*processtest.Process{f.reconciler, f.api, f.host.process}) {
		if p == nil {
			continue
		}
		if code := p.Stop(); code != 0 {
			f.t.Errorf("exit code %d\n%s", code, p.Log())
		}
		if log := p.Log(); strings.Contains(log, "canary") || strings.Contains(log, processtest.HostToken) {
			f.t.Errorf("a log has a secret:\n%s", log)
		}
	}
}
