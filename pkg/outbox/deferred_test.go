package outbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

// host is the scope of the edge host of these tests.
var host = outbox.OnPremScope("host-1")

func eachOnPrem(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.NewIn(t, db, host)) })
}

// gate sets the maintenance row as an outside hand would.
func gate(p *plane.Plane, columns string) {
	p.Exec("UPDATE edge_worker_maintenance SET " + columns)
}

const (
	opened  = "state = 'idle', restore_pending = 0, fence_id = ''"
	marked  = "last_error_code = 'edge_host_fenced'"
	longAgo = "updated_at = '2020-01-01 00:00:00'"
)

// pass claims everything that a pass claims, as ids in the order of the claims.
func pass(t *testing.T, o *outbox.Outbox) []string {
	t.Helper()
	var ids []string
	for p := o.ClaimDeferred(); ; {
		rows, err := p.Next(context.WithoutCancel(t.Context()))
		must(t, err)
		if len(rows) == 0 {
			return ids
		}
		for _, row := range rows {
			ids = append(ids, row.ID)
		}
	}
}

// S1-302, S1-315: through a closed gate neither sweep claims anything; through an
// open one each claims its own rows and none of the other's.
func TestClosedGateClaimsNothing(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		stalled, deferred := insertIn(t, p, host.Default().Namespace), insertIn(t, p, host.Default().Namespace)
		set(t, p, stalled.ID, longAgo)
		set(t, p, deferred.ID, longAgo+", "+marked)
		before := byID(t, p, stalled.ID)
		for _, closed := range []string{"state = 'active'", "restore_pending = 1", "fence_id = 'f'", "fence_id = 'ending:f'", "scope = 'onprem:another'"} {
			gate(p, closed)
			if rows := claimIn(t, p.Outbox, standard); len(rows) != 0 || !equal(before, byID(t, p, stalled.ID)) {
				t.Errorf("%s: recovered %d rows", closed, len(rows))
			}
			if ids := pass(t, p.Outbox); len(ids) != 0 || byID(t, p, deferred.ID).NextAttemptAt != nil {
				t.Errorf("%s: deferred %v", closed, ids)
			}
			gate(p, opened)
		}
		gate(p, "scope = '"+host.Default().Namespace+"'")
		if rows := claimIn(t, p.Outbox, standard); len(rows) != 1 || rows[0].ID != stalled.ID {
			t.Errorf("open: recovered %d rows", len(rows))
		}
		if ids := pass(t, p.Outbox); !slices.Equal(ids, []string{deferred.ID}) {
			t.Errorf("open: deferred %v", ids)
		}
	})
}

// S1-316, S1-319: what is claimed, and that a claimed row is left alone for 15
// seconds.
func TestDeferredClaim(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		row := insertIn(t, p, host.Default().Namespace)
		at := now(t, p).Truncate(time.Second)
		for name, columns := range map[string]string{
			"another code": "last_error_code = 'dispatch_refused'", "no code": "last_error_code = ''", "leased": "status = 'leased'",
			"uncertain": "status = 'uncertain'", "another operation": "operation = 'control_audit', ticket_id = ''", "another host": "dispatch_namespace = 'onprem:ffffffffffff'",
		} {
			set(t, p, row.ID, marked+", next_attempt_at = NULL")
			set(t, p, row.ID, columns)
			if ids := pass(t, p.Outbox); len(ids) != 0 {
				t.Errorf("%s was claimed", name)
			}
			set(t, p, row.ID, marked+", status = 'pending', operation = 'deploy', dispatch_namespace = ?", host.Default().Namespace)
		}
		set(t, p, row.ID, "next_attempt_at = ?", at.Add(time.Hour))
		if ids := pass(t, p.Outbox); len(ids) != 0 {
			t.Error("a row that is not due was claimed")
		}
		set(t, p, row.ID, "next_attempt_at = ?", at)
		before := now(t, p)
		if ids := pass(t, p.Outbox); !slices.Equal(ids, []string{row.ID}) {
			t.Errorf("claimed %v", ids)
		}
		next := byID(t, p, row.ID).NextAttemptAt // whole seconds, so up to one more
		if next.Before(before.Add(15*time.Second)) || !next.Before(now(t, p).Add(16*time.Second)) || next.Nanosecond() != 0 {
			t.Errorf("claimed after %v, left alone until %v", before, next)
		}
		if ids := pass(t, p.Outbox); len(ids) != 0 {
			t.Error("claimed within the cool-down")
		}
	})
}

// S1-317, S1-320: 101 rows in one pass, the oldest first and each once.
func TestDeferredPassTakesAll(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		var want []string
		for i := range 101 {
			id := insertIn(t, p, host.Default().Namespace).ID
			set(t, p, id, marked+", created_at = ?", time.Date(2026, 1, 1, 0, 0, 200-i, 0, time.UTC))
			want = append(want, id)
		}
		slices.Reverse(want)
		if got := pass(t, p.Outbox); !slices.Equal(got, want) {
			t.Errorf("claimed %d of %d in their order", len(got), len(want))
		}
	})
}

// S1-318: a row that another transaction holds is passed over without waiting.
func TestDeferredSkipsHeldRows(t *testing.T) {
	t.Parallel()
	p := plane.NewIn(t, databasetest.MySQL(t), host)
	held, free := insertIn(t, p, host.Default().Namespace), insertIn(t, p, host.Default().Namespace)
	set(t, p, held.ID, marked)
	set(t, p, free.ID, marked)
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var rows []models.Outbox
		must(t, tx.Locked().Where("id = ?", held.ID).Find(&rows).Error)
		if ids := pass(t, p.Outbox); !slices.Equal(ids, []string{free.ID}) {
			t.Errorf("claimed %v", ids)
		}
		return nil
	}))
	if ids := pass(t, p.Outbox); !slices.Equal(ids, []string{held.ID}) {
		t.Errorf("afterwards %v", ids)
	}
}

// S1-050: a cloud environment never has the sweep's rows, even over a marked one,
// which its recovery sweep finds.
func TestCloudDefersNothing(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		row := insert(t, p)
		set(t, p, row.ID, marked+", "+longAgo)
		if ids := pass(t, p.Outbox); len(ids) != 0 {
			t.Errorf("claimed %v", ids)
		}
		if rows := claimIn(t, p.Outbox, standard); len(rows) != 1 {
			t.Errorf("recovered %d rows", len(rows))
		}
	})
}

// S1-321: the acceptance clears the mark once and leaves a lost message to the
// recovery sweep; a row that somebody has taken is not touched. A lease ends the
// mark as well (S2-075).
func TestFenceRepublishAccepted(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		claimOne := func() models.Outbox {
			row := insertIn(t, p, host.Default().Namespace)
			set(t, p, row.ID, marked)
			rows, err := p.Outbox.ClaimDeferred().Next(t.Context())
			must(t, err)
			return rows[0]
		}
		row := claimOne()
		must(t, p.Outbox.FenceRepublishAccepted(t.Context(), row))
		got := byID(t, p, row.ID)
		if got.LastErrorCode != "" || got.NextAttemptAt != nil || got.Status != models.OutboxPending {
			t.Errorf("%+v", got)
		}
		if p.Outbox.FenceRepublishAccepted(t.Context(), row) == nil {
			t.Error("accepted twice")
		}
		if rows := claimIn(t, p.Outbox, standard); len(rows) != 0 {
			t.Error("recovered within the grace")
		}
		set(t, p, row.ID, longAgo)
		if rows := claimIn(t, p.Outbox, standard); len(rows) != 1 {
			t.Error("a lost message was not found")
		}
		taken := claimOne()
		set(t, p, taken.ID, "next_attempt_at = NULL")
		_, disposition, err := p.Outbox.LeaseDeployment(t.Context(), request(t, taken))
		if err != nil || disposition != outbox.Acquired || byID(t, p, taken.ID).LastErrorCode != "" {
			t.Errorf("leased: %s, %v, %q", disposition, err, byID(t, p, taken.ID).LastErrorCode)
		}
		before := byID(t, p, taken.ID)
		if p.Outbox.FenceRepublishAccepted(t.Context(), taken) == nil || !equal(before, byID(t, p, taken.ID)) {
			t.Error("a leased row was changed")
		}
	})
}

// S1-314: the mark is the row's first code; without a fence there is none.
func TestInsertBehindAFence(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		for _, code := range []string{"", outbox.CodeFenced} {
			var row models.Outbox
			must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
				var err error
				row, err = p.Outbox.InsertDeploy(tx, outbox.DeployIntent{
					Tenant: p.Tenant, Worker: models.Worker{ID: uuid.NewString()}, VersionID: "v", Location: host.Default(), Code: code,
				})
				return err
			}))
			if got := byID(t, p, row.ID); got.LastErrorCode != code || got.Status != models.OutboxPending {
				t.Errorf("%+v", got)
			}
		}
	})
}
