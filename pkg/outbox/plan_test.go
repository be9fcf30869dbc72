package outbox_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// planRows are the numbers of terminal rows at which a claim must cost the
// same. EDGE_TEST_PLAN_ROWS replaces them; `make test-plans` asks for a million.
func planRows(t *testing.T) []int {
	t.Helper()
	text := os.Getenv("EDGE_TEST_PLAN_ROWS")
	if text == "" {
		return []int{0, 10_000}
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("EDGE_TEST_PLAN_ROWS: %v", err)
	}
	return []int{n}
}

// D3, S1-009, S1-010, S2-240, S2-241, S3-42: whatever lies in the table, a
// claim of a batch reads at most batch + 2 rows and locks at most 2 × batch + 8,
// a second claimer gets a full batch, and an INSERT does not wait for an open
// claim. The counts are the server's own and the same on every machine.
func TestClaimPlan(t *testing.T) {
	for _, n := range planRows(t) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			db := databasetest.MySQL(t)
			sql := db.Read(t.Context())
			fill(t, db, n, "completed", "t")
			fill(t, db, 200, "pending", "p")
			must(t, sql.Exec("ANALYZE TABLE edge_worker_outbox").Error)
			o := outbox.New(db, outbox.CloudScope(plane.Namespace))
			must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
				scannedBefore, keysBefore := reads(t, tx)
				rows, err := o.ClaimRecoverableIn(tx, standard)
				must(t, err)
				scanned, keys := reads(t, tx)
				scanned, keys = scanned-scannedBefore, keys-keysBefore
				locked := locks(t, tx)
				t.Logf("%d terminal rows: claimed %d, scanned %d, looked up %d, locked %d", n, len(rows), scanned, keys, locked)
				// The scan begins with one look-up; each row is then stamped by its key.
				const batch = outbox.RecoveryBatch
				if len(rows) != batch || scanned > batch+2 || keys > batch+2 || locked > 2*batch+8 {
					t.Errorf("claimed %d, scanned %d rows, looked up %d, locked %d", len(rows), scanned, keys, locked)
				}
				second, err := o.ClaimRecoverable(context.Background(), standard)
				must(t, err)
				if len(second) != outbox.RecoveryBatch || overlap(rows, second) {
					t.Errorf("the second claimer got %d rows", len(second))
				}
				fill(t, db, 1, "pending", "new") // would wait for the lock time-out
				return nil
			}))
		})
	}
}

// fill inserts n deploy rows of a status that were last touched long ago.
func fill(t *testing.T, db *database.DB, n int, status, prefix string) {
	t.Helper()
	if n == 0 {
		return
	}
	must(t, db.Read(t.Context()).Exec(`INSERT INTO edge_worker_outbox
		(id, operation, dedupe_key, ticket_id, status, company_id, department_id, worker_id, version_id, dispatch_namespace, created_at, updated_at)
		SELECT CONCAT(?, seq), 'deploy', CONCAT(?, seq), CONCAT(?, seq), ?, 'c', 'd', CONCAT(?, seq), 'v', ?, '2026-01-01', '2026-01-01'
		FROM seq_1_to_`+strconv.Itoa(n), prefix, prefix, prefix, status, prefix, plane.Namespace).Error)
}

// reads is how many rows and index entries the session has read so far: by
// scanning on, and by looking up a key.
func reads(t *testing.T, tx *database.Tx) (int, int) {
	t.Helper()
	var rows []struct {
		Name  string `gorm:"column:Variable_name"`
		Value int    `gorm:"column:Value"`
	}
	must(t, tx.Raw("SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'").Scan(&rows).Error)
	scanned, keys := 0, 0
	for _, r := range rows {
		if r.Name == "Handler_read_key" {
			keys += r.Value
		} else {
			scanned += r.Value
		}
	}
	return scanned, keys
}

func locks(t *testing.T, tx *database.Tx) int {
	t.Helper()
	var n int
	must(t, tx.Raw("SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()").Scan(&n).Error)
	return n
}

func overlap(a, b []models.Outbox) bool {
	seen := map[string]bool{}
	for _, row := range a {
		seen[row.ID] = true
	}
	for _, row := range b {
		if seen[row.ID] {
			return true
		}
	}
	return false
}
