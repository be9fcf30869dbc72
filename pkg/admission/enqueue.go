package admission

import (
	"math"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
)

// enqueue runs the outbox's steps of S2 in their order (S2-042): maintenance
// gate, Worker lock, existing rows, active check, sequence, insert, version
// state. The gate stays as it is until the commit, so that a row is either
// committed before a fence begins or marked by it. It reports whether the row
// is new.
func (d *Desk) enqueue(tx *database.Tx, in Request) (models.Outbox, bool, error) {
	gate, err := d.p.Outbox.Gate(tx)
	if err == nil {
		err = gate.Refusal()
	}
	if err != nil {
		return models.Outbox{}, false, err
	}
	if in.Settings != nil && !canonical.IsSHA256(in.Settings.Digest) {
		return models.Outbox{}, false, errDigestInvalid // S1-306
	}
	worker, err := version.WorkerOf(tx.Locked(), in.Tenant)
	if err != nil {
		return models.Outbox{}, false, err
	}
	at, err := d.location(worker)
	switch {
	case err != nil:
		return models.Outbox{}, false, errTargetLost.Because(err)
	case worker.MigrationNamespace != "":
		return models.Outbox{}, false, errMigrating
	case in.BaseRevision != worker.LatestRevision:
		return models.Outbox{}, false, errRevisionChanged
	}
	row, found, err := existing(tx, worker, in)
	if err != nil || found {
		return row, false, err
	}
	err = d.free(tx, worker, in)
	if err != nil {
		return models.Outbox{}, false, err
	}
	if worker.DeploymentSequence == math.MaxInt64 {
		return models.Outbox{}, false, errSequenceExhausted
	}
	if !d.p.Outbox.Scope().May(at.Namespace) {
		return models.Outbox{}, false, errTargetUnavailable
	}
	row, err = d.insert(tx, worker, at, mark(gate), in)
	return row, err == nil, err
}

// existing gives the ticket of an equal request that won a race (S2-050 to
// S2-054).
func existing(tx *database.Tx, worker models.Worker, in Request) (models.Outbox, bool, error) {
	rows, err := outbox.Deploys(tx.Locked(), worker.ID, in.VersionID)
	if err != nil {
		return models.Outbox{}, false, err
	}
	key := outbox.DedupeKey(worker.ID, in.VersionID, in.BaseRevision, in.settingsDigest())
	for _, row := range rows {
		if row.DedupeKey != key {
			return models.Outbox{}, false, errDigestDiffers
		}
	}
	if len(rows) == 0 {
		return models.Outbox{}, false, nil
	}
	err = repeatable(rows[0], worker)
	if err != nil {
		return models.Outbox{}, false, err
	}
	return rows[0], true, nil
}

// free checks that no revision and no row of the Worker is still on its way
// and that the version may start (S2-055 to S2-057).
func (d *Desk) free(tx *database.Tx, worker models.Worker, in Request) error {
	var busy int64
	err := tx.Model(&models.Version{}).Where("worker_id = ? AND state IN ?", worker.ID,
		[]models.VersionState{models.VersionDeployPending, models.VersionDeploying, models.VersionUncertain}).Count(&busy).Error
	if err != nil {
		return err
	}
	if busy > 0 {
		return errActive
	}
	target, err := version.Of(tx.Locked(), in.Tenant, in.VersionID)
	if err != nil {
		return err
	}
	if target.State != models.VersionReady {
		return errNotReady(target.State)
	}
	live, err := outbox.HasUnreleased(tx.DB, worker.ID)
	if err != nil {
		return err
	}
	if live {
		return errActive
	}
	return nil
}

// insert writes the row, the sequence and the version's state (S2-058, S2-059,
// S2-062, S2-071), and the Worker's location if it had none.
func (d *Desk) insert(tx *database.Tx, worker models.Worker, at outbox.Location, code string, in Request) (models.Outbox, error) {
	sequence := worker.DeploymentSequence + 1
	row, err := d.p.Outbox.InsertDeploy(tx, outbox.DeployIntent{
		Tenant: in.Tenant, Worker: worker, VersionID: in.VersionID, BaseRevision: in.BaseRevision,
		SettingsDigest: in.settingsDigest(), Sequence: sequence, Location: at, CreatedBy: in.Actor.ID, Code: code,
	})
	if err != nil {
		return models.Outbox{}, err
	}
	err = version.SetWorker(tx, worker.ID, map[string]any{
		"deployment_sequence": sequence, "serving_kind": at.Kind, "serving_namespace": at.Namespace,
	})
	if err != nil {
		return models.Outbox{}, err
	}
	err = version.Move(tx, in.VersionID, models.VersionReady, models.VersionDeployPending, version.Evidence{})
	if err != nil {
		return models.Outbox{}, err
	}
	return row, audit.Write(tx, audit.Fact{
		ID: audit.ID("deployment.admitted", row.ID), Tenant: in.Tenant, Actor: in.Actor, Action: "deployment.admitted",
		ResourceType: "edge_worker", ResourceID: worker.ID, Result: audit.Succeeded,
	})
}

// mark is the last_error_code of a row that comes in through a gate (S2-073).
func mark(gate maintenance.Gate) string {
	if gate == maintenance.Fenced {
		return outbox.CodeFenced
	}
	return ""
}
