package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
)

// CleanupGrace is ARTIFACT_CLEANUP_GRACE_SECONDS=900: how long an intent waits
// before its objects may be deleted, which is longer than any submission
// (S0-67, S1-326).
const CleanupGrace = 900 * time.Second

// CodeNotCommitted is the default code of an intent that is made due at once
// (S0-72, S1-161).
const CodeNotCommitted = "submission_not_committed"

// CleanupIntent names the two objects that a submission is about to store.
type CleanupIntent struct {
	Tenant     models.Tenant
	ArtifactID string
	Project    CleanupItem
	Bundle     CleanupItem
	CreatedBy  string
}

// CleanupDedupeKey is artifact-cleanup:{artifact_id} (S0-66).
func CleanupDedupeKey(artifactID string) string { return "artifact-cleanup:" + artifactID }

// CreateCleanupIntent commits the intent in a transaction of its own, before
// any object is written (S0-64, S1-138). It falls due after CleanupGrace. A
// lost commit acknowledgement is resolved by reading the intent back.
func (o *Outbox) CreateCleanupIntent(ctx context.Context, in CleanupIntent) error {
	payload := CleanupPayload{Items: []CleanupItem{in.Project, in.Bundle}}
	err := payload.Validate()
	if err != nil {
		return err
	}
	text, err := encodePayload(payload)
	if err != nil {
		return err
	}
	err = o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		due := ceil(now.Add(CleanupGrace))
		return tx.Create(&models.Outbox{
			ID: uuid.NewString(), Operation: models.OperationArtifactCleanup, TicketID: uuid.NewString(),
			DedupeKey: CleanupDedupeKey(in.ArtifactID), Status: models.OutboxPending,
			CompanyID: in.Tenant.CompanyID, DepartmentID: in.Tenant.DepartmentID,
			DispatchNamespace: o.scope.Default().Namespace, Payload: text, NextAttemptAt: &due,
			CreatedBy: in.CreatedBy, CreatedAt: now, UpdatedAt: now,
		}).Error
	})
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		_, readErr := FindCleanup(o.db.Read(ctx), in.Tenant, in.ArtifactID)
		if readErr == nil {
			return nil
		}
		err = errors.Join(err, readErr)
	}
	if err != nil {
		return fmt.Errorf("commit the cleanup intent: %w", err)
	}
	return nil
}

// ErrNoIntent says that the tenant has no cleanup intent of the artifact.
var ErrNoIntent = errors.New("no such cleanup intent")

// FindCleanup reads an intent by its artifact's id (S0-71).
func FindCleanup(query *gorm.DB, tenant models.Tenant, artifactID string) (models.Outbox, error) {
	var rows []models.Outbox
	err := tenant.Own(query).
		Where("operation = ? AND dedupe_key = ?", models.OperationArtifactCleanup, CleanupDedupeKey(artifactID)).Find(&rows).Error
	if err != nil {
		return models.Outbox{}, fmt.Errorf("read the cleanup intent: %w", err)
	}
	if len(rows) == 0 {
		return models.Outbox{}, ErrNoIntent
	}
	return rows[0], nil
}

// ErrNotAdoptable says that the intent does not fit the version that wants to
// adopt it, or was already taken by a sweep: the version must not commit.
var ErrNotAdoptable = errors.New("the cleanup intent cannot be adopted")

// AdoptCleanup cancels the pending intent in the transaction that lands the
// version (S0-69, S1-157). It checks the tenant and the four keys and digests
// again (S1-158, S1-159) and points the row to the version. An intent that a
// sweep has once claimed is not adoptable even when it is pending again: its
// objects may be gone.
func AdoptCleanup(tx *database.Tx, in CleanupIntent, versionID string) error {
	var rows []models.Outbox
	err := in.Tenant.Own(tx.Locked()).
		Where("operation = ? AND dedupe_key = ?", models.OperationArtifactCleanup, CleanupDedupeKey(in.ArtifactID)).Find(&rows).Error
	if err != nil {
		return fmt.Errorf("lock the cleanup intent: %w", err)
	}
	if len(rows) != 1 || rows[0].Status != models.OutboxPending || rows[0].Attempts > 0 {
		return ErrNotAdoptable
	}
	var payload CleanupPayload
	err = decodePayload(rows[0], &payload)
	if err != nil {
		return errors.Join(ErrNotAdoptable, err)
	}
	if !slices.Equal(payload.Items, []CleanupItem{in.Project, in.Bundle}) {
		return fmt.Errorf("%w: its keys or digests differ", ErrNotAdoptable)
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	return database.Exactly(tx.Model(&models.Outbox{}).
		Where("id = ? AND status = ?", rows[0].ID, models.OutboxPending).
		UpdateColumns(map[string]any{
			"status": models.OutboxCancelled, "version_id": versionID, "next_attempt_at": nil, "updated_at": now,
		}), "adopt the cleanup intent")
}

// MakeCleanupDue makes the intent of a submission that did not commit due at
// once (S0-72, S1-160). A sweep that has it, or is done with it, did not see
// what was written last: its lease or its settlement is taken back. An adopted
// intent is left alone, and so is one that failed.
func (o *Outbox) MakeCleanupDue(ctx context.Context, tenant models.Tenant, artifactID, code string) error {
	if code == "" {
		code = CodeNotCommitted
	}
	err := o.db.Tx(ctx, func(tx *database.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		return tenant.Own(tx.Model(&models.Outbox{})).
			Where("operation = ? AND dedupe_key = ? AND status IN ?", models.OperationArtifactCleanup, CleanupDedupeKey(artifactID),
				[]models.OutboxStatus{models.OutboxPending, models.OutboxLeased, models.OutboxCompleted}).
			UpdateColumns(map[string]any{
				"status": models.OutboxPending, "next_attempt_at": now.Truncate(time.Second), "last_error_code": code,
				"lease_owner": "", "lease_expires_at": nil, "updated_at": now,
			}).Error
	})
	if err != nil {
		return fmt.Errorf("make the cleanup intent due: %w", err)
	}
	return nil
}
