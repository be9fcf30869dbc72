package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
)

// ControlRequestGrace is CONTROL_AUDIT_REQUEST_GRACE_SECONDS=300: how long a
// control row belongs to the request that wrote it (S1-323). A command is
// answered or given up long before.
const ControlRequestGrace = 300 * time.Second

// ControlCommand is a validated command; the outbox stores what it says may be
// stored and sees nothing else of it.
type ControlCommand interface {
	Operation() string
	// Digest is the command digest by which the Worker knows the command.
	Digest() string
	// Stored is a JSON object of digests and of fields that are no secret.
	Stored() json.RawMessage
}

// ControlActor is who asked for a change, as the audit fact will say.
type ControlActor struct {
	Type, ID, Method, RequestID string
}

// ControlIntent is a command that is about to be sent.
type ControlIntent struct {
	// ID is the mutation's id and becomes the row's and the audit fact's
	// (S1-164): a UUID.
	ID     string
	Tenant models.Tenant
	// Worker is the tenant's Worker, locked by the transaction, with its live
	// release's generation.
	Worker            models.Worker
	ReleaseGeneration string
	Command           ControlCommand
	Actor             ControlActor
}

// ControlPayload is what a control row carries (S3-33).
type ControlPayload struct {
	OutboxID          string          `json:"outbox_id"`
	CompanyID         string          `json:"company_id"`
	DepartmentID      string          `json:"department_id"`
	WorkerID          string          `json:"worker_id"`
	ScriptName        string          `json:"script_name"`
	Operation         string          `json:"operation"`
	CommandDigest     string          `json:"command_digest"`
	ReleaseGeneration string          `json:"release_generation"`
	Command           json.RawMessage `json:"command"`
	ActorType         string          `json:"actor_type"`
	ActorID           string          `json:"actor_id"`
	AuthMethod        string          `json:"auth_method"`
	RequestID         string          `json:"request_id"`
	// Serving is where the Worker was served, recorded for shared locations
	// only: a row of a Worker at a legacy location has none (S1-224).
	Serving *Location `json:"serving_location"`
}

// EnqueueControlAudit writes the row of a command in the caller's transaction,
// which commits before the command is sent (D12). The row takes the namespace
// of the location that the Worker records (S1-026, S1-029); it belongs to the
// request for ControlRequestGrace, and to the recovery lane after that.
func (o *Outbox) EnqueueControlAudit(tx *database.Tx, in ControlIntent) (models.Outbox, error) {
	now, err := tx.Now()
	if err != nil {
		return models.Outbox{}, err
	}
	at := Location{Kind: in.Worker.ServingKind, Namespace: in.Worker.ServingNamespace}
	if at == (Location{}) {
		at = o.scope.Default()
	}
	due := ceil(now.Add(ControlRequestGrace))
	row := models.Outbox{
		ID: in.ID, Operation: models.OperationControlAudit, TicketID: uuid.NewString(), DedupeKey: "control:" + in.ID, Status: models.OutboxPending,
		CompanyID: in.Tenant.CompanyID, DepartmentID: in.Tenant.DepartmentID, WorkerID: in.Worker.ID, VersionID: in.Worker.CurrentVersionID,
		ScriptName: in.Worker.ScriptName, DispatchNamespace: at.Namespace, NextAttemptAt: &due,
		CreatedBy: in.Actor.ID, CreatedAt: now, UpdatedAt: now,
	}
	payload := ControlPayload{
		OutboxID: row.ID, CompanyID: row.CompanyID, DepartmentID: row.DepartmentID, WorkerID: row.WorkerID, ScriptName: row.ScriptName,
		Operation: in.Command.Operation(), CommandDigest: in.Command.Digest(), ReleaseGeneration: in.ReleaseGeneration, Command: in.Command.Stored(),
		ActorType: in.Actor.Type, ActorID: in.Actor.ID, AuthMethod: in.Actor.Method, RequestID: in.Actor.RequestID,
	}
	if at.Kind == ServingShared {
		payload.Serving = &at
	}
	err = payload.validate(row)
	if err != nil {
		return models.Outbox{}, err
	}
	if row.DispatchNamespace == "" {
		return models.Outbox{}, fmt.Errorf("%w: the Worker is served nowhere", errPayload)
	}
	row.Payload, err = encodePayload(payload)
	if err != nil {
		return models.Outbox{}, err
	}
	if len(*row.Payload) > maxControlPayload {
		return models.Outbox{}, fmt.Errorf("%w: more than %d bytes", errPayload, maxControlPayload)
	}
	err = tx.Create(&row).Error
	if err != nil {
		return models.Outbox{}, fmt.Errorf("insert the control row: %w", err)
	}
	return row, nil
}

// maxControlPayload is what a TEXT column holds.
const maxControlPayload = 65_535

// validate checks that the payload speaks of the row and has its form.
func (p ControlPayload) validate(row models.Outbox) error {
	id, err := uuid.Parse(p.OutboxID)
	if err != nil || id.String() != p.OutboxID {
		return fmt.Errorf("%w: the mutation id is not a UUID", errPayload)
	}
	same := p.OutboxID == row.ID && p.CompanyID == row.CompanyID && p.DepartmentID == row.DepartmentID &&
		p.WorkerID == row.WorkerID && p.ScriptName == row.ScriptName
	if !same || p.CompanyID == "" || p.DepartmentID == "" || p.WorkerID == "" || p.ActorID == "" {
		return fmt.Errorf("%w: it speaks of another row", errPayload)
	}
	if !models.IsScriptName(p.ScriptName) { // S1-248
		return fmt.Errorf("%w: script_name", errPayload)
	}
	if p.Operation == "" || !canonical.IsSHA256(p.CommandDigest) || !canonical.IsSHA256(p.ReleaseGeneration) || len(p.Command) == 0 {
		return fmt.Errorf("%w: operation, command or a digest", errPayload)
	}
	if p.Serving != nil && (p.Serving.Kind != ServingShared || p.Serving.Namespace == "") {
		return fmt.Errorf("%w: serving_location", errPayload)
	}
	return nil
}

// DecodeControl reads the payload of a control row and checks that it speaks of
// that very row. Whether the command in it can be used is for pkg/settings.
func DecodeControl(row models.Outbox) (ControlPayload, error) {
	var p ControlPayload
	err := decodePayload(row, &p)
	if err != nil {
		return ControlPayload{}, err
	}
	return p, p.validate(row)
}

// CompleteControl ends the row of a mutation that is known to be applied, in
// the transaction that writes its audit fact. The row must still be the
// request's as it was enqueued, or models.ErrStaleTransition: then the recovery
// lane has it and writes the same fact. Its receipt is due to be acknowledged.
func CompleteControl(tx *database.Tx, row models.Outbox) error {
	return endRequest(tx, row, models.OutboxCompleted, "", "")
}

// RefuseControl ends the row of a command that the Worker definitely did not
// apply, such as one that conflicts. No audit fact belongs to it.
func RefuseControl(tx *database.Tx, row models.Outbox, code, text string) error {
	return endRequest(tx, row, models.OutboxFailed, code, text)
}

// endRequest is one UPDATE fenced by (id, pending, mark).
func endRequest(tx *database.Tx, row models.Outbox, to models.OutboxStatus, code, text string) error {
	now, err := tx.Now()
	if err != nil {
		return err
	}
	ended := tx.Model(&models.Outbox{}).
		Where("id = ? AND operation = ? AND status = ? AND next_attempt_at = ?", row.ID, models.OperationControlAudit, models.OutboxPending, row.NextAttemptAt).
		UpdateColumns(endColumns(to, code, text, now))
	return database.Exactly(ended, "end the request's control row")
}

// endColumns are those of a row that ends; a completed one is due at once for
// the acknowledgement of its receipt, with its attempts counted anew.
func endColumns(to models.OutboxStatus, code, text string, now time.Time) map[string]any {
	columns := map[string]any{
		"status": to, "lease_owner": "", "lease_expires_at": nil, "next_attempt_at": nil,
		"last_error_code": code, "last_error": nullable(text), "updated_at": now,
	}
	if to == models.OutboxCompleted {
		columns["next_attempt_at"], columns["attempts"] = now.Truncate(time.Second), 0
	}
	return columns
}
