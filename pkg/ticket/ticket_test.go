package ticket_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/test/plane"
)

// each gives an admitted deployment's row to the test.
func each(t *testing.T, run func(t *testing.T, p *plane.Plane, row models.Outbox)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := plane.New(t, db)
		run(t, p, p.Row(p.Admit(p.Submit("one")).TicketID))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, p *plane.Plane, row models.Outbox) ticket.Status {
	t.Helper()
	view, err := p.Mirror.View(t.Context(), p.DB, p.Tenant, row.TicketID)
	must(t, err)
	return view.Status
}

func put(t *testing.T, p *plane.Plane, row models.Outbox, s ticket.Status) {
	t.Helper()
	must(t, p.Mirror.Put(t.Context(), row, s))
}

func setStatus(p *plane.Plane, row models.Outbox, s models.OutboxStatus) {
	p.Exec("UPDATE edge_worker_outbox SET status = ? WHERE id = ?", s, row.ID)
}

// S2-259, S3-69: exactly the eight keys; an unset error code is null and a set
// one is its text.
func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		for code, want := range map[string]string{"": "null", "edge_host_fenced": `"edge_host_fenced"`} {
			p.Exec("UPDATE edge_worker_outbox SET last_error_code = ? WHERE id = ?", code, row.ID)
			view, err := p.Mirror.View(t.Context(), p.DB, p.Tenant, row.TicketID)
			must(t, err)
			raw, err := json.Marshal(view)
			must(t, err)
			var fields map[string]json.RawMessage
			must(t, json.Unmarshal(raw, &fields))
			keys := []string{"company_id", "department_id", "error_code", "operation", "status", "ticket_id", "version_id", "worker_id"}
			if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, keys) {
				t.Errorf("keys %v", got)
			}
			for key, value := range map[string]string{
				"ticket_id": `"` + row.TicketID + `"`, "operation": `"deploy"`, "company_id": `"` + p.Tenant.CompanyID + `"`, "department_id": `"` + p.Tenant.DepartmentID + `"`,
				"status": `"pending"`, "worker_id": `"` + row.WorkerID + `"`, "version_id": `"` + row.VersionID + `"`, "error_code": want,
			} {
				if string(fields[key]) != value {
					t.Errorf("%s is %s, want %s", key, fields[key], value)
				}
			}
		}
	})
}

// S2-260, S2-263, S2-264, S2-265: the vocabulary, which of it is final, and
// that the two finer statuses can be no row's.
func TestVocabulary(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		for s, final := range map[ticket.Status]bool{
			ticket.Submitting: false, ticket.Pending: false, ticket.Leased: false, ticket.Deploying: false, ticket.Uncertain: false,
			ticket.Completed: true, ticket.Failed: true, ticket.Cancelled: true,
		} {
			if s.Terminal() != final {
				t.Errorf("%s", s)
			}
			err := p.DB.Read(t.Context()).Exec("UPDATE edge_worker_outbox SET status = ? WHERE id = ?", s, row.ID).Error
			if durable := s != ticket.Submitting && s != ticket.Deploying; (err == nil) != durable || (err != nil && !database.IsCheckViolation(err)) {
				t.Errorf("a row of status %s: %v", s, err)
			}
		}
	})
}

// S2-262, S2-267, S2-270: the mirror refines a leased row and no other; an old
// mirror never moves a settled ticket.
func TestMirrorOnlyRefinesLeased(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		put(t, p, row, ticket.Deploying)
		for _, s := range []models.OutboxStatus{models.OutboxPending, models.OutboxCompleted, models.OutboxFailed, models.OutboxCancelled, models.OutboxUncertain} {
			setStatus(p, row, s)
			if got := status(t, p, row); got != ticket.Status(s) {
				t.Errorf("a %s row is shown as %s", s, got)
			}
		}
		setStatus(p, row, models.OutboxLeased)
		if got := status(t, p, row); got != ticket.Deploying {
			t.Errorf("control: %s", got)
		}
	})
}

// S2-268, D19: each of the five identity fields altered alone is ignored.
func TestMirrorIdentity(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		setStatus(p, row, models.OutboxLeased)
		put(t, p, row, ticket.Deploying)
		key := "edge-workers:ticket:" + row.TicketID
		raw, err := p.Redis.Get(t.Context(), key).Bytes()
		must(t, err)
		var fields map[string]any
		must(t, json.Unmarshal(raw, &fields))
		identity := []string{"company_id", "department_id", "ticket_id", "version_id", "worker_id"}
		if keys := slices.Sorted(maps.Keys(fields)); !slices.Equal(keys, slices.Sorted(slices.Values(append(slices.Clone(identity), "status")))) {
			t.Errorf("mirrored %v", keys)
		}
		for _, name := range identity {
			for _, value := range []any{"other", "", nil} {
				altered := maps.Clone(fields)
				altered[name] = value
				raw, err := json.Marshal(altered)
				must(t, err)
				must(t, p.Redis.Set(t.Context(), key, raw, time.Minute).Err())
				if got := status(t, p, row); got != ticket.Leased {
					t.Errorf("%s altered to %v: %s", name, value, got)
				}
			}
		}
		must(t, p.Redis.Set(t.Context(), key, raw, time.Minute).Err())
		if got := status(t, p, row); got != ticket.Deploying {
			t.Errorf("control: %s", got)
		}
	})
}

// S2-269: only leased and deploying are taken from the mirror; whatever else
// lies there is ignored.
func TestMirrorStatus(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		setStatus(p, row, models.OutboxLeased)
		for _, s := range []ticket.Status{ticket.Submitting, ticket.Pending, ticket.Completed, ticket.Failed, ticket.Cancelled, ticket.Uncertain, "moon", "", ticket.Leased} {
			put(t, p, row, s)
			if got := status(t, p, row); got != ticket.Leased {
				t.Errorf("mirrored %q is shown as %s", s, got)
			}
		}
		for _, junk := range []string{"", "{", "null", "[]", `"deploying"`} {
			must(t, p.Redis.Set(t.Context(), "edge-workers:ticket:"+row.TicketID, junk, time.Minute).Err())
			if got := status(t, p, row); got != ticket.Leased {
				t.Errorf("mirrored %q is shown as %s", junk, got)
			}
		}
		must(t, p.Redis.Del(t.Context(), "edge-workers:ticket:"+row.TicketID).Err())
		if got := status(t, p, row); got != ticket.Leased {
			t.Errorf("no mirror: %s", got)
		}
		put(t, p, row, ticket.Deploying)
		if ttl := p.Redis.PTTL(t.Context(), "edge-workers:ticket:"+row.TicketID).Val(); ttl > 7*24*time.Hour || ttl < 7*24*time.Hour-time.Minute || status(t, p, row) != ticket.Deploying {
			t.Errorf("control: lives %v", ttl)
		}
	})
}

// S2-262: without Redis the row alone is the answer; a mirror that must be
// written says that it was not.
func TestWithoutRedis(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		put(t, p, row, ticket.Deploying)
		setStatus(p, row, models.OutboxLeased)
		p.Mirror = ticket.NewMirror(plane.DeadRedis(t), p.Log)
		if got := status(t, p, row); got != ticket.Leased {
			t.Errorf("%s", got)
		}
		if err := p.Mirror.Put(t.Context(), row, ticket.Submitting); err == nil {
			t.Error("written without Redis")
		}
	})
}

// D4, S3-34: another tenant's ticket, the row's own id and no id are the same
// 404; a database that is gone is not one.
func TestNotFound(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane, row models.Outbox) {
		for _, c := range []struct {
			tenant models.Tenant
			id     string
		}{
			{p.Tenant, row.ID}, {p.Tenant, ""}, {p.Tenant, "nobody"}, {models.Tenant{CompanyID: "other", DepartmentID: p.Tenant.DepartmentID}, row.TicketID},
			{models.Tenant{CompanyID: p.Tenant.CompanyID, DepartmentID: "other"}, row.TicketID}, {models.Tenant{}, row.TicketID},
		} {
			_, err := p.Mirror.View(t.Context(), p.DB, c.tenant, c.id)
			if f := fault.As(err); !errors.Is(err, ticket.ErrNotFound) || f.Kind != fault.NotFound || f.Message != "Deployment ticket not found" {
				t.Errorf("%+v: %v", c, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Mirror.View(gone, p.DB, p.Tenant, row.TicketID); err == nil || errors.Is(err, ticket.ErrNotFound) {
			t.Errorf("unreadable: %v", err)
		}
		status(t, p, row)
	})
}
