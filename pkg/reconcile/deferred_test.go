package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

func eachOnPrem(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.NewIn(t, db, outbox.OnPremScope("host-1"))) })
}

func deferred(t *testing.T, p *plane.Plane) reconcile.Result {
	t.Helper()
	lane := reconcile.NewDeferred(reconcile.RepublishParams{Outbox: p.Outbox, Mirror: p.Mirror, Publisher: p.Published, Log: p.Log})
	result, err := lane.RunOnce(t.Context(), time.Minute)
	must(t, err)
	return result
}

func fence(p *plane.Plane, id string) {
	p.Exec("UPDATE edge_worker_maintenance SET fence_id = ?", id)
}

// S1-050, S1-315, S1-321, S2-074, S2-075: a deployment from behind the fence is
// published by nobody before the fence's end, and after it once, although both
// lanes run; it then deploys, and its mark is gone.
func TestDeferredDeployment(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		fence(p, "f")
		row := p.Row(p.Admit(p.Submit("one")).TicketID)
		p.Exec(stalled)
		if a, b := round(t, republisher(p, nil)), deferred(t, p); len(a) != 0 || len(b) != 0 || len(p.Published.Messages()) != 0 {
			t.Errorf("behind the fence: %v, %v", a, b)
		}
		fence(p, "ending:f")
		if b := deferred(t, p); len(b) != 0 || p.Row(row.TicketID).LastErrorCode != "edge_host_fenced" {
			t.Errorf("before the end is confirmed: %v", b)
		}
		fence(p, "")
		a, b, again := round(t, republisher(p, nil)), deferred(t, p), round(t, republisher(p, nil))
		if len(a) != 0 || b["published"] != 1 || len(again) != 0 || len(p.Published.Messages()) != 1 {
			t.Errorf("after it: %v, %v, %v, %d messages", a, b, again, len(p.Published.Messages()))
		}
		if got := p.Row(row.TicketID); got.LastErrorCode != "" {
			t.Errorf("code %q", got.LastErrorCode)
		}
		must(t, p.Task(nil).Handle(context.Background(), p.Published.Messages()[0]))
		if got := p.Row(row.TicketID); got.Status != models.OutboxCompleted {
			t.Errorf("%+v", got)
		}
	})
}

// S1-321: a refused publication, and one whose outcome is not known, leave the
// mark; a later round publishes the row again.
func TestDeferredRefusal(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		fence(p, "f")
		row := p.Row(p.Admit(p.Submit("one")).TicketID)
		fence(p, "")
		for _, refusal := range []error{transports.ErrRefused, errors.New("no answer")} {
			p.Published.Err = refusal
			if result := deferred(t, p); result["unpublished"] != 1 {
				t.Errorf("%v", result)
			}
			if got := p.Row(row.TicketID); got.LastErrorCode != "edge_host_fenced" || got.NextAttemptAt == nil {
				t.Errorf("%v: %+v", refusal, got)
			}
			if result := deferred(t, p); len(result) != 0 {
				t.Errorf("within the cool-down: %v", result)
			}
			p.Exec("UPDATE edge_worker_outbox SET next_attempt_at = '2020-01-01 00:00:00' WHERE id = ?", row.ID)
		}
		p.Published.Err = nil
		if result := deferred(t, p); result["published"] != 1 || p.Row(row.TicketID).LastErrorCode != "" {
			t.Errorf("%v", result)
		}
	})
}

// S1-050, S1-314: a run that the host's fence deferred is found by the same lane,
// and a marked row of which no message may speak is settled there.
func TestDeferredSettlesWhatItCannotPublish(t *testing.T) {
	eachOnPrem(t, func(t *testing.T, p *plane.Plane) {
		fence(p, "f")
		broken := p.Row(p.Admit(p.Submit("one")).TicketID)
		fence(p, "")
		orphans(t, p, 1)
		p.Exec("UPDATE edge_worker_outbox SET last_error_code = 'edge_host_fenced' WHERE operation = 'deploy'")
		p.Exec("UPDATE edge_worker_outbox SET payload = '{' WHERE id = ?", broken.ID)
		if result := deferred(t, p); result["worker_deleted"] != 1 || result["isolated"] != 1 || len(p.Published.Messages()) != 0 {
			t.Errorf("%v", result)
		}
	})
}

// keeper answers as a test says.
type keeper struct {
	found maintenance.Confirmation
	err   error
}

func (k keeper) Reconcile(context.Context) (maintenance.Confirmation, error) { return k.found, k.err }

// S1-344: the lane counts what it did, and nothing where both sides agree.
func TestFenceLane(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keeper keeper
		want   reconcile.Result
	}{
		{keeper{found: maintenance.Agree}, reconcile.Result{}},
		{keeper{found: maintenance.EndAgain}, reconcile.Result{"end_again": 1}},
		{keeper{err: errors.New("no host")}, reconcile.Result{}},
	} {
		got, err := reconcile.NewFences(c.keeper).RunOnce(t.Context(), time.Minute)
		if !errors.Is(err, c.keeper.err) || len(got) != len(c.want) || got["end_again"] != c.want["end_again"] {
			t.Errorf("%v, %v", got, err)
		}
	}
}
