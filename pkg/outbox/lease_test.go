package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-064, S1-047 to S1-049, S1-044, S2-249: each of the five dispositions, and
// a row that is not acquired stays as it was in every column.
func TestDispositions(t *testing.T) {
	type setUp func(t *testing.T, p *plane.Plane, row models.Outbox, req *outbox.LeaseRequest)
	column := func(columns string, ago time.Duration) setUp {
		return func(t *testing.T, p *plane.Plane, row models.Outbox, _ *outbox.LeaseRequest) {
			args := []any{}
			for range strings.Count(columns, "?") {
				args = append(args, now(t, p).Add(-ago))
			}
			set(t, p, row.ID, columns, args...)
		}
	}
	ask := func(change func(*outbox.LeaseRequest)) setUp {
		return func(_ *testing.T, _ *plane.Plane, _ models.Outbox, req *outbox.LeaseRequest) { change(req) }
	}
	leased := "status = 'leased', lease_owner = 'other:1', lease_expires_at = ?"
	cases := []struct {
		name string
		set  setUp
		want outbox.Disposition
	}{
		{"a new row", column("attempts = 0", 0), outbox.Acquired},
		{"a mark that has passed", column("next_attempt_at = ?", 0), outbox.Acquired},
		{"a lease that has ended", column(leased, 0), outbox.Acquired},
		{"an ended lease that a sweep has just stamped", func(t *testing.T, p *plane.Plane, row models.Outbox, _ *outbox.LeaseRequest) {
			set(t, p, row.ID, leased+", next_attempt_at = ?", now(t, p), now(t, p).Add(time.Minute))
		}, outbox.Acquired},
		{"completed", column("status = 'completed'", 0), outbox.Terminal},
		{"failed", column("status = 'failed'", 0), outbox.Terminal},
		{"cancelled", column("status = 'cancelled'", 0), outbox.Terminal},
		{"uncertain", column("status = 'uncertain'", 0), outbox.Terminal},
		{"completed, in another scope", column("status = 'completed', dispatch_namespace = 'elsewhere'", 0), outbox.Terminal},
		{"no such row", ask(func(r *outbox.LeaseRequest) { r.OutboxID = "nobody" }), outbox.Terminal},
		{"another company", ask(func(r *outbox.LeaseRequest) { r.Tenant.CompanyID = "other" }), outbox.Terminal},
		{"another department", ask(func(r *outbox.LeaseRequest) { r.Tenant.DepartmentID = "other" }), outbox.Terminal},
		{"another message", ask(func(r *outbox.LeaseRequest) { r.MessageID = "other" }), outbox.Terminal},
		{"another operation", column("operation = 'control_audit'", 0), outbox.Terminal},
		{"a payload that is no JSON", column("payload = '{'", 0), outbox.Terminal},
		{"no payload", column("payload = NULL", 0), outbox.Terminal},
		{"a living lease", column(leased, -time.Minute), outbox.InFlight},
		{"a mark in the future", column("next_attempt_at = ?", -15*time.Second), outbox.NotDue},
		{"a foreign namespace", column("dispatch_namespace = 'elsewhere'", 0), outbox.WrongScope},
		{"no namespace", column("dispatch_namespace = ''", 0), outbox.WrongScope},
		{"a foreign recorded location", column(`payload = REPLACE(payload, '"serving":{"kind":"legacy","namespace":"edge-test"}', '"serving":{"kind":"legacy","namespace":"elsewhere"}')`, 0), outbox.WrongScope},
	}
	each(t, func(t *testing.T, p *plane.Plane) {
		seen := map[outbox.Disposition]bool{}
		for _, c := range cases {
			row := insert(t, p)
			req := request(t, row)
			c.set(t, p, row, &req)
			before := byID(t, p, row.ID)
			got, disposition, err := p.Outbox.LeaseDeployment(t.Context(), req)
			after := byID(t, p, row.ID)
			if err != nil || disposition != c.want {
				t.Errorf("%s: %s, %v", c.name, disposition, err)
			}
			if (disposition == outbox.Acquired) == equal(before, after) {
				t.Errorf("%s: row before %+v, after %+v", c.name, before, after)
			}
			if disposition == outbox.NotDue && (got.Wait <= 0 || got.Wait > 15*time.Second) {
				t.Errorf("%s: wait %v", c.name, got.Wait)
			}
			seen[disposition] = true
		}
		if len(seen) != 5 {
			t.Errorf("dispositions %v", seen)
		}
	})
}

// S1-048: the same row is acquired where its namespace is run.
func TestWrongScopeIsLeftToItsOwner(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		for _, foreign := range []outbox.Scope{outbox.CloudScope("other"), outbox.CloudScope("", plane.Namespace), {}} {
			_, disposition, err := outbox.New(p.DB, foreign).LeaseDeployment(t.Context(), request(t, row))
			if err != nil || disposition != outbox.WrongScope || !equal(row, byID(t, p, row.ID)) && byID(t, p, row.ID).LeaseOwner != "" {
				t.Errorf("%v: %s, %v", foreign.Namespaces(), disposition, err)
			}
		}
		sharing := outbox.New(p.DB, outbox.CloudScope("other", plane.Namespace))
		_, disposition, err := sharing.LeaseDeployment(t.Context(), request(t, row))
		if err != nil || disposition != outbox.Acquired {
			t.Errorf("control: %s, %v", disposition, err)
		}
	})
}

// S1-322: an edge host shares its rows with nobody: what its provider does not
// accept is terminal for it and stays as it is, where a cloud environment says
// whose it may be. Its own row is acquired.
func TestForeignRowOfAnEdgeHost(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := byID(t, p, insert(t, p).ID)
		box := outbox.New(p.DB, outbox.OnPremScope("box"))
		_, disposition, err := box.LeaseDeployment(t.Context(), request(t, row))
		if err != nil || disposition != outbox.Terminal || !equal(row, byID(t, p, row.ID)) {
			t.Errorf("%s, %v", disposition, err)
		}
		at := plane.NewIn(t, p.DB, box.Scope())
		own := insertIn(t, at, box.Scope().Default().Namespace)
		_, disposition, err = box.LeaseDeployment(t.Context(), request(t, own))
		if err != nil || disposition != outbox.Acquired {
			t.Errorf("control: %s, %v", disposition, err)
		}
	})
}

// S1-063, S2-120, S2-122: 90 seconds from the database's clock under a fresh
// token of the form owner:uuid4; the mark is cleared.
func TestLeaseForm(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		first, second := insert(t, p), insert(t, p)
		before := now(t, p)
		a, b := lease(t, p, first), lease(t, p, second)
		row := byID(t, p, first.ID)
		if row.Status != models.OutboxLeased || row.LeaseOwner != a.Token || row.NextAttemptAt != nil || row.Attempts != 1 || a.Attempts != 1 || a.ReadOnly {
			t.Errorf("row %+v", row)
		}
		if row.LeaseExpiresAt.Sub(row.UpdatedAt) != 90*time.Second || row.UpdatedAt.Before(before) {
			t.Errorf("until %v, taken at %v", row.LeaseExpiresAt, row.UpdatedAt)
		}
		if a.Token == b.Token || !strings.HasPrefix(a.Token, "box:") || len(a.Token) != len("box:")+36 || a.Token[len("box:")+14] != '4' {
			t.Errorf("tokens %s, %s", a.Token, b.Token)
		}
	})
}

// S1-081, D19: a lease that finds the version deploying is GET-only and not
// counted; one that finds deploy_pending is.
func TestLeaseModeIsReadWithTheLease(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		v := p.Submit("one")
		row := p.Row(p.Admit(v).TicketID)
		free := func() { set(t, p, row.ID, "status = 'pending', lease_owner = '', lease_expires_at = NULL") }
		if held := lease(t, p, row); held.ReadOnly || held.Attempts != 1 {
			t.Errorf("deploy_pending: %+v", held)
		}
		free()
		p.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
		if held := lease(t, p, row); !held.ReadOnly || held.Attempts != 1 || byID(t, p, row.ID).Attempts != 1 {
			t.Errorf("deploying: %+v", held)
		}
		free()
		p.Exec("UPDATE edge_worker_versions SET state = 'deploy_pending' WHERE id = ?", v.ID)
		if held := lease(t, p, row); held.ReadOnly || held.Attempts != 2 {
			t.Errorf("again: %+v", held)
		}
	})
}

// S2-232, S2-233, S1-065, S1-066: only attempt 2 or later of the same AWS Batch
// job takes its own living lease; the same process does not.
func TestBatchReclaim(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		ask := func(job string, attempt int) (outbox.Lease, outbox.Disposition) {
			req := request(t, row)
			req.BatchJobID, req.BatchAttempt = job, attempt
			held, disposition, err := p.Outbox.LeaseDeployment(t.Context(), req)
			must(t, err)
			return held, disposition
		}
		first, disposition := ask("job-1", 1)
		if disposition != outbox.Acquired || !strings.HasPrefix(first.Token, "batch/job-1:") {
			t.Fatalf("%s %s", disposition, first.Token)
		}
		before := byID(t, p, row.ID)
		for _, c := range []struct {
			job     string
			attempt int
		}{{"job-1", 1}, {"job-2", 2}, {"job-", 2}, {"job-1:", 2}, {"", 2}, {"", 0}, {"JOB-1", 2}} {
			if _, disposition := ask(c.job, c.attempt); disposition != outbox.InFlight || !equal(before, byID(t, p, row.ID)) {
				t.Errorf("job %q, attempt %d: %s", c.job, c.attempt, disposition)
			}
		}
		second, disposition := ask("job-1", 2)
		if disposition != outbox.Acquired || second.Token == first.Token || byID(t, p, row.ID).LeaseOwner != second.Token {
			t.Errorf("attempt 2: %s", disposition)
		}
		if err := p.Outbox.Renew(t.Context(), first); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("the first attempt renews: %v", err)
		}
		plain := insert(t, p)
		lease(t, p, plain)
		if _, disposition, err := p.Outbox.LeaseDeployment(t.Context(), request(t, plain)); err != nil || disposition != outbox.InFlight {
			t.Errorf("the same owner: %s, %v", disposition, err)
		}
	})
}

// S2-118, S2-119: of eight deliveries at once exactly one gets the lease.
func TestConcurrentLeases(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		var mu sync.Mutex
		var wg sync.WaitGroup
		counts := map[outbox.Disposition]int{}
		req := request(t, row)
		for range 8 {
			wg.Go(func() {
				_, disposition, err := p.Outbox.LeaseDeployment(context.Background(), req)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				counts[disposition]++
			})
		}
		wg.Wait()
		if counts[outbox.Acquired] != 1 || counts[outbox.InFlight] != 7 || byID(t, p, row.ID).Attempts != 1 {
			t.Errorf("%v", counts)
		}
	})
}

// A lost commit acknowledgement is resolved by the fresh token: there, the
// lease is ours; not there, it is not.
func TestLeaseAcknowledgementLost(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		lost := errors.New("connection reset")
		row := insert(t, p)
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, lost) })
		held, disposition, err := p.Outbox.LeaseDeployment(t.Context(), request(t, row))
		p.DB.AfterCommit(nil)
		if err != nil || disposition != outbox.Acquired || byID(t, p, row.ID).LeaseOwner != held.Token {
			t.Errorf("committed: %s, %v", disposition, err)
		}
		other := insert(t, p)
		p.DB.AfterCommit(func(err error) error { // the commit did not last
			set(t, p, other.ID, "status = 'pending', lease_owner = '', lease_expires_at = NULL, attempts = 0")
			return errors.Join(err, lost)
		})
		_, disposition, err = p.Outbox.LeaseDeployment(t.Context(), request(t, other))
		p.DB.AfterCommit(nil)
		if !errors.Is(err, lost) || disposition != "" {
			t.Errorf("not committed: %q, %v", disposition, err)
		}
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, lost) })
		_, disposition, err = p.Outbox.LeaseDeployment(t.Context(), request(t, row))
		p.DB.AfterCommit(nil)
		if err != nil || disposition != outbox.InFlight {
			t.Errorf("nothing written: %s, %v", disposition, err)
		}
	})
}

// S2-121, S2-182: the living owner renews to 90 seconds from now and verifies;
// whoever lost the row, by time, owner or status, changes nothing.
func TestRenewAndVerify(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		held := lease(t, p, row)
		set(t, p, row.ID, "lease_expires_at = ?", now(t, p).Add(10*time.Second))
		must(t, p.Outbox.Verify(t.Context(), held))
		must(t, p.Outbox.Renew(t.Context(), held))
		renewed := byID(t, p, row.ID)
		if renewed.LeaseExpiresAt.Sub(renewed.UpdatedAt) != 90*time.Second || renewed.LeaseOwner != held.Token {
			t.Errorf("renewed %+v", renewed)
		}
		for name, columns := range map[string]string{
			"another owner": "lease_owner = 'thief:1'", "settled": "status = 'completed'", "returned": "status = 'pending'",
			"ended": "lease_expires_at = created_at",
		} {
			set(t, p, row.ID, columns)
			before := byID(t, p, row.ID)
			if err := p.Outbox.Renew(t.Context(), held); !errors.Is(err, outbox.ErrLeaseLost) {
				t.Errorf("%s: renewed, %v", name, err)
			}
			if err := p.Outbox.Verify(t.Context(), held); !errors.Is(err, outbox.ErrLeaseLost) {
				t.Errorf("%s: verified, %v", name, err)
			}
			if !equal(before, byID(t, p, row.ID)) {
				t.Errorf("%s: the row changed", name)
			}
			set(t, p, row.ID, "status = 'leased', lease_owner = ?, lease_expires_at = ?", held.Token, now(t, p).Add(time.Minute))
		}
		p.DB.AfterCommit(func(err error) error { return errors.Join(err, errors.New("reset")) })
		err := p.Outbox.Verify(t.Context(), held)
		p.DB.AfterCommit(nil)
		if err != nil {
			t.Errorf("verify with a lost acknowledgement: %v", err)
		}
	})
}

// Hold keeps the row until the transaction ends: nobody can take it over
// between the check and the commit.
func TestHoldKeepsTheRow(t *testing.T) {
	t.Parallel()
	p := plane.New(t, databasetest.MySQL(t))
	row := insert(t, p)
	held := lease(t, p, row)
	free := func() int {
		var rows []models.Outbox
		must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error { return tx.SkipLocked().Where("id = ?", row.ID).Find(&rows).Error }))
		return len(rows)
	}
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		_, err := outbox.Hold(tx, held)
		must(t, err)
		if free() != 0 {
			t.Error("the row was free inside the transaction")
		}
		return nil
	}))
	if free() != 1 {
		t.Error("control: the row is still held")
	}
}

// Settlements: one UPDATE that only the owner can make, on permitted edges,
// with the lease cleared; also outside the caller's scope (S1-045).
func TestSettle(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		settle := func(held outbox.Lease, to models.OutboxStatus, code, text string) error {
			return p.DB.Tx(t.Context(), func(tx *database.Tx) error { return outbox.Settle(tx, held, to, code, text) })
		}
		for to, text := range map[models.OutboxStatus]string{
			models.OutboxCompleted: "", models.OutboxFailed: "because", models.OutboxUncertain: "perhaps", models.OutboxCancelled: "",
		} {
			row := insert(t, p)
			held := lease(t, p, row)
			set(t, p, row.ID, "next_attempt_at = created_at, dispatch_namespace = 'elsewhere', last_error = 'old'")
			thief := held
			thief.Token = "box:other"
			if err := settle(thief, to, "code", text); !errors.Is(err, outbox.ErrLeaseLost) || byID(t, p, row.ID).Status != models.OutboxLeased {
				t.Errorf("%s by another owner: %v", to, err)
			}
			must(t, settle(held, to, "code", text))
			got := byID(t, p, row.ID)
			if got.Status != to || got.LeaseOwner != "" || got.LeaseExpiresAt != nil || got.NextAttemptAt != nil || got.LastErrorCode != "code" ||
				(got.LastError == nil) != (text == "") || (text != "" && *got.LastError != text) {
				t.Errorf("%s: %+v", to, got)
			}
			if err := settle(held, to, "", ""); !errors.Is(err, outbox.ErrLeaseLost) {
				t.Errorf("%s twice: %v", to, err)
			}
		}
		held := lease(t, p, insert(t, p))
		var forbidden models.ErrForbiddenTransition
		if err := settle(held, "deploying", "", ""); !errors.As(err, &forbidden) {
			t.Errorf("a step that is no edge: %v", err)
		}
	})
}

// S2-230: a retryable result goes back to pending without a delay and with the
// count that the caller gives; only the owner can do it.
func TestReturn(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		held := lease(t, p, row)
		give := func(l outbox.Lease) error {
			return p.DB.Tx(t.Context(), func(tx *database.Tx) error { return outbox.Return(tx, l, 0, "later") })
		}
		thief := held
		thief.Token = "box:other"
		if err := give(thief); !errors.Is(err, outbox.ErrLeaseLost) || byID(t, p, row.ID).Status != models.OutboxLeased {
			t.Errorf("by another owner: %v", err)
		}
		set(t, p, row.ID, "next_attempt_at = created_at")
		must(t, give(held))
		got := byID(t, p, row.ID)
		if got.Status != models.OutboxPending || got.NextAttemptAt != nil || got.LeaseOwner != "" || got.LeaseExpiresAt != nil ||
			got.Attempts != 0 || got.LastErrorCode != "later" {
			t.Errorf("%+v", got)
		}
		lease(t, p, row) // and it can be leased at once
	})
}
