package model

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// meter reads the counters of a MariaDB that nobody else uses.
type meter struct {
	*plane.Plane
	t *testing.T
}

func newMeter(t *testing.T) *meter {
	t.Helper()
	dir, err := os.MkdirTemp("", "ew-costs-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, dsn, err := daemon.MariaDB(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Kill(); <-server.Done() })
	t.Setenv("EDGE_TEST_MYSQL_DSN", dsn)
	m := &meter{plane.New(t, databasetest.MySQL(t)), t}
	one := m.tenant()
	m.deploy(one) // the connections are there and the statements known
	return m
}

// tenant is the plane of a new department.
func (m *meter) tenant() *plane.Plane {
	m.t.Helper()
	one := *m.Plane
	one.Tenant = models.Tenant{CompanyID: m.Tenant.CompanyID, DepartmentID: "dept-" + uuid.NewString()}
	one.Provision(one.Tenant)
	return &one
}

// admit submits and admits, without the reads with which a plane helps itself.
func (m *meter) admit(p *plane.Plane) {
	m.t.Helper()
	v := p.Submit("one")
	m.must(m.accept(p, v))
}

func (m *meter) accept(p *plane.Plane, v models.Version) error {
	_, err := p.Desk.Deploy(context.Background(), admission.Request{Tenant: p.Tenant, Actor: p.Actor, VersionID: v.ID, BaseRevision: 1})
	return err
}

func (m *meter) deploy(p *plane.Plane) {
	m.t.Helper()
	m.admit(p)
	m.handle(p)
}

// handle delivers the last message.
func (m *meter) handle(p *plane.Plane) {
	m.t.Helper()
	messages := p.Published.Messages()
	m.must(p.Task(nil).Handle(context.Background(), messages[len(messages)-1]))
}

func (m *meter) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *meter) read() cost {
	m.t.Helper()
	var rows []struct {
		Name  string `gorm:"column:Variable_name"`
		Value int    `gorm:"column:Value"`
	}
	m.must(m.DB.Read(context.Background()).Raw("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit')").Scan(&rows).Error)
	var c cost
	for _, r := range rows {
		if r.Name == "Questions" {
			c.statements = r.Value
		} else {
			c.commits = r.Value
		}
	}
	return c
}

// of is what do costs, without the reading itself.
func (m *meter) of(do func()) cost {
	m.t.Helper()
	before := m.read()
	do()
	after := m.read()
	return cost{after.statements - before.statements - 1, after.commits - before.commits}
}

// The database's share of each step is what the simulation reckons with, as a
// real server counts it: exactly for commits, which are what a disk bears, and
// within a quarter for statements and bytes.
func TestCosts(t *testing.T) {
	m := newMeter(t)
	one := m.tenant()
	var version models.Version
	m.check("submission", costSubmission, func() { version = one.Submit("one") })
	m.check("admission", costAdmission, func() { m.must(m.accept(one, version)) })
	m.check("deployment", costDeployment, func() { m.handle(one) })
	m.check("delivery of an ended row", costEnded, func() { m.handle(one) })
	row := one.Published.Messages()
	ticket, err := one.Mirror.View(t.Context(), m.DB, one.Tenant, m.ticketOf(one))
	if err != nil || ticket.Status != "completed" || len(row) < 2 {
		t.Fatalf("the deployment did not complete: %+v, %v", ticket, err)
	}
	m.check("poll", costPoll, func() {
		_, err := one.Mirror.View(t.Context(), m.DB, one.Tenant, ticket.TicketID)
		m.must(err)
	})
	standard := outbox.RecoveryClaim{Grace: outbox.RecoveryGrace, Cooldown: outbox.RecoveryCooldown, Limit: outbox.RecoveryBatch}
	m.check("claim without rows", costClaim, func() {
		_, err := m.Outbox.ClaimRecoverable(t.Context(), standard)
		m.must(err)
	})
	m.redis(one, ticket.TicketID)
	m.sweep(10)
	m.rows()
}

func (m *meter) ticketOf(p *plane.Plane) string {
	m.t.Helper()
	var id string
	m.must(p.Tenant.Own(m.DB.Read(context.Background())).Model(&models.Outbox{}).Where("operation = ?", models.OperationDeploy).Select("ticket_id").Scan(&id).Error)
	return id
}

// redis measures what a deployment leaves in Redis.
func (m *meter) redis(p *plane.Plane, ticketID string) {
	m.t.Helper()
	messages, sum := p.Published.Messages(), int64(0)
	for _, key := range []string{"edge-workers:ticket:" + ticketID, "edge-workers:delivery:" + messages[len(messages)-1].Args[0]} {
		n, err := p.Redis.MemoryUsage(context.Background(), key).Result()
		m.must(err)
		m.t.Logf("%s: %d bytes", key[:len(key)-36], n)
		sum += n
	}
	if math.Abs(float64(sum-RedisBytes)) > 0.25*RedisBytes {
		m.t.Errorf("%d bytes in Redis, the simulation reckons with %d", sum, RedisBytes)
	}
}

// sweep measures a round over n stalled rows, then a delivery of a row that
// another owner holds, and a heartbeat.
func (m *meter) sweep(n int) {
	m.t.Helper()
	for range n {
		m.admit(m.tenant())
	}
	lane := reconcile.NewRepublisher(reconcile.RepublishParams{
		Outbox: m.Outbox, Mirror: m.Mirror, Publisher: m.Published, Log: m.Log,
		Claim: &outbox.RecoveryClaim{Grace: 0, Cooldown: 300 * time.Second, Limit: outbox.RecoveryBatch},
	})
	published := len(m.Published.Messages())
	m.check("round", costClaim.plus(costStamp.plus(costRepublish).times(n)), func() {
		result, err := lane.RunOnce(context.Background(), time.Minute)
		m.must(err)
		if result["published"] != n || len(m.Published.Messages()) != published+n {
			m.t.Fatalf("%v, %d messages", result, len(m.Published.Messages()))
		}
	})
	last := m.Published.Messages()[published]
	request := outbox.LeaseRequest{
		OutboxID: last.Args[0], Tenant: models.Tenant{CompanyID: last.Args[1], DepartmentID: last.Args[2]}, MessageID: last.Args[3], Owner: "meter",
	}
	m.Exec("UPDATE edge_worker_outbox SET next_attempt_at = NULL WHERE id = ?", request.OutboxID)
	taken, disposition, err := m.Outbox.LeaseDeployment(context.Background(), request)
	m.must(err)
	if disposition != outbox.Acquired {
		m.t.Fatal(disposition)
	}
	m.check("delivery of a held row", costHeld, func() {
		err := m.Task(nil).Handle(context.Background(), last)
		if !errors.Is(err, deploy.ErrInFlight) {
			m.t.Fatal(err)
		}
	})
	m.check("heartbeat", costHeartbeat, func() { m.must(m.Outbox.Renew(context.Background(), taken)) })
}

func (m *meter) check(what string, want cost, do func()) {
	m.t.Helper()
	got := m.of(do)
	m.t.Logf("%s: %d statements, %d commits", what, got.statements, got.commits)
	if math.Abs(float64(got.statements-want.statements)) > max(1, 0.25*float64(want.statements)) || got.commits != want.commits {
		m.t.Errorf("%s: %+v, the simulation reckons with %+v", what, got, want)
	}
}

// copies are enough rows for the pages to be as full as in a large table.
const copies = 20_000

// rows measures the room that a row of the outbox takes, indexes included. The
// rows are copies of real ones under new ids.
func (m *meter) rows() {
	m.t.Helper()
	for _, c := range []struct {
		operation models.Operation
		want      int
	}{{models.OperationDeploy, DeployRowBytes}, {models.OperationArtifactCleanup, CleanupRowBytes}} {
		got := m.bytesOf(c.operation)
		m.t.Logf("%s: %d bytes", c.operation, got)
		if math.Abs(float64(got-c.want)) > 0.25*float64(c.want) {
			m.t.Errorf("%s: %d bytes a row, the simulation reckons with %d", c.operation, got, c.want)
		}
	}
}

func (m *meter) bytesOf(operation models.Operation) int {
	m.t.Helper()
	m.Exec("DROP TABLE IF EXISTS copies")
	m.Exec("CREATE TABLE copies LIKE edge_worker_outbox")
	var columns []string
	m.must(m.DB.Read(context.Background()).Raw(`SELECT column_name FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = 'copies' AND generation_expression IS NULL ORDER BY ordinal_position`).Scan(&columns).Error)
	values := slices.Clone(columns)
	for i, name := range columns {
		switch name {
		case "id", "ticket_id", "worker_id", "version_id":
			values[i] = "UUID()"
		case "dedupe_key": // as long as it was
			values[i] = "CONCAT(UUID(), SUBSTR(dedupe_key, 37))"
		}
	}
	m.Exec("INSERT INTO copies (" + strings.Join(columns, ", ") + ") SELECT " + strings.Join(values, ", ") +
		" FROM (SELECT * FROM edge_worker_outbox WHERE operation = '" + string(operation) + "' LIMIT 1) one, seq_1_to_" + strconv.Itoa(copies))
	if n := m.Count("copies"); n != copies {
		m.t.Fatalf("%d copies of a %s row", n, operation)
	}
	m.Exec("ANALYZE TABLE copies")
	var bytes int
	m.must(m.DB.Read(context.Background()).Raw("SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'copies'").
		Scan(&bytes).Error)
	return bytes / copies
}
