// Package ticket is what a deployment's poller sees: the durable row, with a
// finer status from Redis while the row is leased and under no other
// condition (S2-259 to S2-270).
package ticket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/outbox"
)

// Status is a ticket's public status: the outbox statuses and two that exist
// in the API layer only and never in the database (S2-260, S2-263).
type Status string

// The whole vocabulary.
const (
	Submitting Status = "submitting"
	Pending    Status = "pending"
	Leased     Status = "leased"
	Deploying  Status = "deploying"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
	Uncertain  Status = "uncertain"
)

// Terminal reports whether a ticket of the status never changes again
// (S2-264). Uncertain is not terminal: it waits for the company's repair.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// Ticket is the public view, with exactly these fields (S2-259).
type Ticket struct {
	TicketID     string  `json:"ticket_id"`
	Operation    string  `json:"operation"`
	CompanyID    string  `json:"company_id"`
	DepartmentID string  `json:"department_id"`
	Status       Status  `json:"status"`
	WorkerID     string  `json:"worker_id"`
	VersionID    string  `json:"version_id"`
	ErrorCode    *string `json:"error_code"`
}

// Of is the view of a row by itself.
func Of(row models.Outbox) Ticket {
	t := Ticket{
		TicketID: row.TicketID, Operation: string(row.Operation), CompanyID: row.CompanyID, DepartmentID: row.DepartmentID,
		Status: Status(row.Status), WorkerID: row.WorkerID, VersionID: row.VersionID,
	}
	if row.LastErrorCode != "" {
		t.ErrorCode = &row.LastErrorCode
	}
	return t
}

// ErrNotFound is the answer for a ticket that the tenant does not have.
var ErrNotFound = fault.New(fault.NotFound, "Deployment ticket not found")

// mirrorTTL is how long a mirrored status may lie in Redis. A stale one can
// never move a terminal ticket back (S2-270).
const mirrorTTL = 7 * 24 * time.Hour

// mirrorTimeout bounds a poll's look into Redis: the row alone is a full
// answer, so a stalled Redis must not hold it.
const mirrorTimeout = 500 * time.Millisecond

// mirrored is what Redis holds: the status and the five identity fields (D19).
type mirrored struct {
	Status       Status `json:"status"`
	TicketID     string `json:"ticket_id"`
	CompanyID    string `json:"company_id"`
	DepartmentID string `json:"department_id"`
	WorkerID     string `json:"worker_id"`
	VersionID    string `json:"version_id"`
}

func mirror(row models.Outbox, status Status) mirrored {
	return mirrored{status, row.TicketID, row.CompanyID, row.DepartmentID, row.WorkerID, row.VersionID}
}

// Mirror writes finer statuses to Redis and reads them back.
type Mirror struct {
	client redis.UniversalClient
	log    *slog.Logger
}

// NewMirror returns a mirror on a Redis client.
func NewMirror(client redis.UniversalClient, log *slog.Logger) *Mirror {
	return &Mirror{client: client, log: log}
}

func mirrorKey(ticketID string) string { return "edge-workers:ticket:" + ticketID }

// Put mirrors a status. Before a publication the write of Submitting is
// required: if it fails, nothing is published (S2-238, S1-288).
func (m *Mirror) Put(ctx context.Context, row models.Outbox, status Status) error {
	raw, err := json.Marshal(mirror(row, status))
	if err != nil {
		return err
	}
	err = m.client.Set(ctx, mirrorKey(row.TicketID), raw, mirrorTTL).Err()
	if err != nil {
		return fmt.Errorf("mirror the ticket's status: %w", err)
	}
	return nil
}

// View is the tenant's ticket as its poller sees it.
func (m *Mirror) View(ctx context.Context, db *database.DB, tenant models.Tenant, ticketID string) (Ticket, error) {
	row, err := outbox.Ticket(db.Read(ctx), tenant, ticketID)
	if errors.Is(err, outbox.ErrNoTicket) {
		return Ticket{}, ErrNotFound
	}
	if err != nil {
		return Ticket{}, err
	}
	view := Of(row)
	if row.Status == models.OutboxLeased { // S2-267
		view.Status = m.finer(ctx, row)
	}
	return view, nil
}

// finer is the mirrored status of a leased row if all five identity fields
// match and the status is leased or deploying, else leased (S2-268, S2-269).
func (m *Mirror) finer(ctx context.Context, row models.Outbox) Status {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	raw, err := m.client.Get(ctx, mirrorKey(row.TicketID)).Bytes()
	if err != nil {
		if !errors.Is(err, redis.Nil) {
			m.log.WarnContext(ctx, "ticket mirror unreadable", "ticket_id", row.TicketID, "error", err)
		}
		return Leased
	}
	var held mirrored
	err = json.Unmarshal(raw, &held)
	if err != nil || held != mirror(row, held.Status) {
		return Leased
	}
	if held.Status == Deploying {
		return Deploying
	}
	return Leased
}
