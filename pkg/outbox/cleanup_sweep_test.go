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

// dueIntents creates n intents whose grace has passed.
func dueIntents(t *testing.T, p *plane.Plane, n int) []outbox.CleanupIntent {
	t.Helper()
	all := make([]outbox.CleanupIntent, n)
	for i := range all {
		all[i] = intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), all[i]))
	}
	p.Exec("UPDATE edge_worker_outbox SET created_at = '2020-01-01 00:00:00', next_attempt_at = '2020-01-01 00:15:00'")
	return all
}

func claimCleanups(t *testing.T, p *plane.Plane, limit int) []outbox.Lease {
	t.Helper()
	leases, err := p.Outbox.ClaimCleanups(t.Context(), "sweep", limit)
	must(t, err)
	return leases
}

// S0-67, S0-73, S0-76, S1-327: an intent is claimed once it is due and not before, for
// 300 s by the database's clock; after that it is claimed again.
func TestCleanupClaim(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := intentOf(p)
		must(t, p.Outbox.CreateCleanupIntent(t.Context(), in))
		if got := claimCleanups(t, p, 50); len(got) != 0 {
			t.Fatalf("claimed %d before the grace", len(got))
		}
		p.Exec("UPDATE edge_worker_outbox SET next_attempt_at = ?", now(t, p))
		leases := claimCleanups(t, p, 50)
		if len(leases) != 1 {
			t.Fatalf("claimed %d", len(leases))
		}
		lease, row := leases[0], find(t, p, in)
		if row.Status != models.OutboxLeased || row.LeaseOwner != lease.Token || !strings.HasPrefix(lease.Token, "sweep:") || row.NextAttemptAt != nil ||
			row.Attempts != 1 || lease.Attempts != 1 || outbox.CleanupLeaseTTL != 300*time.Second || row.LeaseExpiresAt.Sub(row.UpdatedAt) != 300*time.Second {
			t.Errorf("%+v", row)
		}
		if lease.Wait <= 14*time.Minute || lease.Wait > 15*time.Minute {
			t.Errorf("what is left of the grace: %v", lease.Wait)
		}
		if got := claimCleanups(t, p, 50); len(got) != 0 {
			t.Error("claimed while it is leased")
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = ?", now(t, p))
		again := claimCleanups(t, p, 50)
		if len(again) != 1 || again[0].Token == lease.Token || again[0].Attempts != 2 {
			t.Errorf("after its lease: %+v", again)
		}
		set(t, p, row.ID, "status = 'pending', lease_owner = '', lease_expires_at = NULL, next_attempt_at = NULL")
		if got := claimCleanups(t, p, 50); len(got) != 1 {
			t.Error("a row without a due time is lost")
		}
		for _, status := range []string{"completed", "failed", "cancelled", "uncertain"} {
			set(t, p, row.ID, "status = ?, next_attempt_at = '2020-01-01 00:00:00', lease_expires_at = '2020-01-01 00:00:00'", status)
			if got := claimCleanups(t, p, 50); len(got) != 0 {
				t.Errorf("a %s row was claimed", status)
			}
		}
	})
}

// S0-75, S1-328, D19: a batch is 50; a limit is clamped to 1 to 100; ended leases count
// towards it.
func TestCleanupBatch(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		dueIntents(t, p, 103)
		for _, c := range []struct{ limit, want int }{{outbox.CleanupBatch, 50}, {0, 1}, {-1, 1}, {1000, 51}} {
			if got := claimCleanups(t, p, c.limit); len(got) != c.want {
				t.Errorf("limit %d claimed %d, want %d", c.limit, len(got), c.want)
			}
		}
		p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = '2020-01-01 00:00:00'")
		if got := claimCleanups(t, p, 1000); len(got) != 100 || outbox.CleanupBatch != 50 {
			t.Errorf("claimed %d", len(got))
		}
	})
}

// S1-036 to S1-042: a sweep claims what its environment may run.
func TestCleanupClaimScope(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := dueIntents(t, p, 1)[0]
		row := find(t, p, in)
		shared := outbox.New(p.DB, outbox.CloudScope("own", "shared-1"))
		for namespace, want := range map[string]int{"own": 1, "shared-1": 1, "another": 0, "": 0, "onprem:0123456789ab": 0} {
			set(t, p, row.ID, "dispatch_namespace = ?, status = 'pending', lease_owner = '', next_attempt_at = '2020-01-01 00:00:00'", namespace)
			got, err := shared.ClaimCleanups(t.Context(), "sweep", 50)
			if err != nil || len(got) != want {
				t.Errorf("%q: %d, %v", namespace, len(got), err)
			}
		}
		host := outbox.New(p.DB, outbox.OnPremScope("host-1"))
		for namespace, want := range map[string]int{host.Scope().Default().Namespace: 1, "onprem:0123456789ab": 0, "own": 0, "": 0} {
			set(t, p, row.ID, "dispatch_namespace = ?, status = 'pending', lease_owner = '', next_attempt_at = '2020-01-01 00:00:00'", namespace)
			got, err := host.ClaimCleanups(t.Context(), "sweep", 50)
			if err != nil || len(got) != want {
				t.Errorf("on-prem, %q: %d, %v", namespace, len(got), err)
			}
		}
		none := outbox.New(p.DB, outbox.CloudScope("", "shared-1"))
		set(t, p, row.ID, "dispatch_namespace = 'shared-1', status = 'pending', lease_owner = '', next_attempt_at = '2020-01-01 00:00:00'")
		if got, err := none.ClaimCleanups(t.Context(), "sweep", 50); err != nil || len(got) != 0 {
			t.Errorf("without a namespace: %d, %v", len(got), err)
		}
	})
}

// S0-74: two rounds at once take different rows, and neither waits for the
// other.
func TestCleanupClaimSkipsLocked(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	dueIntents(t, p, 4)
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		held, err := p.Outbox.ClaimCleanupsIn(tx, "first:1", 2)
		must(t, err)
		second := claimCleanups(t, p, 50)
		if len(held) != 2 || len(second) != 2 || overlap([]models.Outbox{held[0].Row, held[1].Row}, []models.Outbox{second[0].Row, second[1].Row}) {
			t.Errorf("%d and %d rows", len(held), len(second))
		}
		return nil
	}))
}

// S0-85, S0-86, S0-88: after a failure the row is pending again, with its
// payload, and due after 15 s, 30 s, 60 s, … and never more than an hour.
func TestCleanupBackOff(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := dueIntents(t, p, 1)[0]
		payload := *find(t, p, in).Payload
		for i, seconds := range []int{15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600} {
			want := time.Duration(seconds) * time.Second
			lease := claimCleanups(t, p, 50)[0]
			must(t, p.Outbox.RetryCleanup(t.Context(), lease, outbox.CodeCleanupFailed, "the text"))
			row := find(t, p, in)
			delay := row.NextAttemptAt.Sub(row.UpdatedAt)
			if delay < want || delay >= want+time.Second || row.NextAttemptAt.Nanosecond() != 0 {
				t.Errorf("attempt %d: due after %v, want %v", i+1, delay, want)
			}
			if row.Status != models.OutboxPending || row.Attempts != i+1 || row.LeaseOwner != "" || row.LeaseExpiresAt != nil ||
				row.LastErrorCode != "artifact_cleanup_failed" || *row.LastError != "the text" || *row.Payload != payload {
				t.Errorf("%+v", row)
			}
			if got := claimCleanups(t, p, 50); len(got) != 0 {
				t.Errorf("attempt %d: claimed before it is due", i+1)
			}
			set(t, p, row.ID, "next_attempt_at = '2020-01-01 00:00:00'")
		}
	})
}

// S1-154: every end of a lease is fenced by its token: a stale one changes 0
// rows, the valid one changes 1.
func TestCleanupSettlementIsFenced(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		ends := map[string]func(outbox.Lease) error{
			"completed": func(l outbox.Lease) error {
				return p.Outbox.SettleCleanup(t.Context(), l, models.OutboxCompleted, "", "")
			},
			"cancelled": func(l outbox.Lease) error {
				return p.Outbox.SettleCleanup(t.Context(), l, models.OutboxCancelled, "v", "")
			},
			"failed": func(l outbox.Lease) error {
				return p.Outbox.SettleCleanup(t.Context(), l, models.OutboxFailed, "", outbox.CodeCleanupPayload)
			},
			"retry": func(l outbox.Lease) error { return p.Outbox.RetryCleanup(t.Context(), l, "code", "") },
			"hold":  func(l outbox.Lease) error { return p.Outbox.HoldCleanup(t.Context(), l) },
		}
		for name, end := range ends {
			in := dueIntents(t, p, 1)[0]
			stale := claimCleanups(t, p, 1)[0]
			p.Exec("UPDATE edge_worker_outbox SET lease_expires_at = '2020-01-01 00:00:00'")
			valid := claimCleanups(t, p, 1)[0]
			before := find(t, p, in)
			if err := end(stale); !errors.Is(err, outbox.ErrLeaseLost) || !equal(before, find(t, p, in)) {
				t.Errorf("%s with a stale token: %v", name, err)
			}
			must(t, end(valid))
			if equal(before, find(t, p, in)) {
				t.Errorf("%s changed nothing", name)
			}
			p.Exec("DELETE FROM edge_worker_outbox")
		}
		if err := p.Outbox.SettleCleanup(t.Context(), outbox.Lease{}, "nonsense", "", ""); !errors.As(err, &models.ErrForbiddenTransition{}) {
			t.Errorf("a status that is no edge: %v", err)
		}
	})
}

// An intent that a sweep has once claimed is never adopted, although it is
// pending again: its objects may be gone (S0-63).
func TestClaimedIntentIsNotAdoptable(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		all := dueIntents(t, p, 2)
		lease := claimCleanups(t, p, 1)[0]
		must(t, p.Outbox.RetryCleanup(t.Context(), lease, "code", ""))
		for _, in := range all {
			row, err := find(t, p, in), adopt(t, p, in)
			if row.Attempts > 0 && !errors.Is(err, outbox.ErrNotAdoptable) || row.Attempts == 0 && err != nil {
				t.Errorf("claimed %d times: %v", row.Attempts, err)
			}
		}
	})
}

// A writer that comes back late makes its intent due again, whatever a sweep
// made of it meanwhile; the sweep that still has it can no longer settle it.
func TestLateWriterTakesTheIntentBack(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		in := dueIntents(t, p, 1)[0]
		lease := claimCleanups(t, p, 1)[0]
		must(t, p.Outbox.MakeCleanupDue(t.Context(), p.Tenant, in.ArtifactID, ""))
		if err := p.Outbox.SettleCleanup(t.Context(), lease, models.OutboxCompleted, "", ""); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("the overtaken sweep: %v", err)
		}
		lease = claimCleanups(t, p, 1)[0]
		must(t, p.Outbox.SettleCleanup(t.Context(), lease, models.OutboxCompleted, "", ""))
		if row := find(t, p, in); row.Status != models.OutboxCompleted || row.LastErrorCode != "submission_not_committed" {
			t.Errorf("%+v", row)
		}
		must(t, p.Outbox.MakeCleanupDue(t.Context(), p.Tenant, in.ArtifactID, ""))
		if got := claimCleanups(t, p, 1); len(got) != 1 {
			t.Error("the settled intent did not come back")
		}
	})
}
