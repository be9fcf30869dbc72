package outbox_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// D3, S1-009, S1-226, S1-227, S1-325, S3-42: the two claims of control rows read
// and lock in proportion to their batch, however many ended rows lie in the
// table, of deployments and of commands; a second claimer gets a full batch, and
// an INSERT does not wait for an open claim.
func TestControlClaimPlan(t *testing.T) {
	for _, n := range planRows(t) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			db := databasetest.MySQL(t)
			fill(t, db, n, "completed", "t")
			fillControl(t, db, n, "completed", "NULL", "e")
			fillControl(t, db, n, "completed", "NOW(6) + INTERVAL 1 HOUR", "w")
			fillControl(t, db, 200, "pending", "'2026-01-01'", "p")
			fillControl(t, db, 200, "completed", "'2026-01-01'", "a")
			must(t, db.Read(t.Context()).Exec("ANALYZE TABLE edge_worker_outbox").Error)
			o := outbox.New(db, outbox.CloudScope(plane.Namespace))
			claims := []struct {
				name  string
				claim func(tx *database.Tx) ([]string, error)
				again func() ([]string, error)
			}{
				{"receipts to ask for", func(tx *database.Tx) ([]string, error) {
					leases, err := o.ClaimControlsIn(tx, "first", outbox.ControlBatch)
					return idsOf(leases, func(l outbox.Lease) string { return l.OutboxID }), err
				}, func() ([]string, error) {
					leases, err := o.ClaimControlAudits(context.Background(), "second", outbox.ControlBatch)
					return idsOf(leases, func(l outbox.Lease) string { return l.OutboxID }), err
				}},
				{"receipts to acknowledge", func(tx *database.Tx) ([]string, error) {
					rows, err := o.ClaimAcksIn(tx, outbox.ControlBatch)
					return idsOf(rows, func(r models.Outbox) string { return r.ID }), err
				}, func() ([]string, error) {
					rows, err := o.ClaimControlReceiptAcks(context.Background(), outbox.ControlBatch)
					return idsOf(rows, func(r models.Outbox) string { return r.ID }), err
				}},
			}
			for _, c := range claims {
				must(t, db.Tx(t.Context(), func(tx *database.Tx) error {
					scannedBefore, keysBefore := reads(t, tx)
					first, err := c.claim(tx)
					must(t, err)
					scanned, keys := reads(t, tx)
					scanned, keys = scanned-scannedBefore, keys-keysBefore
					locked := locks(t, tx)
					t.Logf("%s, %d ended rows: claimed %d, scanned %d, looked up %d, locked %d", c.name, n, len(first), scanned, keys, locked)
					// The scan begins with one look-up; each row is then changed by its
					// key, an acknowledgement's row twice.
					const batch = outbox.ControlBatch
					if len(first) != batch || scanned > batch+2 || keys > 2*batch+4 || locked > 2*batch+8 {
						t.Errorf("%s: claimed %d, scanned %d rows, looked up %d, locked %d", c.name, len(first), scanned, keys, locked)
					}
					second, err := c.again()
					must(t, err)
					if len(second) != batch || slices.ContainsFunc(second, func(id string) bool { return slices.Contains(first, id) }) {
						t.Errorf("%s: the second claimer got %d rows", c.name, len(second))
					}
					fillControl(t, db, 1, "pending", "'2026-01-01'", "new "+c.name) // would wait for the lock time-out
					return nil
				}))
			}
		})
	}
}

func idsOf[T any](items []T, id func(T) string) []string {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = id(item)
	}
	return ids
}

// fillControl inserts n control rows of a status that are due at a time.
func fillControl(t *testing.T, db *database.DB, n int, status, due, prefix string) {
	t.Helper()
	if n == 0 {
		return
	}
	must(t, db.Read(t.Context()).Exec(`INSERT INTO edge_worker_outbox
		(id, operation, dedupe_key, ticket_id, status, company_id, department_id, worker_id, version_id, dispatch_namespace, next_attempt_at, created_at, updated_at)
		SELECT CONCAT(?, seq), 'control_audit', CONCAT(?, seq), CONCAT(?, seq), ?, 'c', 'd', CONCAT(?, seq), 'v', ?, `+due+`, '2026-01-01', '2026-01-01'
		FROM seq_1_to_`+strconv.Itoa(n), prefix, prefix, prefix, status, prefix, plane.Namespace).Error)
}
