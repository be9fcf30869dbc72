package maintenance_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/maintenance/maintenancetest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
)

const scope = "onprem:0123456789ab"

var operator = audit.Actor{Type: "user", ID: "user:operator", Method: "bearer_jwt", RequestID: "r"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a keeper over a database and the model of an edge host.
type site struct {
	*maintenance.Keeper
	t    *testing.T
	db   *database.DB
	host *maintenancetest.Host
}

func each(t *testing.T, run func(t *testing.T, s *site)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := newSite(t, db, nil)
		_, err := s.Prepare(t.Context())
		must(t, err)
		run(t, s)
	})
}

func newSite(t *testing.T, db *database.DB, reader maintenance.Reader) *site {
	t.Helper()
	host := maintenancetest.Start(t)
	client, err := onprem.New(onprem.Params{Origin: host.URL, Token: maintenancetest.Token})
	must(t, err)
	keeper, err := maintenance.New(maintenance.Params{DB: db, Scope: scope, Host: client, Reader: reader, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return &site{keeper, t, db, host}
}

func (s *site) row() models.Maintenance {
	s.t.Helper()
	var row models.Maintenance
	must(s.t, s.db.Read(context.Background()).Where("scope = ?", scope).Take(&row).Error)
	return row
}

func (s *site) set(columns string, args ...any) {
	s.t.Helper()
	must(s.t, s.db.Read(context.Background()).Exec("UPDATE edge_worker_maintenance SET "+columns, args...).Error)
}

func (s *site) gate() maintenance.Gate {
	s.t.Helper()
	peeked, err := maintenance.Peek(s.db.Read(context.Background()), scope)
	must(s.t, err)
	var held maintenance.Gate
	must(s.t, s.db.Tx(context.Background(), func(tx *database.Tx) error {
		held, err = maintenance.Hold(tx, scope)
		return err
	}))
	status, err := s.Status(context.Background())
	must(s.t, err)
	if held != peeked || status.Gate != peeked {
		s.t.Errorf("held %s, peeked %s, status %s", held, peeked, status.Gate)
	}
	return peeked
}

func (s *site) wantGate(want maintenance.Gate) {
	s.t.Helper()
	if got := s.gate(); got != want {
		s.t.Errorf("gate %s, want %s", got, want)
	}
}

// facts are the actions so far, sorted; every one is about this scope and no tenant.
func (s *site) wantFacts(want ...string) {
	s.t.Helper()
	var rows []models.AuditLog
	must(s.t, s.db.Read(context.Background()).Find(&rows).Error)
	got := make([]string, 0, len(rows))
	for _, row := range rows {
		got = append(got, row.Action)
		if row.CompanyID != "" || row.DepartmentID != "" || row.ResourceType != "edge_worker_maintenance" || row.ResourceID != scope || row.Result != audit.Succeeded {
			s.t.Errorf("fact %+v", row)
		}
	}
	for i := range want {
		want[i] = "maintenance." + want[i]
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("facts %v, want %v", got, want)
	}
}

func (s *site) reconcile(want maintenance.Confirmation) {
	s.t.Helper()
	got, err := s.Reconcile(context.Background())
	if err != nil || got != want {
		s.t.Errorf("reconciled: %s, %v; want %s", got, err, want)
	}
}

func (s *site) begin(confirmed bool) maintenance.Status {
	s.t.Helper()
	status, ok, err := s.BeginFence(context.Background(), operator)
	if err != nil || ok != confirmed {
		s.t.Fatalf("begin: %+v, confirmed %v, %v", status, ok, err)
	}
	return status
}

func (s *site) end(confirmed bool) maintenance.Status {
	s.t.Helper()
	status, ok, err := s.EndFence(context.Background(), operator)
	if err != nil || ok != confirmed {
		s.t.Fatalf("end: %+v, confirmed %v, %v", status, ok, err)
	}
	return status
}

func up(id string) provider.Fence    { return provider.Fence{Active: id} }
func ended(id string) provider.Fence { return provider.Fence{Ended: id} }
