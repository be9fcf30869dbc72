package liveplane_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// checks is how many random runs there are: few by default, and what
// EDGE_TEST_CONTROL_CHECKS says in `make test-stress`.
func checks(t *testing.T) int {
	t.Helper()
	text := os.Getenv("EDGE_TEST_CONTROL_CHECKS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("EDGE_TEST_CONTROL_CHECKS: %q", text)
	}
	return n
}

const (
	steps    = 150
	maxKills = 3 // between two deployments: more crashes in a row make the host wait
)

// world is a live Worker with its control plane, and the history of what was
// asked of it.
type world struct {
	*liveplane.System
	desk     *live.Desk
	trouble  *trouble
	canaries *list
	logged   *observetest.Log
	serial   atomic.Int64
	kills    int
	versions []models.Version
	projects map[string][]string // a version's operations by its id

	mu       sync.Mutex
	changes  []*change
	releases []models.Version // that were live, in their order
}

// S1-162 to S1-166, S1-217 to S1-219, S1-226 to S1-233, S1-243 to S1-247, S3-57,
// S3-59, S3-60, D12: whatever is lost, spoilt, doubled, late or killed on the way,
// in the end each change is applied once and has its one fact, or neither; what
// its caller was told is true; no receipt is left and no secret is anywhere.
func TestRandomChangesAgainstAModel(t *testing.T) {
	t.Parallel()
	repeat(t, checks(t), func(run *rapid.T) {
		w := newWorld(inRun{t, run}, uint64(draws{run}.IntN(1024)))
		defer w.tell()
		w.trouble.on.Store(true)
		for range steps {
			w.step(ask{draws{run}, w})
		}
		w.trouble.on.Store(false)
		w.drain()
		w.check()
	})
}

func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{
		trouble:  &trouble{rand: rand.New(rand.NewPCG(seed, 2))},
		canaries: &list{}, logged: &observetest.Log{}, projects: map[string][]string{},
	}
	log := slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.System = liveplane.NewLogging(t, databasetest.MySQL(t), log)
	w.desk = w.LiveDesk(mortal{w.Client, w.canaries})
	for i, ids := range [][]string{{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"c", "a"}, {"b"}, {"a", "b"}} {
		v, err := w.Submitter.Submit(t.Context(), version.Submission{
			Tenant: w.Tenant, Actor: w.Actor, Archive: bytes.NewReader(projecttest.Archive(t, project(strconv.Itoa(i), ids...))),
		})
		w.Must(err)
		w.versions, w.projects[v.ID] = append(w.versions, v), ids
	}
	w.deploy()
	if len(w.releases) != 1 {
		t.Fatal("the first release is not live")
	}
	w.DB.AfterCommit(w.trouble.commit)
	w.Front.Next(w.trouble.way)
	return w
}

// project has the given operations.
func project(text string, operations ...string) map[string]string {
	manifest, handlers := "", ""
	for i, id := range operations {
		if i > 0 {
			manifest += ","
		}
		manifest += `{"id":"` + id + `","method":"POST","path":"/` + id + `"}`
		handlers += `'` + id + `': () => 1,`
	}
	return map[string]string{
		"worker.json": `{"schema_version":1,"name":"show","language":"javascript","entry":"index.js","compatibility_date":"2026-01-01","operations":[` + manifest + `]}`,
		"index.js":    `/* ` + text + ` */ export default {` + handlers + `};`,
	}
}

// operations are those of the live release.
func (w *world) operations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.projects[w.releases[len(w.releases)-1].ID]
}

func (w *world) note(c *change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, c)
}

// step does one random thing.
func (w *world) step(me ask) {
	switch p := me.IntN(100); {
	case p < 62:
		w.try(me.next())
	case p < 74:
		w.burst(me)
	case p < 84:
		w.Front.Deliver() // nothing is on its way for as long as a row's grace
		w.expire()
		w.lanes(me)
	case p < 87:
		w.round()
	case p < 90: // a lane takes rows and dies
		_, _ = w.Outbox.ClaimControlAudits(context.Background(), "dead", 1+me.IntN(3))
		_, _ = w.Outbox.ClaimControlReceiptAcks(context.Background(), 1+me.IntN(3))
	case p < 92:
		w.Front.Deliver()
	case p < 94:
		w.vanish(me.next())
	case p < 96:
		w.kill()
	default:
		w.deploy()
	}
}

// burst is several changes at once, with a lane's round, a crash or a
// deployment among them.
func (w *world) burst(me ask) {
	var group sync.WaitGroup
	for range 2 + me.IntN(4) {
		c := me.next()
		group.Go(func() { w.try(c) })
	}
	switch me.IntN(6) {
	case 0, 1:
		group.Go(w.round)
	case 2, 3:
		w.kill()
	case 4:
		w.deploy()
	default:
	}
	group.Wait()
}

// lanes are one or two rounds at once; leases may end while they run.
func (w *world) lanes(me ask) {
	var group sync.WaitGroup
	for range 1 + me.IntN(2) {
		group.Go(w.round)
	}
	if me.chance(30) {
		w.expire()
	}
	if me.chance(10) {
		w.kill()
	}
	group.Wait()
}

// round is one round of the control-audit lane; what it could not do is left
// to the next.
func (w *world) round() { _, _ = w.Auditor().RunOnce(context.Background(), time.Minute) }

// expire lets every wait and every lease of control rows end.
func (w *world) expire() {
	w.Exec(`UPDATE edge_worker_outbox SET next_attempt_at = created_at WHERE operation = 'control_audit' AND next_attempt_at IS NOT NULL`)
	w.Exec(`UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE operation = 'control_audit' AND lease_expires_at IS NOT NULL`)
}

// vanish asks for a change whose row is not committed, which nobody is told.
func (w *world) vanish(c *change) {
	w.trouble.mu.Lock()
	w.trouble.vanish = func() {
		w.Exec(`DELETE FROM edge_worker_outbox WHERE operation = 'control_audit' AND payload LIKE ?`, "%"+c.request+"%")
	}
	w.trouble.mu.Unlock()
	w.try(c)
	w.trouble.mu.Lock()
	w.trouble.vanish = nil
	w.trouble.mu.Unlock()
}

func (w *world) kill() {
	if w.kills < maxKills {
		w.kills++
		w.Workers.Kill()
	}
}

// deploy brings the next release up, unless its settings cannot be taken along.
func (w *world) deploy() {
	if len(w.releases) == len(w.versions) {
		return
	}
	v := w.versions[len(w.releases)]
	w.trouble.calm.Store(true)
	defer w.trouble.calm.Store(false)
	var err error
	for range 3 {
		_, err = w.Desk.Deploy(context.Background(), w.Request(v))
		if err == nil {
			break
		}
	}
	if err != nil {
		return
	}
	w.Run()
	if got := w.Version(v.ID); got.State != models.VersionDeployed || w.Worker().CurrentVersionID != v.ID {
		w.T.Fatalf("the version is %s (%s)", got.State, got.ErrorCode)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills, w.releases = 0, append(w.releases, w.Version(v.ID))
}

// drain lets the lane finish what is left, with nothing in its way.
func (w *world) drain() {
	w.Front.Deliver()
	for range 12 {
		if w.open() == 0 {
			return
		}
		w.expire()
		_, err := w.Auditor().RunOnce(context.Background(), time.Minute)
		w.Must(err)
	}
	w.T.Errorf("%d control rows are never done with", w.open())
}

// open counts the control rows that somebody still has to do something for.
func (w *world) open() int64 {
	var n int64
	w.Must(w.DB.Read(context.Background()).Model(&models.Outbox{}).Where("operation = ?", models.OperationControlAudit).
		Where("status NOT IN ? OR next_attempt_at IS NOT NULL", []models.OutboxStatus{models.OutboxCompleted, models.OutboxFailed}).Count(&n).Error)
	return n
}

// tell shows the history of a run that failed.
func (w *world) tell() {
	if !w.T.Failed() {
		return
	}
	for _, c := range w.changes {
		w.T.Log(c)
	}
}
