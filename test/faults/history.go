package faults

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/pkg/database"
)

// Change is one change of a row, written by the database itself in the
// transaction that made it.
type Change struct {
	ID           int64
	Kind         string // deploy, artifact_cleanup, version, worker, audit
	RowID        string
	Was, Became  string // status or state; of a fact its action
	OwnerWas     string
	Owner        string
	AttemptsWas  int
	Attempts     int
	MarkWas      *time.Time // next_attempt_at
	Mark         *time.Time
	VersionState string // of the deployment's version at that moment
}

// The changes that the harness makes to move time are left out: it says so in
// the session.
const (
	historyTable = `CREATE TABLE fault_history (
	id BIGINT AUTO_INCREMENT PRIMARY KEY, company_id VARCHAR(64) NOT NULL, kind VARCHAR(32) NOT NULL, row_id VARCHAR(64) NOT NULL,
	was VARCHAR(128) NOT NULL DEFAULT '', became VARCHAR(128) NOT NULL DEFAULT '', owner_was VARCHAR(128) NOT NULL DEFAULT '',
	owner VARCHAR(128) NOT NULL DEFAULT '', attempts_was INT NOT NULL DEFAULT 0, attempts INT NOT NULL DEFAULT 0,
	mark_was DATETIME(6) NULL, mark DATETIME(6) NULL, version_state VARCHAR(16) NOT NULL DEFAULT '', KEY (company_id, id)
	) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`
	outboxTrigger = `CREATE TRIGGER fault_outbox_%[1]s AFTER %[1]s ON edge_worker_outbox FOR EACH ROW
	INSERT INTO fault_history (company_id, kind, row_id, was, became, owner_was, owner, attempts_was, attempts, mark_was, mark, version_state)
	SELECT NEW.company_id, NEW.operation, NEW.id, %[2]s, NEW.status, %[3]s, NEW.lease_owner, %[4]s, NEW.attempts, %[5]s, NEW.next_attempt_at,
	COALESCE((SELECT state FROM edge_worker_versions v WHERE v.id = NEW.version_id), '') FROM DUAL WHERE @fault_clock IS NULL`
	rowTrigger = `CREATE TRIGGER fault_%[1]s_%[2]s AFTER %[2]s ON %[3]s FOR EACH ROW
	INSERT INTO fault_history (company_id, kind, row_id, was, became) SELECT NEW.company_id, '%[1]s', NEW.id, %[4]s, NEW.%[5]s FROM DUAL`
)

// RecordHistory makes the database write down every change from now on.
func RecordHistory(ctx context.Context, db *database.DB) error {
	for _, statement := range []string{
		historyTable,
		fmt.Sprintf(outboxTrigger, "INSERT", "''", "''", "0", "NULL"),
		fmt.Sprintf(outboxTrigger, "UPDATE", "OLD.status", "OLD.lease_owner", "OLD.attempts", "OLD.next_attempt_at"),
		fmt.Sprintf(rowTrigger, "version", "INSERT", "edge_worker_versions", "''", "state"),
		fmt.Sprintf(rowTrigger, "version", "UPDATE", "edge_worker_versions", "OLD.state", "state"),
		fmt.Sprintf(rowTrigger, "worker", "UPDATE", "edge_workers", "OLD.status", "status"),
		fmt.Sprintf(rowTrigger, "audit", "INSERT", "edge_worker_audit_logs", "''", "action"),
	} {
		err := db.Read(ctx).Exec(statement).Error
		if err != nil {
			return fmt.Errorf("record the rows' history: %w", err)
		}
	}
	return nil
}

// history reads a company's changes, oldest first.
func history(ctx context.Context, db *database.DB, company string) ([]Change, error) {
	var changes []Change
	err := db.Read(ctx).Table("fault_history").Where("company_id = ?", company).Order("id").Find(&changes).Error
	if err != nil {
		return nil, fmt.Errorf("read the rows' history: %w", err)
	}
	return changes, nil
}

// passTime lets a company's leases, marks and grace periods end: it moves what
// the database holds and not the clock, and leaves no history. The tenant's
// keys in Redis, whose lives are shorter than that, are the caller's.
func passTime(ctx context.Context, db *database.DB, company string) error {
	err := db.Tx(ctx, func(tx *database.Tx) error {
		for _, statement := range []string{
			"SET @fault_clock = 1",
			`UPDATE edge_worker_outbox SET updated_at = NOW(6) - INTERVAL 301 SECOND,
			lease_expires_at = CASE WHEN lease_expires_at IS NULL THEN NULL ELSE NOW(6) - INTERVAL 1 SECOND END,
			next_attempt_at = CASE WHEN next_attempt_at IS NULL THEN NULL ELSE FROM_UNIXTIME(FLOOR(UNIX_TIMESTAMP()) - 1) END
			WHERE operation = 'deploy' AND status IN ('pending', 'leased') AND company_id = ` + quoted(company),
			`UPDATE edge_worker_outbox SET created_at = created_at - INTERVAL 901 SECOND, updated_at = NOW(6) - INTERVAL 301 SECOND,
			lease_expires_at = CASE WHEN lease_expires_at IS NULL THEN NULL ELSE NOW(6) - INTERVAL 1 SECOND END,
			next_attempt_at = CASE WHEN next_attempt_at IS NULL THEN NULL ELSE FROM_UNIXTIME(FLOOR(UNIX_TIMESTAMP()) - 1) END
			WHERE operation = 'artifact_cleanup' AND status IN ('pending', 'leased') AND company_id = ` + quoted(company),
			"SET @fault_clock = NULL",
		} {
			err := tx.Session(&gorm.Session{}).Exec(statement).Error
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("let time pass: %w", err)
	}
	return nil
}

// quoted is a company's id as a literal; the harness makes the ids of letters,
// digits and dashes.
func quoted(company string) string { return "'" + company + "'" }
