// Package live reads and changes what a live Worker goes by: its access policy,
// runtime configuration, operation settings, secrets and service accounts. They
// live in the Worker itself; this package reaches them through the signed
// control channel.
//
// A change is durable before it is sent (D12): its outbox row is committed
// first, the command is sent once, and a good answer ends the row together with
// its audit fact. An answer that does not tell what happened leaves the row to
// the control-audit lane, which asks for the Worker's receipt.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
)

// Channel sends one command once; control.Client is one. Its errors are those
// of control.Client.Call.
type Channel interface {
	Call(ctx context.Context, command control.Command) (json.RawMessage, error)
}

// Params is what a Desk is made of.
type Params struct {
	DB      *database.DB
	Outbox  *outbox.Outbox
	Redis   redis.UniversalClient
	Channel Channel
	// Provider tells whether the provider's settings are usable (S2-022).
	Provider func() error
	Metrics  *Metrics
	Log      *slog.Logger
}

// Desk reads and changes live Workers. It is safe for concurrent use.
type Desk struct {
	p   Params
	now func() time.Time
}

// New checks p.
func New(p Params) (*Desk, error) {
	if p.DB == nil || p.Outbox == nil || p.Redis == nil || p.Channel == nil || p.Provider == nil || p.Metrics == nil || p.Log == nil {
		return nil, errors.New("live settings: every part is required")
	}
	return &Desk{p: p, now: time.Now}, nil
}

// By says for whom a change is made and who asks for it.
type By struct {
	Tenant models.Tenant
	Actor  audit.Actor
}
