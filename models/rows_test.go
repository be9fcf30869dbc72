package models_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
)

func seedTenant(t *testing.T, db *gorm.DB, company, department string) {
	t.Helper()
	mustExec(t, db, "INSERT INTO companies (id) VALUES (?)", company)
	mustExec(t, db, "INSERT INTO departments (id, company_id) VALUES (?, ?)", department, company)
}

func seedWorker(t *testing.T, db *gorm.DB, id, company, department string) {
	t.Helper()
	seedTenant(t, db, company, department)
	mustExec(t, db, "INSERT INTO edge_workers (id, company_id, department_id, script_name) VALUES (?, ?, ?, ?)",
		id, company, department, models.ScriptName(company, department))
}

func mustExec(t *testing.T, db *gorm.DB, sql string, args ...any) {
	t.Helper()
	err := db.Exec(sql, args...).Error
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// S3-17, S3-27, S3-28, S3-45, S3-46, S3-53, S3-81, S2-263: each permitted value is
// accepted by the database and every other refused.
func TestChecks(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, insert string
		good, bad    []string
	}{
		{"ck_edge_worker_status", "UPDATE edge_workers SET status = ?", []string{"draft", "active", "paused"}, []string{"", "ACTIVE", "deleted"}},
		{"ck_edge_worker_version_language", "UPDATE edge_worker_versions SET language = ?", []string{"javascript", "typescript"}, []string{"", "python"}},
		{"ck_edge_worker_version_state", "UPDATE edge_worker_versions SET state = ?",
			[]string{"uploading", "ready", "deploy_pending", "deploying", "deployed", "superseded", "failed", "uncertain"}, []string{"", "READY", "cancelled"}},
		{"ck_edge_worker_outbox_operation", "UPDATE edge_worker_outbox SET operation = ?", []string{"deploy", "delete", "artifact_cleanup", "control_audit"}, []string{"", "retire"}},
		{"ck_edge_worker_outbox_status", "UPDATE edge_worker_outbox SET status = ?",
			[]string{"pending", "leased", "completed", "failed", "cancelled", "uncertain"}, []string{"", "submitting", "deploying"}},
		{"ck_edge_worker_maintenance_state", "UPDATE edge_worker_maintenance SET state = ?", []string{"idle", "active"}, []string{"", "fenced"}},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sql := db.Read(context.Background())
		seedWorker(t, sql, "w1", "c1", "d1")
		mustExec(t, sql, "INSERT INTO edge_worker_versions (id, worker_id) VALUES ('v1', 'w1')")
		mustExec(t, sql, "INSERT INTO edge_worker_outbox (id) VALUES ('o1')")
		mustExec(t, sql, "INSERT INTO edge_worker_maintenance (scope) VALUES ('onprem:000000000000')")
		for _, c := range cases {
			for _, v := range c.good {
				mustExec(t, sql, c.insert, v)
			}
			for _, v := range c.bad {
				err := sql.Exec(c.insert, v).Error
				if !database.IsCheckViolation(err) {
					t.Errorf("%s accepted %q (%v)", c.name, v, err)
				}
			}
		}
	})
}

// S3-06, S3-29, S3-09: an older writer that omits every column but the keys
// gets the defaults; state is the fail-closed sentinel. S3-68.
func TestOlderWriterInsert(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sql := db.Read(context.Background())
		seedWorker(t, sql, "w1", "c1", "d1")
		mustExec(t, sql, "INSERT INTO edge_worker_versions (id, worker_id) VALUES ('v1', 'w1')")
		mustExec(t, sql, "INSERT INTO edge_worker_audit_logs (id) VALUES ('a1')")
		var v models.Version
		err := sql.First(&v, "id = ?", "v1").Error
		if err != nil {
			t.Fatal(err)
		}
		if v.State != models.VersionUploading || v.SBOM != nil || v.BuildReceipt != nil || v.ErrorMessage != nil || v.ErrorCode != "" {
			t.Errorf("defaults: %+v", v)
		}
		if v.CreatedAt.IsZero() {
			t.Error("created_at has no default")
		}
		err = sql.Exec("UPDATE edge_worker_versions SET error_code = NULL").Error
		if err == nil {
			t.Error("NULL was accepted where the sentinel is the empty string")
		}
		forgot := models.Version{ID: "v2", WorkerID: "w1", Revision: 2, Language: "javascript"}
		err = sql.Create(&forgot).Error // S3-32
		if err != nil {
			t.Fatal(err)
		}
		var second models.Version
		err = sql.First(&second, "id = ?", "v2").Error
		if err != nil || second.State != models.VersionUploading {
			t.Errorf("state %q, %v", second.State, err)
		}
	})
}

// S3-35 to S3-41, S2-076 to S2-078: the generated column holds the Worker of a
// live deployment for exactly three statuses, and its unique index refuses a
// second live row even to raw SQL.
func TestActiveDeployment(t *testing.T) {
	t.Parallel()
	statuses := []models.OutboxStatus{models.OutboxPending, models.OutboxLeased, models.OutboxCompleted, models.OutboxFailed, models.OutboxCancelled, models.OutboxUncertain}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sql := db.Read(context.Background())
		n := 0
		insert := func(worker string, op models.Operation, status models.OutboxStatus) error {
			n++
			id := fmt.Sprint("o", n)
			return sql.Exec("INSERT INTO edge_worker_outbox (id, ticket_id, dedupe_key, worker_id, operation, status) VALUES (?, ?, ?, ?, ?, ?)",
				id, id, id, worker, op, status).Error
		}
		for _, op := range []models.Operation{models.OperationDeploy, models.OperationArtifactCleanup, models.OperationControlAudit} {
			for _, status := range statuses {
				worker := fmt.Sprintf("%s-%s", op, status)
				if err := insert(worker, op, status); err != nil {
					t.Fatal(err)
				}
				var row models.Outbox
				if err := sql.First(&row, "worker_id = ?", worker).Error; err != nil {
					t.Fatal(err)
				}
				live := op == models.OperationDeploy && !status.Released()
				if live != (row.ActiveDeploymentWorkerID != nil && *row.ActiveDeploymentWorkerID == worker) {
					t.Errorf("%s %s: active = %v", op, status, row.ActiveDeploymentWorkerID)
				}
				if err := insert(worker, op, status); live != database.IsDuplicate(err) {
					t.Errorf("%s %s: second insert: %v", op, status, err)
				}
			}
		}
		mustExec(t, sql, "UPDATE edge_worker_outbox SET status = 'completed' WHERE worker_id = 'deploy-uncertain'")
		if err := insert("deploy-uncertain", models.OperationDeploy, models.OutboxPending); err != nil {
			t.Errorf("after settlement: %v", err) // S3-40: beside the settled rows
		}
		if err := sql.Exec("UPDATE edge_worker_outbox SET active_deployment_worker_id = 'x'").Error; err == nil {
			t.Error("the generated column was written")
		}
		row := models.Outbox{ID: "z", TicketID: "z", DedupeKey: "z", WorkerID: "wz", Operation: models.OperationDeploy, Status: models.OutboxPending}
		if err := sql.Create(&row).Error; err != nil {
			t.Errorf("gorm insert: %v", err)
		}
		err := sql.Exec("INSERT INTO edge_worker_outbox (id, ticket_id, dedupe_key, operation) VALUES ('y', 'y', 'z', 'deploy')").Error
		if !database.IsDuplicate(err) {
			t.Errorf("same dedupe key: %v", err)
		}
		err = sql.Exec("INSERT INTO edge_worker_outbox (id, ticket_id, dedupe_key, operation) VALUES ('y', 'y', 'z', 'control_audit')").Error
		if err != nil {
			t.Errorf("same dedupe key under another operation: %v", err)
		}
	})
}

// S3-75 to S3-78, S3-73: a company's hard delete takes its departments,
// Workers and revisions; outbox and audit rows and other companies stay.
func TestHardDeleteCascade(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sql := db.Read(context.Background())
		for _, n := range []string{"1", "2"} {
			seedWorker(t, sql, "w"+n, "c"+n, "d"+n)
			mustExec(t, sql, "INSERT INTO edge_worker_versions (id, worker_id) VALUES (?, ?)", "v"+n, "w"+n)
			mustExec(t, sql, "INSERT INTO edge_worker_outbox (id, ticket_id, dedupe_key, worker_id) VALUES (?, ?, ?, ?)", "o"+n, "o"+n, "o"+n, "w"+n)
			mustExec(t, sql, "INSERT INTO edge_worker_audit_logs (id) VALUES (?)", "a"+n)
		}
		mustExec(t, sql, "DELETE FROM companies WHERE id = 'c1'")
		want := map[string]int64{"companies": 1, "departments": 1, "edge_workers": 1, "edge_worker_versions": 1, "edge_worker_outbox": 2, "edge_worker_audit_logs": 2}
		for table, rows := range want {
			var got int64
			if err := sql.Table(table).Count(&got).Error; err != nil || got != rows {
				t.Errorf("%s has %d rows, want %d (%v)", table, got, rows, err)
			}
		}
	})
}

// S3-18 to S3-21: golden script name, boundary, opacity.
func TestScriptName(t *testing.T) {
	t.Parallel()
	got := models.ScriptName("acme", "sales")
	if len(got) != 51 || !models.IsScriptName(got) {
		t.Errorf("form: %q", got)
	}
	const golden = "dw-52473c071373573354081d382e70c4569c975797e01245dd"
	if got != golden {
		t.Errorf("script name %q, want %q", got, golden)
	}
	if models.ScriptName("a", "bc") == models.ScriptName("ab", "c") {
		t.Error("a moved boundary gives the same name")
	}
	if strings.Contains(got, "acme") || strings.Contains(got, "sales") {
		t.Error("an id leaks")
	}
	for _, bad := range []string{got[:50], got + "0", strings.ToUpper(got), "xx-" + got[3:], got + "\n"} {
		if models.IsScriptName(bad) {
			t.Errorf("%q was accepted", bad)
		}
	}
}
