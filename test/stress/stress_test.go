// Package stress lets many deployers and sweeps race on one database.
package stress

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

const (
	deployers = 4
	sweeps    = 2
	perTenant = 20 // deployments of one Worker, one after another
)

// deployments is how many are raced: a few hundred by default, and what
// EDGE_TEST_DEPLOYMENTS says in `make test-stress`.
func deployments(t *testing.T) int {
	t.Helper()
	text := os.Getenv("EDGE_TEST_DEPLOYMENTS")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < perTenant {
		t.Fatalf("EDGE_TEST_DEPLOYMENTS: %q", text)
	}
	return n
}

// world is the provider of all scripts: what each holds and how often each was
// written.
type world struct {
	mu   sync.Mutex
	live map[string]string
	puts map[string]int
}

// Upload applies the release.
func (w *world) Upload(_ context.Context, r provider.Release) error {
	tag, err := r.Tag()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[r.ScriptName] = tag
	w.puts[r.ScriptName]++
	return nil
}

// ReadBack compares the tag.
func (w *world) ReadBack(_ context.Context, r provider.Release) error {
	tag, err := r.Tag()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live[r.ScriptName] != tag {
		return &provider.MismatchError{Detail: "tag"}
	}
	return nil
}

// bag is a transport that loses the order and doubles messages.
type bag struct {
	mu       sync.Mutex
	messages []transports.Message
	more     chan struct{}
	doubled  int
}

// Publish puts the message in once to three times.
func (b *bag) Publish(_ context.Context, m transports.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	copies := 1 + rand.IntN(3)
	b.doubled += copies - 1
	for range copies {
		b.messages = append(b.messages, m)
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
	return nil
}

// take gives any message.
func (b *bag) take() (transports.Message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) == 0 {
		return transports.Message{}, false
	}
	i := rand.IntN(len(b.messages))
	m := b.messages[i]
	last := len(b.messages) - 1
	b.messages[i] = b.messages[last]
	b.messages = b.messages[:last]
	return m, true
}

// S2-066, S2-118, S1-007, S1-266, S1-271, S3-39: deployers and sweeps race for
// deployments whose messages are doubled and reordered. Afterwards every row
// is settled, each exactly once, nothing was uploaded twice, and no deadlock
// came to the surface.
func TestRace(t *testing.T) {
	total := deployments(t)
	db := databasetest.MySQL(t)
	p := plane.New(t, db)
	w := &world{live: map[string]string{}, puts: map[string]int{}}
	b := &bag{more: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	var surfaced, delivered, inFlight atomic.Int64
	for range deployers {
		task := p.Task(func(d *deploy.Params) {
			d.Owner = "deployer-" + uuid.NewString()[:8]
			d.Provider = func() (provider.Provider, error) { return w, nil }
		})
		workers.Go(func() { consume(ctx, t, b, task, &surfaced, &delivered, &inFlight) })
	}
	for range sweeps {
		lane := reconcile.NewRepublisher(reconcile.RepublishParams{
			Outbox: p.Outbox, Mirror: p.Mirror, Publisher: b, Log: p.Log,
			Claim: &outbox.RecoveryClaim{Grace: 2 * time.Second, Cooldown: time.Second, Limit: outbox.RecoveryBatch},
		})
		workers.Go(func() {
			for ctx.Err() == nil {
				_, err := lane.RunOnce(ctx, time.Minute)
				if err != nil && ctx.Err() == nil {
					surfaced.Add(1)
					t.Errorf("sweep: %v", err)
				}
				pause(ctx, 500*time.Millisecond)
			}
		})
	}
	began := time.Now()
	race(t, p, b, total)
	settle(t, p, total)
	took := time.Since(began)
	stop()
	workers.Wait()
	check(t, p, w, total)
	if surfaced.Load() != 0 || b.doubled == 0 || delivered.Load() <= int64(total) {
		t.Errorf("%d errors surfaced; %d messages doubled, %d delivered", surfaced.Load(), b.doubled, delivered.Load())
	}
	t.Logf("%d deployments, %d deliveries (%d found another owner), %d deployers, %d sweeps: %.1f s",
		total, delivered.Load(), inFlight.Load(), deployers, sweeps, took.Seconds())
}

func consume(ctx context.Context, t *testing.T, b *bag, task *deploy.Task, surfaced, delivered, inFlight *atomic.Int64) {
	for ctx.Err() == nil {
		m, ok := b.take()
		if !ok {
			select {
			case <-b.more:
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // a signal may have gone to another
			}
			continue
		}
		delivered.Add(1)
		err := task.Handle(context.WithoutCancel(ctx), m)
		switch {
		case errors.Is(err, deploy.ErrInFlight):
			inFlight.Add(1) // the sweep publishes it again if nobody ends it
		case err != nil:
			surfaced.Add(1)
			t.Errorf("deployer: %v", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// race admits the deployments of many Workers, each Worker's in turn.
func race(t *testing.T, p *plane.Plane, b *bag, total int) {
	t.Helper()
	var tenants sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range total / perTenant {
		slots <- struct{}{}
		tenants.Go(func() {
			defer func() { <-slots }()
			one := *p
			one.Tenant = models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: p.Tenant.DepartmentID + "-" + strconv.Itoa(i)}
			tenant(t, &one, b)
		})
	}
	tenants.Wait()
}

// tenant deploys perTenant versions of one Worker, each as soon as the one
// before has ended.
func tenant(t *testing.T, p *plane.Plane, b *bag) {
	p.Provision(p.Tenant)
	first := p.Submit("one")
	desk, err := admission.New(admission.Params{
		DB: p.DB, Outbox: p.Outbox, Redis: p.Redis, Mirror: p.Mirror, Publisher: b, Stager: p.Live, Provider: func() error { return nil }, Log: p.Log,
	})
	if err != nil {
		t.Error(err)
		return
	}
	for n := int64(1); n <= perTenant; n++ {
		id := first.ID
		if n > 1 {
			id = clone(p, first, n)
		}
		view, err := desk.Deploy(t.Context(), admission.Request{Tenant: p.Tenant, Actor: p.Actor, VersionID: id, BaseRevision: n})
		if err != nil {
			t.Errorf("admit: %v", err)
			return
		}
		for !p.Row(view.TicketID).Status.Released() {
			pause(t.Context(), 20*time.Millisecond)
			if t.Context().Err() != nil {
				return
			}
		}
	}
}

// clone makes the next revision of the same evidence, without building again.
func clone(p *plane.Plane, v models.Version, revision int64) string {
	next := v
	next.ID, next.Revision, next.State = uuid.NewString(), revision, models.VersionReady
	if err := p.DB.Read(context.Background()).Create(&next).Error; err != nil {
		p.T.Error(err)
	}
	p.Exec("UPDATE edge_workers SET latest_revision = ? WHERE id = ?", revision, v.WorkerID)
	return next.ID
}

// settle waits until no deployment is live.
func settle(t *testing.T, p *plane.Plane, total int) {
	t.Helper()
	for {
		var live int64
		err := p.DB.Read(t.Context()).Model(&models.Outbox{}).Where("operation = 'deploy' AND status IN ('pending', 'leased')").Count(&live).Error
		if err != nil {
			t.Fatal(err)
		}
		if live == 0 {
			return
		}
		pause(t.Context(), 50*time.Millisecond)
	}
}

// check counts what the database and the provider saw.
func check(t *testing.T, p *plane.Plane, w *world, total int) {
	t.Helper()
	sql := p.DB.Read(t.Context())
	count := func(query string) int {
		var n int
		if err := sql.Raw(query).Scan(&n).Error; err != nil {
			t.Fatal(err)
		}
		return n
	}
	workers := total / perTenant
	for query, want := range map[string]int{
		"SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy' AND status = 'completed'":                                       total,
		"SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy' AND status <> 'completed'":                                      0,
		"SELECT COUNT(*) FROM edge_worker_audit_logs WHERE action = 'deployment.completed'":                                                 total,
		"SELECT COUNT(*) FROM edge_worker_audit_logs WHERE action IN ('deployment.failed', 'deployment.uncertain')":                         0,
		"SELECT COUNT(*) FROM edge_worker_versions WHERE state = 'deployed'":                                                                workers,
		"SELECT COUNT(*) FROM edge_worker_versions WHERE state = 'superseded'":                                                              total - workers,
		"SELECT COUNT(*) FROM edge_workers w JOIN edge_worker_versions v ON v.id = w.current_version_id AND v.revision = w.latest_revision": workers,
		"SELECT COALESCE(MAX(attempts), 0) FROM edge_worker_outbox WHERE operation = 'deploy'":                                              1,
	} {
		if got := count(query); got != want {
			t.Errorf("%s: %d, want %d", strings.TrimPrefix(query, "SELECT "), got, want)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for script, puts := range w.puts {
		if puts != perTenant {
			t.Errorf("%s was written %d times for %d deployments", script, puts, perTenant)
		}
	}
	if len(w.puts) != workers {
		t.Errorf("%d scripts were written, want %d", len(w.puts), workers)
	}
}
