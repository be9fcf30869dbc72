package stress

import (
	"context"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/inprocess"
)

const benchDeployers = 8

// BenchmarkThroughput deploys with eight deployers and a provider that answers
// at once, on the machine's own disk and on disks whose syncs take longer by the
// given time. "efficiency" is deployments per second over what the same disk and
// database allow in the same run: durable commits per second at eight
// connections, divided by the durable commits of one deployment.
//
// It says how much of a disk the deployments can use, so it means something where
// the disk is what is waited for. On one whose sync costs no more than a few
// statements it compares the processor's work for a commit with that for a
// deployment.
func BenchmarkThroughput(b *testing.B) {
	for _, wait := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 7 * time.Millisecond} {
		b.Run("sync+"+wait.String(), func(b *testing.B) { throughput(b, wait) })
	}
}

func throughput(b *testing.B, wait time.Duration) {
	if _, err := exec.LookPath("strace"); err != nil && wait > 0 {
		b.Skip("install strace, which holds the syncs back")
	}
	db := plane.Durable(b, wait)
	p := plane.New(b, db)
	p.Exec("SET GLOBAL innodb_monitor_enable = '" + durableCommits + "'")
	w := &world{live: map[string]string{}, puts: map[string]int{}}
	var efficiencies, rates, commits []float64
	for b.Loop() {
		perSecond := commitRate(b, p)
		messages := preload(b, p, 240)
		before := commitsSoFar(b, db)
		began := time.Now()
		drain(b, p, w, messages)
		took := time.Since(began).Seconds()
		perDeployment := float64(commitsSoFar(b, db)-before) / float64(len(messages))
		rate := float64(len(messages)) / took
		rates, commits = append(rates, rate), append(commits, perSecond)
		efficiencies = append(efficiencies, rate/(perSecond/perDeployment))
		b.ReportMetric(perDeployment, "commits/deployment")
	}
	b.ReportMetric(mean(efficiencies), "efficiency")
	b.ReportMetric(mean(rates), "deployments/s")
	b.ReportMetric(mean(commits), "commits/s")
	b.ReportMetric(0, "ns/op")
}

func mean(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total / float64(len(values))
}

// commitRate is how many one-row updates per second eight connections commit.
func commitRate(b *testing.B, p *plane.Plane) float64 {
	b.Helper()
	const rounds = 100
	began := time.Now()
	var group sync.WaitGroup
	for i := range benchDeployers {
		scope := "onprem:bench-" + strconv.Itoa(i) + uuid.NewString()[:8]
		p.Exec("INSERT INTO edge_worker_maintenance (scope) VALUES (?)", scope)
		group.Go(func() {
			for n := range rounds {
				err := p.DB.Tx(context.Background(), func(tx *database.Tx) error {
					return tx.Exec("UPDATE edge_worker_maintenance SET resync_epoch = ? WHERE scope = ?", n+1, scope).Error
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	return benchDeployers * rounds / time.Since(began).Seconds()
}

// durableCommits counts the transactions that changed something: only those
// wait for the disk.
const durableCommits = "trx_commits_insert_update"

func commitsSoFar(b *testing.B, db *database.DB) int64 {
	b.Helper()
	var count int64
	err := db.Read(b.Context()).Raw("SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE name = ?", durableCommits).
		Scan(&count).Error
	if err != nil || count == 0 {
		b.Fatal(count, err)
	}
	return count
}

// preload admits n deployments of as many Workers and keeps their messages.
func preload(b *testing.B, p *plane.Plane, n int) []transports.Message {
	b.Helper()
	published := &plane.Published{}
	desk, err := admission.New(admission.Params{
		DB: p.DB, Outbox: p.Outbox, Redis: p.Redis, Mirror: p.Mirror, Publisher: published, Stager: p.Live, Provider: func() error { return nil }, Log: p.Log,
	})
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		one := *p
		one.Tenant = models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "bench-" + uuid.NewString()}
		one.Provision(one.Tenant)
		v := one.Submit("one")
		_, err := desk.Deploy(b.Context(), admission.Request{Tenant: one.Tenant, Actor: p.Actor, VersionID: v.ID, BaseRevision: 1})
		if err != nil {
			b.Fatal(err)
		}
	}
	return published.Messages()
}

// drain runs the messages with eight deployers.
func drain(b *testing.B, p *plane.Plane, w *world, messages []transports.Message) {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range benchDeployers {
		task := p.Task(func(d *deploy.Params) { d.Provider = func() (provider.Provider, error) { return w, nil } })
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(messages)) {
					return
				}
				err := task.Handle(context.Background(), messages[i])
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkTakeover measures, on the real clock, how long a deployment stands
// still whose deployer was killed right after it took the lease: until the
// lease has ended and the next round of the 60-second loop has published it.
// Once is enough, and takes minutes.
func BenchmarkTakeover(b *testing.B) {
	p := plane.New(b, databasetest.MySQL(b))
	w := &world{live: map[string]string{}, puts: map[string]int{}}
	task := p.Task(func(d *deploy.Params) { d.Provider = func() (provider.Provider, error) { return w, nil } })
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	runner := &reconcile.Runner{Provider: func() error { return nil }, Log: p.Log, Lanes: []reconcile.Lane{
		reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: p.Outbox, Mirror: p.Mirror, Publisher: inprocess.Inline{Handler: task.Handle}, Log: p.Log}),
	}}
	go runner.Run(ctx)
	v := p.Submit("one")
	view := p.Admit(v)
	m := p.Published.Messages()[0]
	b.ResetTimer()
	_, disposition, err := p.Outbox.LeaseDeployment(ctx, outbox.LeaseRequest{
		OutboxID: m.Args[0], Tenant: p.Tenant, MessageID: m.Args[3], Owner: "killed", // and no heartbeat follows
	})
	if err != nil || disposition != outbox.Acquired {
		b.Fatalf("%s, %v", disposition, err)
	}
	began := time.Now()
	for p.Row(view.TicketID).Status != models.OutboxCompleted {
		if time.Since(began) > 3*time.Minute {
			b.Fatal("nobody took the deployment over")
		}
		pause(ctx, 100*time.Millisecond)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/takeover")
	b.ReportMetric((outbox.LeaseTTL + time.Minute).Seconds(), "s/bound")
	b.ReportMetric(0, "ns/op")
}
