package deploy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
)

// statements records what a database is asked.
type statements struct {
	mu  sync.Mutex
	all []string
}

func (s *statements) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sql)
}

// S1-080, D3: rows are locked in the order outbox → Worker → version and in no
// other. S3-50 to S3-52, S2-045: the cloud never asks the maintenance table,
// whatever it holds.
func TestLockOrderAndMaintenance(t *testing.T) {
	t.Parallel()
	log := &statements{}
	p := plane.New(t, databasetest.Open(t, database.Params{URL: databasetest.MySQLURL(t), Trace: log.add}))
	p.Exec("INSERT INTO edge_worker_maintenance (scope, state) VALUES ('onprem:000000000000', 'active')")
	v, ticketID, m := admitted(t, p, "one")
	log.mu.Lock()
	log.all = nil
	log.mu.Unlock()
	handle(t, p.Task(nil), m)
	checkLive(t, p, v.ID, ticketID)
	joins := 0
	for _, sql := range log.all {
		if strings.Contains(sql, "edge_worker_maintenance") {
			t.Errorf("the cloud asked %s", sql)
		}
		if !strings.Contains(sql, "FOR UPDATE") || strings.Contains(sql, "FROM `edge_worker_audit_logs`") {
			continue
		}
		joins++
		var plan []struct {
			Table string `gorm:"column:table"`
		}
		sql, _, _ = strings.Cut(sql, " AND o.status") // the row is settled by now
		if err := p.DB.Read(t.Context()).Raw("EXPLAIN " + sql).Scan(&plan).Error; err != nil {
			t.Fatal(err)
		}
		order := make([]string, len(plan))
		for i, step := range plan {
			order[i] = step.Table
		}
		if !slices.Equal(order, []string{"o", "w", "v"}) {
			t.Errorf("the database reads and locks %v:\n%s", order, sql)
		}
	}
	if joins != 4 { // lease, snapshot, fence and settlement lock all three each
		t.Errorf("%d locking statements of %d", joins, len(log.all))
	}
}

// S1-096, S2-150: fence and pause are one transaction: when the pause cannot
// be written the version is not fenced and nothing is uploaded.
func TestFenceIsOneTransaction(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	v, ticketID, m := admitted(t, p, "one")
	p.Exec(`CREATE TRIGGER no_pause BEFORE UPDATE ON edge_workers FOR EACH ROW
		BEGIN IF NEW.status = 'paused' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END`)
	err := p.Task(nil).Handle(context.Background(), m)
	if err != nil {
		t.Logf("the run: %v", err)
	}
	if p.Version(v.ID).State == models.VersionDeploying || p.Provider.Puts() != 0 {
		t.Errorf("version %s, %d uploads", p.Version(v.ID).State, p.Provider.Puts())
	}
	p.Exec("DROP TRIGGER no_pause")
	if got := p.Row(ticketID); got.Status != models.OutboxFailed || got.LastErrorCode != "deployment_internal_error" {
		t.Errorf("row %s %s", got.Status, got.LastErrorCode)
	}
}

// S1-112 to S1-114, S2-174, S2-189, S2-196 to S2-198: whichever way leads to
// the gate, a release that does not answer is not completed. The gate's
// deadline is tested apart; here the probe ends the run by taking its lease.
func TestSilentReleaseIsNeverCompleted(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		lost := &provider.UncertainError{Code: "cloudflare_upload_uncertain"}
		for name, way := range map[string]func(models.Version){
			"fresh upload":     func(models.Version) {},
			"ambiguous upload": func(models.Version) { p.Provider.After = func(provider.Release) error { return lost } },
			"reconcile": func(v models.Version) {
				release := provider.Release{ScriptName: p.Worker().ScriptName, CompatibilityDate: v.CompatibilityDate, BundleDigest: v.BundleDigest}
				if p.Provider.Upload(context.Background(), release) != nil {
					t.Fatal("apply")
				}
				p.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
			},
		} {
			v, ticketID, m := admitted(t, p, name)
			way(v)
			probes := len(p.Release.Probes())
			p.Release.OnProbe = func(string, string) error {
				p.Exec("UPDATE edge_worker_outbox SET lease_owner = 'thief:1' WHERE ticket_id = ?", ticketID)
				return plane.ErrSilent
			}
			if err := p.Task(nil).Handle(context.Background(), m); err == nil {
				t.Errorf("%s: acknowledged", name)
			}
			if got := p.Row(ticketID).Status; got != models.OutboxLeased || len(p.Release.Probes()) != probes+1 {
				t.Errorf("%s: row %s, %d probes", name, got, len(p.Release.Probes())-probes)
			}
			p.Provider.After, p.Release.OnProbe = nil, nil
			p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = created_at WHERE ticket_id = ?", ticketID)
			handle(t, p.Task(nil), m) // the control: it answers now
			checkLive(t, p, v.ID, ticketID)
		}
	})
}

// S2-185, S2-186, S2-262: while the release is probed the ticket reads
// deploying, the version is deploying and the Worker paused.
func TestTicketDuringReadiness(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v, ticketID, m := admitted(t, p, "one")
		seen := 0
		p.Release.OnProbe = func(string, string) error {
			seen++
			view, err := p.Mirror.View(context.Background(), p.DB, p.Tenant, ticketID)
			if err != nil || view.Status != ticket.Deploying || p.Version(v.ID).State != models.VersionDeploying || p.Worker().Status != models.WorkerPaused {
				t.Errorf("%+v %v, version %s, Worker %s", view, err, p.Version(v.ID).State, p.Worker().Status)
			}
			return nil
		}
		handle(t, p.Task(nil), m)
		view, err := p.Mirror.View(context.Background(), p.DB, p.Tenant, ticketID)
		if err != nil || view.Status != ticket.Completed || seen != 1 {
			t.Errorf("%+v %v, %d probes", view, err, seen)
		}
	})
}

// S3-30, S2-018, S3-59: after whole deployments no row is uploading, and no
// audit fact holds source or bundle.
func TestNothingUploadingAndNoSourceInFacts(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		const marker = "canary7c1f"
		v, _, m := admitted(t, p, marker)
		handle(t, p.Task(nil), m)
		var states []string
		err := p.DB.Read(context.Background()).Raw("SELECT DISTINCT state FROM edge_worker_versions").Scan(&states).Error
		if err != nil || !slices.Equal(states, []string{"deployed"}) {
			t.Errorf("states %v, %v", states, err)
		}
		if live := p.Provider.Live(); !strings.Contains(string(live.Bundle), marker) { // the control
			t.Fatal("the marker is not in the bundle")
		}
		facts := p.Facts()
		if len(facts) < 3 {
			t.Fatalf("%d facts", len(facts))
		}
		for _, f := range facts {
			for _, column := range []string{f.ID, f.ActorID, f.Action, f.ResourceID, f.ReasonCode, f.Digest, f.RequestID} {
				if strings.Contains(column, marker) || len(column) > 128 {
					t.Errorf("fact %+v", f)
				}
			}
		}
		if v.ID == "" {
			t.Fatal("no version")
		}
	})
}

// S2-147, S2-182: a process that lost its lease between fence and upload, as
// one that was frozen there, writes nothing to the provider.
func TestLeaseLostBeforeTheUpload(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		_, ticketID, m := admitted(t, p, "one")
		task := p.Task(func(d *deploy.Params) {
			d.Trace = func(stage string) {
				if stage == "upload" {
					p.Exec("UPDATE edge_worker_outbox SET lease_owner = 'thief:1' WHERE ticket_id = ?", ticketID)
				}
			}
		})
		err := task.Handle(context.Background(), m)
		if !errors.Is(err, deploy.ErrInFlight) || p.Provider.Puts() != 0 || p.Row(ticketID).LeaseOwner != "thief:1" {
			t.Errorf("%v, %d uploads, owner %s", err, p.Provider.Puts(), p.Row(ticketID).LeaseOwner)
		}
	})
}
