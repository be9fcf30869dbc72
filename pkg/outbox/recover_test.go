package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// standard is the claim of the 60-second loop.
var standard = outbox.RecoveryClaim{Grace: outbox.RecoveryGrace, Cooldown: outbox.RecoveryCooldown, Limit: outbox.RecoveryBatch}

func claimIn(t *testing.T, o *outbox.Outbox, c outbox.RecoveryClaim) []models.Outbox {
	t.Helper()
	rows, err := o.ClaimRecoverable(t.Context(), c)
	must(t, err)
	return rows
}

func ids(rows []models.Outbox) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// stall makes a row look untouched for so long.
func stall(t *testing.T, p *plane.Plane, id string, ago time.Duration) {
	t.Helper()
	set(t, p, id, "updated_at = ?", now(t, p).Add(-ago))
}

// S1-280, S1-281, S1-329, S2-236, S2-237: pending rows after 300 seconds and
// ended leases; nothing else, and nothing that a sweep has just stamped.
func TestWhatIsRecoverable(t *testing.T) {
	if outbox.RecoveryGrace != 300*time.Second || outbox.RecoveryCooldown != 15*time.Second || outbox.RecoveryBatch != 50 {
		t.Error("the constants of S1")
	}
	cases := []struct {
		name    string
		stalled time.Duration
		columns string
		ahead   []time.Duration
		want    bool
	}{
		{"stalled 300 s", 300 * time.Second, "", nil, true},
		{"stalled 290 s", 290 * time.Second, "", nil, false},
		{"stalled, its mark has passed", 300 * time.Second, "next_attempt_at = ?", []time.Duration{0}, true},
		{"stalled, its mark is to come", 300 * time.Second, "next_attempt_at = ?", []time.Duration{time.Minute}, false},
		{"not stalled, its mark has passed", 290 * time.Second, "next_attempt_at = ?", []time.Duration{0}, false},
		{"its lease has ended", 0, "status = 'leased', lease_owner = 'a:1', lease_expires_at = ?", []time.Duration{0}, true},
		{"its lease lives", time.Hour, "status = 'leased', lease_owner = 'a:1', lease_expires_at = ?", []time.Duration{time.Minute}, false},
		{"its lease has ended, its mark is to come", time.Hour, "status = 'leased', lease_owner = 'a:1', lease_expires_at = ?, next_attempt_at = ?", []time.Duration{0, time.Minute}, false},
		{"uncertain", time.Hour, "status = 'uncertain'", nil, false},
		{"completed", time.Hour, "status = 'completed'", nil, false},
		{"failed", time.Hour, "status = 'failed'", nil, false},
		{"cancelled", time.Hour, "status = 'cancelled'", nil, false},
		{"another operation", time.Hour, "operation = 'control_audit'", nil, false},
	}
	each(t, func(t *testing.T, p *plane.Plane) {
		var want []string
		names := map[string]string{}
		for _, c := range cases {
			row := insert(t, p)
			names[row.ID] = c.name
			if c.columns != "" {
				var args []any
				for _, d := range c.ahead {
					args = append(args, now(t, p).Add(d))
				}
				set(t, p, row.ID, c.columns, args...)
			}
			stall(t, p, row.ID, c.stalled)
			if c.want {
				want = append(want, row.ID)
			}
		}
		before := map[string]models.Outbox{}
		for id := range names {
			before[id] = byID(t, p, id)
		}
		slices.Sort(want)
		got := ids(claimIn(t, p.Outbox, standard))
		if !slices.Equal(got, want) {
			for _, id := range append(got, want...) {
				t.Errorf("claimed %v, wanted %v: %s", slices.Contains(got, id), slices.Contains(want, id), names[id])
			}
		}
		for id, name := range names {
			if !slices.Contains(want, id) && !equal(before[id], byID(t, p, id)) {
				t.Errorf("%s: the row was touched", name)
			}
		}
		if again := claimIn(t, p.Outbox, standard); len(again) != 0 {
			t.Errorf("claimed again within the cool-down: %v", ids(again))
		}
	})
}

// S1-290 to S1-292: the mark is the database's now plus the cool-down in whole
// seconds, the cool-down clamped to 1–300; the claim changes nothing else.
func TestRecoveryMark(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for cooldown, want := range map[time.Duration]time.Duration{
			15 * time.Second: 15 * time.Second, 0: time.Second, -time.Hour: time.Second, 300 * time.Second: 300 * time.Second, 301 * time.Second: 300 * time.Second,
		} {
			row := insert(t, p)
			stall(t, p, row.ID, time.Hour)
			before := byID(t, p, row.ID)
			early := now(t, p)
			claimed := claimIn(t, p.Outbox, outbox.RecoveryClaim{Grace: 300 * time.Second, Cooldown: cooldown, Limit: 1})
			late := now(t, p)
			if len(claimed) != 1 || claimed[0].ID != row.ID {
				t.Fatalf("claimed %v", ids(claimed))
			}
			after := byID(t, p, row.ID)
			mark := *after.NextAttemptAt
			if mark.Nanosecond() != 0 || mark.Before(early.Add(want).Truncate(time.Second)) || mark.After(late.Add(want)) || !mark.Equal(*claimed[0].NextAttemptAt) {
				t.Errorf("cool-down %v: mark %v between %v and %v", cooldown, mark, early.Add(want), late.Add(want))
			}
			after.NextAttemptAt = nil
			if !equal(before, after) {
				t.Errorf("before %+v\nafter %+v", before, after)
			}
			set(t, p, row.ID, "status = 'failed'")
		}
	})
}

// S1-282, S1-304, S2-240: 50 at a time; the limit is clamped to 1–100.
func TestRecoveryLimit(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for range 152 {
			insert(t, p)
		}
		p.Exec("UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00'")
		for _, c := range []struct{ limit, want int }{{0, 1}, {standard.Limit, 50}, {101, 100}, {100, 1}, {100, 0}} {
			got := claimIn(t, p.Outbox, outbox.RecoveryClaim{Grace: standard.Grace, Cooldown: 300 * time.Second, Limit: c.limit})
			if len(got) != c.want {
				t.Errorf("limit %d: %d rows, want %d", c.limit, len(got), c.want)
			}
		}
	})
}

// S1-033, S1-037 to S1-042: each environment claims its own and the shared
// namespaces; the empty one is nobody's; no usable setting claims nothing.
func TestRecoveryScope(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		onprem := outbox.OnPremScope("host-1")
		openGate(t, p, onprem)
		scopes := []struct {
			name  string
			scope outbox.Scope
			want  []string
		}{
			{"cloud without a setting", outbox.CloudScope("", "shared"), nil},
			{"the zero scope", outbox.Scope{}, nil},
			{"on-prem without an identity", outbox.OnPremScope(""), nil},
			{"cloud a", outbox.CloudScope("a", "shared"), []string{"a", "shared"}},
			{"cloud b", outbox.CloudScope("b", "shared"), []string{"b", "shared"}},
			{"on-prem", onprem, []string{onprem.Default().Namespace}},
			{"another host", outbox.OnPremScope("host-2"), nil},
		}
		namespaces := map[string]string{}
		for _, ns := range []string{"a", "b", "shared", "", onprem.Default().Namespace} {
			namespaces[insertIn(t, p, ns).ID] = ns
		}
		for _, s := range scopes {
			p.Exec("UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00', next_attempt_at = NULL")
			var got []string
			for _, row := range claimIn(t, outbox.New(p.DB, s.scope), standard) {
				got = append(got, namespaces[row.ID])
			}
			slices.Sort(got)
			if !slices.Equal(got, s.want) {
				t.Errorf("%s: claimed %q, want %q", s.name, got, s.want)
			}
		}
	})
}

// S1-010, S2-241: a row that another transaction holds is passed over without
// waiting; the others are claimed.
func TestRecoverySkipsHeldRows(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	held, free := insert(t, p), insert(t, p)
	stall(t, p, held.ID, time.Hour)
	stall(t, p, free.ID, time.Hour)
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var rows []models.Outbox
		must(t, tx.Locked().Where("id = ?", held.ID).Find(&rows).Error)
		if got := claimIn(t, p.Outbox, standard); len(got) != 1 || got[0].ID != free.ID {
			t.Errorf("claimed %v", ids(got))
		}
		return nil
	}))
	if got := claimIn(t, p.Outbox, standard); len(got) != 1 || got[0].ID != held.ID {
		t.Errorf("control: claimed %v", ids(got))
	}
}

// Any number of sweeps at once claims each row once.
func TestConcurrentSweeps(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for range 40 {
			insert(t, p)
		}
		p.Exec("UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00'")
		var mu sync.Mutex
		var wg sync.WaitGroup
		times := map[string]int{}
		for range 4 {
			wg.Go(func() {
				for range 8 {
					rows, err := p.Outbox.ClaimRecoverable(context.Background(), outbox.RecoveryClaim{Cooldown: 300 * time.Second, Limit: 5})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, id := range ids(rows) {
						times[id]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for _, row := range claimIn(t, p.Outbox, outbox.RecoveryClaim{Cooldown: 300 * time.Second, Limit: 100}) {
			times[row.ID]++ // what all had passed over
		}
		for id, n := range times {
			if n != 1 {
				t.Errorf("%s was claimed %d times", id, n)
			}
		}
		if len(times) != 40 {
			t.Errorf("%d of 40 rows claimed", len(times))
		}
	})
}

// S3-80, S1-295 to S1-301, S2-243, S2-244: a claimed row, pending or leased,
// whose Worker is gone ends failed with the exact code and text, without an
// audit fact and without a touch on any version; with a Worker it stays.
func TestSettleOrphan(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		living := p.Row(p.Admit(v).TicketID)
		stall(t, p, living.ID, time.Hour)
		pending, leased := insert(t, p), insert(t, p)
		stall(t, p, pending.ID, time.Hour)
		set(t, p, leased.ID, "status = 'leased', lease_owner = 'dead:1', lease_expires_at = created_at")
		facts, version := len(p.Facts()), p.Version(v.ID)
		rows := claimIn(t, p.Outbox, standard)
		if len(rows) != 3 {
			t.Fatalf("claimed %d rows", len(rows))
		}
		for _, row := range rows {
			orphan, err := p.Outbox.SettleOrphan(t.Context(), row)
			if err != nil || orphan != (row.ID != living.ID) {
				t.Errorf("%s: %v, %v", row.ID, orphan, err)
			}
			got := byID(t, p, row.ID)
			if !orphan {
				if !equal(got, row) {
					t.Errorf("the living Worker's row: %+v", got)
				}
				continue
			}
			if got.Status != models.OutboxFailed || got.LastErrorCode != "worker_deleted" || got.LastError == nil || *got.LastError != "the Worker row no longer exists" ||
				got.LeaseOwner != "" || got.LeaseExpiresAt != nil || got.NextAttemptAt != nil {
				t.Errorf("%+v", got)
			}
		}
		if len(p.Facts()) != facts || p.Version(v.ID).UpdatedAt != version.UpdatedAt || p.Version(v.ID).State != version.State {
			t.Error("an audit fact was written or a version changed")
		}
	})
}

// S1-289, S1-293, S2-239: the settlement compares status, owner and mark; each
// altered alone, it changes nothing. A later claim beats an earlier one.
func TestOrphanSettlementIsFenced(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		claim := func(id string) models.Outbox {
			stall(t, p, id, time.Hour)
			for _, row := range claimIn(t, p.Outbox, outbox.RecoveryClaim{Grace: 300 * time.Second, Cooldown: time.Second, Limit: 100}) {
				if row.ID == id {
					return row
				}
			}
			t.Fatal("not claimed")
			return models.Outbox{}
		}
		for name, columns := range map[string]string{
			"status": "status = 'leased'", "owner": "lease_owner = 'other:1'", "mark": "next_attempt_at = created_at", "no mark": "next_attempt_at = NULL",
		} {
			row := claim(insert(t, p).ID)
			set(t, p, row.ID, columns)
			before := byID(t, p, row.ID)
			_, err := p.Outbox.SettleOrphan(t.Context(), row)
			if !errors.Is(err, models.ErrStaleTransition) || !equal(before, byID(t, p, row.ID)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		first := claim(insert(t, p).ID)
		set(t, p, first.ID, "next_attempt_at = ?", now(t, p).Truncate(time.Second)) // the cool-down is over
		second := claim(first.ID)
		if !second.NextAttemptAt.After(now(t, p).Truncate(time.Second)) {
			t.Errorf("the second mark is %v", second.NextAttemptAt)
		}
		set(t, p, first.ID, "next_attempt_at = ?", second.NextAttemptAt.Add(time.Second))
		third := byID(t, p, first.ID)
		if _, err := p.Outbox.SettleOrphan(t.Context(), first); !errors.Is(err, models.ErrStaleTransition) {
			t.Errorf("the first claim: %v", err)
		}
		if _, err := p.Outbox.SettleOrphan(t.Context(), third); err != nil {
			t.Errorf("control: %v", err)
		}
	})
}

// A dead owner's living leases end at once, so that the sweep finds them;
// nobody else's do, whatever their owners are called.
func TestEndLeases(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		rows := map[string]models.Outbox{}
		for _, owner := range []string{"dev_1:a", "devX1:a", "DEV_1:a", "dev_1", "dev_11:a", "xdev_1:a"} {
			row := insert(t, p)
			set(t, p, row.ID, "status = 'leased', lease_owner = ?, lease_expires_at = ?", owner, now(t, p).Add(time.Hour))
			rows[owner] = byID(t, p, row.ID)
		}
		ended, err := p.Outbox.EndLeases(t.Context(), "dev_1")
		if err != nil || ended != 1 {
			t.Errorf("%d leases, %v", ended, err)
		}
		for owner, before := range rows {
			if equal(before, byID(t, p, before.ID)) == (owner == "dev_1:a") {
				t.Errorf("%s: %+v", owner, byID(t, p, before.ID))
			}
		}
		claimed := claimIn(t, p.Outbox, standard)
		if len(claimed) != 1 || claimed[0].ID != rows["dev_1:a"].ID {
			t.Errorf("claimed %v", ids(claimed))
		}
		if again, err := p.Outbox.EndLeases(t.Context(), "dev_1"); err != nil || again != 0 {
			t.Errorf("again: %d, %v", again, err)
		}
		if _, disposition, err := p.Outbox.LeaseDeployment(t.Context(), request(t, rows["dev_1:a"])); err != nil || disposition != outbox.Acquired {
			t.Errorf("%s, %v", disposition, err)
		}
	})
}

// A claim's mark dies with its publisher: the next process takes the row up at
// once, and leaves another environment's marks alone.
func TestEndLeasesForgetsMarks(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		pending, leased, foreign := insert(t, p), insert(t, p), insert(t, p)
		later := now(t, p).Add(time.Minute).Truncate(time.Second)
		set(t, p, pending.ID, "next_attempt_at = ?", later)
		set(t, p, leased.ID, "status = 'leased', lease_owner = 'dev:a', lease_expires_at = ?, next_attempt_at = ?", now(t, p).Add(time.Hour), later)
		set(t, p, foreign.ID, "dispatch_namespace = 'elsewhere', next_attempt_at = ?", later)
		atOnce := outbox.RecoveryClaim{Grace: 0, Cooldown: time.Second, Limit: outbox.RecoveryBatch}
		if got := claimIn(t, p.Outbox, atOnce); len(got) != 0 {
			t.Fatalf("claimed %v before", ids(got)) // the control
		}
		_, err := p.Outbox.EndLeases(t.Context(), "dev")
		must(t, err)
		if got := ids(claimIn(t, p.Outbox, atOnce)); len(got) != 2 {
			t.Errorf("claimed %v", got)
		}
		if mark := byID(t, p, foreign.ID).NextAttemptAt; mark == nil {
			t.Error("another environment's mark is gone")
		}
	})
}

// S3-71, S3-78: outbox rows need no parent; the fixture's rows have none.
func TestRowsOutliveWhatTheySpeakOf(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		must(t, p.Directory.DeleteCompany(t.Context(), p.Actor, p.Tenant.CompanyID))
		if !equal(byID(t, p, row.ID), byID(t, p, row.ID)) || byID(t, p, row.ID).ID != row.ID {
			t.Error("the row is gone")
		}
		if _, err := uuid.Parse(row.TicketID); err != nil {
			t.Error(err)
		}
	})
}
