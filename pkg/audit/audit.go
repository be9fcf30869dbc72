// Package audit writes the append-only facts of edge_worker_audit_logs. A
// fact is written in the transaction of the change that it records, so that
// each change is audited exactly once. Facts hold digests and ids, never
// source, bundles or credentials (S3-59).
package audit

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database"
)

// Results of a fact.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Uncertain = "uncertain"
)

// Actor is who caused a change.
type Actor struct {
	Type   string // "user", "system", …
	ID     string
	Method string // how the actor proved its identity
	// RequestID ties the fact to the request that caused it, if any.
	RequestID string
}

// System is the actor of what the control plane does by itself.
func System(name string) Actor {
	return Actor{Type: "system", ID: "system:" + name, Method: "internal"}
}

// Fact is one event.
type Fact struct {
	// ID makes the fact idempotent: the same id with the same facts is written
	// once, with other facts it is refused (S3-65, S1-166).
	ID           string
	Tenant       models.Tenant
	Actor        Actor
	Action       string
	ResourceType string
	ResourceID   string
	Result       string
	ReasonCode   string
	Digest       string
}

// ErrDrift is the refusal of an id that other facts already have (S1-166).
var ErrDrift = errors.New("audit id is already bound to different facts")

// ID derives a fact's id from what it is about, so that writing it again finds
// the first one.
func ID(parts ...string) string {
	joined := ""
	for _, p := range parts {
		joined += p + "\x00"
	}
	return canonical.Digest("edge-worker-audit", []byte(joined))
}

// Write adds the fact in the caller's transaction and never commits (S3-84).
// Bounded text columns are cut to their length in characters; ids are not:
// an over-long id is an error before the write (S3-66, S3-67, D19).
func Write(tx *database.Tx, f Fact) error {
	row := models.AuditLog{
		ID: f.ID, CompanyID: f.Tenant.CompanyID, DepartmentID: f.Tenant.DepartmentID,
		ActorType: cut(f.Actor.Type, 32), ActorID: f.Actor.ID, AuthMethod: cut(f.Actor.Method, 32),
		Action: cut(f.Action, 128), ResourceType: cut(f.ResourceType, 64), ResourceID: f.ResourceID,
		Result: cut(f.Result, 32), ReasonCode: cut(f.ReasonCode, 64), Digest: cut(f.Digest, 64), RequestID: f.Actor.RequestID,
	}
	err := checkIDs(row)
	if err != nil {
		return err
	}
	row.CreatedAt, err = tx.Now()
	if err != nil {
		return err
	}
	err = tx.Create(&row).Error
	if database.IsDuplicate(err) { // it was written before; the transaction goes on
		return repeats(tx, row)
	}
	if err != nil {
		return fmt.Errorf("write the audit fact: %w", err)
	}
	return nil
}

// repeats checks that the fact which has the row's id is the same.
func repeats(tx *database.Tx, row models.AuditLog) error {
	var existing models.AuditLog
	err := tx.Locked().Where("id = ?", row.ID).Take(&existing).Error
	if err != nil {
		return fmt.Errorf("read the audit fact: %w", err)
	}
	row.CreatedAt = existing.CreatedAt
	row.RequestID = existing.RequestID // a repeated request is the same fact
	if existing != row {
		return ErrDrift
	}
	return nil
}

func checkIDs(row models.AuditLog) error {
	ids := []struct {
		name, value string
		limit       int
	}{
		{"audit id", row.ID, 64}, {"company id", row.CompanyID, 64}, {"department id", row.DepartmentID, 64},
		{"actor id", row.ActorID, 128}, {"resource id", row.ResourceID, 64}, {"request id", row.RequestID, 128},
	}
	for _, id := range ids {
		if utf8.RuneCountInString(id.value) > id.limit {
			return fmt.Errorf("audit fact: the %s has more than %d characters", id.name, id.limit)
		}
	}
	if row.ID == "" {
		return errors.New("audit fact: it has no id")
	}
	return nil
}

// cut keeps the first n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}
