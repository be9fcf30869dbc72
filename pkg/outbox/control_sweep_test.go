package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-323, S1-324, S1-325: a row is claimed when it is due and not before, for
// 120 s by the database's clock, and again after that; a claim takes at most 50.
func TestControlClaim(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		id := enqueue(t, p).ID
		set(t, p, id, "next_attempt_at = ?", now(t, p).Add(2*time.Second).Truncate(time.Second))
		if got := claimControls(t, p, 50); len(got) != 0 {
			t.Fatalf("claimed %d before the grace", len(got))
		}
		set(t, p, id, "next_attempt_at = ?", now(t, p).Truncate(time.Second))
		leases := claimControls(t, p, 50)
		if len(leases) != 1 {
			t.Fatalf("claimed %d", len(leases))
		}
		row := byID(t, p, id)
		if row.Status != models.OutboxLeased || row.LeaseOwner != leases[0].Token || !strings.HasPrefix(row.LeaseOwner, "sweep:") || row.Attempts != 1 ||
			leases[0].Attempts != 1 || row.NextAttemptAt != nil || row.LeaseExpiresAt.Sub(row.UpdatedAt) != 120*time.Second {
			t.Errorf("%+v", row)
		}
		if got := claimControls(t, p, 50); len(got) != 0 {
			t.Error("claimed while it is leased")
		}
		set(t, p, id, "lease_expires_at = ?", now(t, p))
		if again := claimControls(t, p, 50); len(again) != 1 || again[0].Token == leases[0].Token || again[0].Attempts != 2 {
			t.Errorf("after its lease: %+v", again)
		}
		set(t, p, id, "status = 'pending', lease_owner = '', lease_expires_at = NULL, next_attempt_at = NULL")
		if got := claimControls(t, p, 50); len(got) != 1 {
			t.Error("a row without a due time is lost")
		}
		for _, status := range []string{"completed", "failed", "cancelled", "uncertain"} {
			set(t, p, id, "status = ?, next_attempt_at = '2020-01-01 00:00:00', lease_expires_at = '2020-01-01 00:00:00'", status)
			if got := claimControls(t, p, 50); len(got) != 0 {
				t.Errorf("a %s row was claimed", status)
			}
		}
		dueControls(t, p, 53)
		set(t, p, id, "status = 'failed'")
		if got := claimControls(t, p, 1000); len(got) != 50 || outbox.ControlBatch != 50 {
			t.Errorf("claimed %d", len(got))
		}
		if got := claimControls(t, p, 0); len(got) != 1 {
			t.Errorf("limit 0 claimed %d", len(got))
		}
	})
}

// S1-034, S1-035, S1-037 to S1-042: both claims take what the environment may
// run and nothing else.
func TestControlClaimScope(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		id := enqueue(t, p).ID
		claims := func(o *outbox.Outbox, namespace string) [2]int {
			set(t, p, id, "dispatch_namespace = ?, status = 'pending', lease_owner = '', next_attempt_at = '2020-01-01 00:00:00'", namespace)
			leases, err := o.ClaimControlAudits(t.Context(), "sweep", 50)
			must(t, err)
			set(t, p, id, "status = 'completed', lease_owner = '', next_attempt_at = '2020-01-01 00:00:00'")
			acks, err := o.ClaimControlReceiptAcks(t.Context(), 50)
			must(t, err)
			return [2]int{len(leases), len(acks)}
		}
		cloud := outbox.New(p.DB, outbox.CloudScope("own", "shared-1"))
		for namespace, want := range map[string]int{"own": 1, "shared-1": 1, "another": 0, "": 0, "onprem:0123456789ab": 0} {
			if got := claims(cloud, namespace); got != [2]int{want, want} {
				t.Errorf("cloud, %q: %v", namespace, got)
			}
		}
		host := outbox.New(p.DB, outbox.OnPremScope("host-1"))
		for namespace, want := range map[string]int{host.Scope().Default().Namespace: 1, "onprem:0123456789ab": 0, "own": 0, "": 0} {
			if got := claims(host, namespace); got != [2]int{want, want} {
				t.Errorf("on-prem, %q: %v", namespace, got)
			}
		}
		if got := claims(outbox.New(p.DB, outbox.CloudScope("", "shared-1")), "shared-1"); got != [2]int{} {
			t.Errorf("without a namespace: %v", got)
		}
		set(t, p, id, "operation = 'artifact_cleanup', dispatch_namespace = 'own', status = 'pending'")
		if got := claims(cloud, "own"); got != [2]int{} {
			t.Errorf("another operation's row: %v", got)
		}
	})
}

// S1-010: both claims pass over rows that another transaction holds.
func TestControlClaimSkipsLocked(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	rows := dueControls(t, p, 4)
	set(t, p, rows[0].ID, "status = 'completed'")
	set(t, p, rows[1].ID, "status = 'completed'")
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var held []models.Outbox
		must(t, tx.Locked().Where("id IN ?", []string{rows[0].ID, rows[2].ID}).Find(&held).Error)
		acks, err := p.Outbox.ClaimControlReceiptAcks(t.Context(), 50)
		must(t, err)
		leases := claimControls(t, p, 50)
		if len(acks) != 1 || acks[0].ID != rows[1].ID || len(leases) != 1 || leases[0].OutboxID != rows[3].ID {
			t.Errorf("%d acknowledgements, %d leases", len(acks), len(leases))
		}
		return nil
	}))
}

// S1-015, S1-232: both ladders are 15 s, 30 s, 60 s, … and never more than an
// hour; the status stays.
func TestControlBackOff(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		rows := dueControls(t, p, 2)
		set(t, p, rows[1].ID, "status = 'completed'")
		for i, seconds := range []int{15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600} {
			must(t, p.Outbox.RetryControl(t.Context(), claimControls(t, p, 50)[0], outbox.CodeReceiptUnavailable, "the text"))
			acks, err := p.Outbox.ClaimControlReceiptAcks(t.Context(), 50)
			must(t, err)
			must(t, p.Outbox.RetryAck(t.Context(), acks[0], outbox.CodeReceiptAck, "the text"))
			for j, want := range []struct {
				status models.OutboxStatus
				code   string
			}{{models.OutboxPending, "control_receipt_unavailable"}, {models.OutboxCompleted, "control_receipt_ack_failed"}} {
				row := byID(t, p, rows[j].ID)
				delay, least := row.NextAttemptAt.Sub(row.UpdatedAt), time.Duration(seconds)*time.Second
				if delay < least || delay > least+time.Second || row.NextAttemptAt.Nanosecond() != 0 || row.Status != want.status ||
					row.LastErrorCode != want.code || *row.LastError != "the text" || row.Attempts != i+1 || row.LeaseOwner != "" || row.LeaseExpiresAt != nil {
					t.Errorf("attempt %d: due after %v, want %v: %+v", i+1, delay, least, row)
				}
			}
			acks, err = p.Outbox.ClaimControlReceiptAcks(t.Context(), 50)
			must(t, err)
			if len(claimControls(t, p, 50)) != 0 || len(acks) != 0 {
				t.Errorf("attempt %d: claimed before it is due", i+1)
			}
			p.Exec("UPDATE edge_worker_outbox SET next_attempt_at = '2020-01-01 00:05:00'")
		}
	})
}

// Every end of a lease is fenced by its token; a released row keeps its count,
// a completed one is due for its acknowledgement.
func TestControlSettlementIsFenced(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for name, end := range map[string]func(outbox.Lease) error{
			"completed": func(l outbox.Lease) error { return settleControl(t, p, l, models.OutboxCompleted, "") },
			"cancelled": func(l outbox.Lease) error {
				return settleControl(t, p, l, models.OutboxCancelled, outbox.CodeWorkerRetired)
			},
			"failed": func(l outbox.Lease) error {
				return settleControl(t, p, l, models.OutboxFailed, outbox.CodeReceiptNotFound)
			},
			"retry":   func(l outbox.Lease) error { return p.Outbox.RetryControl(t.Context(), l, "code", "") },
			"release": func(l outbox.Lease) error { return p.Outbox.ReleaseControl(t.Context(), l) },
		} {
			id := dueControls(t, p, 1)[0].ID
			stale := claimControls(t, p, 1)[0]
			set(t, p, id, "lease_expires_at = '2020-01-01 00:00:00'")
			valid := claimControls(t, p, 1)[0]
			before := byID(t, p, id)
			if err := end(stale); !errors.Is(err, outbox.ErrLeaseLost) || !equal(before, byID(t, p, id)) {
				t.Errorf("%s with a stale token: %v", name, err)
			}
			must(t, end(valid))
			after := byID(t, p, id)
			queued := after.NextAttemptAt != nil
			if equal(before, after) || after.LeaseOwner != "" || queued != (name == "completed" || name == "retry" || name == "release") {
				t.Errorf("%s: %+v", name, after)
			}
			if name == "completed" && (after.Attempts != 0 || after.NextAttemptAt.Nanosecond() != 0) || name == "release" && after.Attempts != 1 {
				t.Errorf("%s: %+v", name, after)
			}
			p.Exec("DELETE FROM edge_worker_outbox")
		}
		if err := settleControl(t, p, outbox.Lease{}, "nonsense", ""); !errors.As(err, &models.ErrForbiddenTransition{}) {
			t.Errorf("a status that is no edge: %v", err)
		}
	})
}

// D12: the request settles its own row while nobody else has touched it.
func TestRequestSettlesItsRow(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for name, end := range map[models.OutboxStatus]func(*database.Tx, models.Outbox) error{
			models.OutboxCompleted: outbox.CompleteControl,
			models.OutboxFailed: func(tx *database.Tx, row models.Outbox) error {
				return outbox.RefuseControl(tx, row, "revision_conflict", "the text")
			},
		} {
			row, taken := enqueue(t, p), dueControls(t, p, 1)[0]
			set(t, p, row.ID, "next_attempt_at = ?", row.NextAttemptAt)
			must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error { return end(tx, row) }))
			got := byID(t, p, row.ID)
			if got.Status != name || (got.NextAttemptAt != nil) != (name == models.OutboxCompleted) {
				t.Errorf("%s: %+v", name, got)
			}
			lease := claimControls(t, p, 50)[0]
			must(t, p.Outbox.RetryControl(t.Context(), lease, "code", ""))
			for _, other := range []models.Outbox{row, taken} { // settled before, and tried by the lane meanwhile
				before := byID(t, p, other.ID)
				err := p.DB.Tx(t.Context(), func(tx *database.Tx) error { return end(tx, other) })
				if !errors.Is(err, models.ErrStaleTransition) || !equal(before, byID(t, p, other.ID)) {
					t.Errorf("%s of a row that has moved: %v", name, err)
				}
			}
			p.Exec("DELETE FROM edge_worker_outbox")
		}
	})
}

// S1-226, S1-227, S1-228: completed rows that are due are claimed with a mark of
// whole seconds that they never had; a stale mark changes nothing; a cleared
// one is never claimed.
func TestAckMarks(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		claim := func() []models.Outbox {
			rows, err := p.Outbox.ClaimControlReceiptAcks(t.Context(), 50)
			must(t, err)
			return rows
		}
		id := enqueue(t, p).ID
		for _, c := range []struct {
			due  any
			want int
		}{{nil, 0}, {now(t, p).Add(time.Minute).Truncate(time.Second), 0}, {now(t, p).Truncate(time.Second), 1}} {
			set(t, p, id, "status = 'completed', next_attempt_at = ?", c.due)
			if got := claim(); len(got) != c.want {
				t.Fatalf("due %v: %d", c.due, len(got))
			}
		}
		first := byID(t, p, id)
		if first.Status != models.OutboxCompleted || first.Attempts != 1 || first.NextAttemptAt.Nanosecond() != 0 {
			t.Errorf("%+v", first)
		}
		if ahead := first.NextAttemptAt.Sub(now(t, p)); ahead < 110*time.Second || ahead > 120*time.Second || len(claim()) != 0 {
			t.Errorf("kept away for %v", ahead)
		}
		set(t, p, id, "next_attempt_at = '2020-01-01 00:00:00'")
		second := claim()[0]
		if second.NextAttemptAt.Before(*first.NextAttemptAt) || second.Attempts != 2 {
			t.Errorf("%+v", second)
		}
		stale := second
		old := second.NextAttemptAt.Add(-time.Second)
		stale.NextAttemptAt = &old
		before := byID(t, p, id)
		for name, end := range map[string]func(models.Outbox) error{
			"end":     func(row models.Outbox) error { return p.Outbox.EndAck(t.Context(), row, "", "") },
			"retry":   func(row models.Outbox) error { return p.Outbox.RetryAck(t.Context(), row, "code", "") },
			"release": func(row models.Outbox) error { return p.Outbox.ReleaseAck(t.Context(), row) },
		} {
			if err := end(stale); !errors.Is(err, models.ErrStaleTransition) || !equal(before, byID(t, p, id)) {
				t.Errorf("%s with a stale mark: %v", name, err)
			}
		}
		must(t, p.Outbox.ReleaseAck(t.Context(), second))
		if got := byID(t, p, id); got.Attempts != 1 || !got.NextAttemptAt.Equal(*second.NextAttemptAt) {
			t.Errorf("released: %+v", got)
		}
		must(t, p.Outbox.EndAck(t.Context(), second, "", ""))
		if got := byID(t, p, id); got.Status != models.OutboxCompleted || got.NextAttemptAt != nil || got.LastErrorCode != "" || len(claim()) != 0 {
			t.Errorf("ended: %+v", got)
		}
	})
}
