package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/plane"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// insertIn writes the deploy row of a Worker that exists nowhere else.
func insertIn(t *testing.T, p *plane.Plane, namespace string) models.Outbox {
	t.Helper()
	var row models.Outbox
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var err error
		row, err = p.Outbox.InsertDeploy(tx, outbox.DeployIntent{
			Tenant: p.Tenant, Worker: models.Worker{ID: uuid.NewString(), ScriptName: "dw-x"}, VersionID: uuid.NewString(),
			BaseRevision: 1, Sequence: 1, Location: outbox.Location{Kind: outbox.ServingLegacy, Namespace: namespace}, CreatedBy: "user:x",
		})
		return err
	}))
	return row
}

func insert(t *testing.T, p *plane.Plane) models.Outbox {
	t.Helper()
	return insertIn(t, p, plane.Namespace)
}

// byID reads any row back.
func byID(t *testing.T, p *plane.Plane, id string) models.Outbox {
	t.Helper()
	var row models.Outbox
	must(t, p.DB.Read(context.WithoutCancel(t.Context())).Where("id = ?", id).Take(&row).Error)
	return row
}

// set changes columns of a row as an outside hand would.
func set(t *testing.T, p *plane.Plane, id, columns string, args ...any) {
	t.Helper()
	p.Exec("UPDATE edge_worker_outbox SET "+columns+" WHERE id = ?", append(args, id)...)
}

// now is the database's clock.
func now(t *testing.T, p *plane.Plane) time.Time {
	t.Helper()
	var at time.Time
	must(t, p.DB.Tx(t.Context(), func(tx *database.Tx) error {
		var err error
		at, err = tx.Now()
		return err
	}))
	return at
}

// equal compares every column; the zone's name is the driver's business.
func equal(a, b models.Outbox) bool {
	left, err := json.Marshal(a)
	right, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(left, right)
}

// request asks for a row as its message would.
func request(t *testing.T, row models.Outbox) outbox.LeaseRequest {
	t.Helper()
	payload, err := outbox.DecodeDeploy(row)
	must(t, err)
	return outbox.LeaseRequest{
		OutboxID: row.ID, Tenant: models.Tenant{CompanyID: row.CompanyID, DepartmentID: row.DepartmentID},
		MessageID: payload.MessageID, Owner: "box",
	}
}

// lease takes a row that is free.
func lease(t *testing.T, p *plane.Plane, row models.Outbox) outbox.Lease {
	t.Helper()
	held, disposition, err := p.Outbox.LeaseDeployment(t.Context(), request(t, row))
	must(t, err)
	if disposition != outbox.Acquired {
		t.Fatalf("disposition %s", disposition)
	}
	return held
}

// openGate gives an edge host the row that its API creates.
func openGate(t *testing.T, p *plane.Plane, scope outbox.Scope) {
	t.Helper()
	keeper, err := maintenance.New(maintenance.Params{DB: p.DB, Scope: scope.Default().Namespace, Log: p.Log})
	must(t, err)
	_, err = keeper.Prepare(t.Context())
	must(t, err)
}
