package outbox

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/maintenance"
)

// CodeFenced is the mark of a deploy row that waits for a backup fence's end
// (S1-314). Who sets it publishes nothing; ClaimDeferred does when the gate is
// open again.
const CodeFenced = "edge_host_fenced"

// Constants of the sweep for deferred deployments, in code on purpose.
const (
	// DeferredCooldown is how long a claimed row is left alone (S1-319).
	DeferredCooldown = 15 * time.Second
	// deferredChunk bounds the memory and the locks of one transaction. A pass
	// takes chunk after chunk until nothing is due (S1-320).
	deferredChunk = 50
)

// DeferredPass is one pass over the rows that were due when it began: what it
// has claimed does not fall due for it again.
type DeferredPass struct {
	o     *Outbox
	began time.Time // the database's; zero before the first chunk
	ended bool
}

// ClaimDeferred begins a pass of claim_deferred_deployments.
func (o *Outbox) ClaimDeferred() *DeferredPass { return &DeferredPass{o: o} }

// Next claims the pass's next chunk, oldest first, and passes over rows that
// others hold (S1-316 to S1-318). None means that the pass has ended. A cloud
// environment has none ever (S1-050), and none is claimed through a closed gate.
func (p *DeferredPass) Next(ctx context.Context) ([]models.Outbox, error) {
	if p.ended || !p.o.scope.OnPrem() || len(p.o.scope.Namespaces()) == 0 {
		return nil, nil
	}
	var rows []models.Outbox
	err := p.o.db.Tx(ctx, func(tx *database.Tx) error {
		rows = nil
		gate, err := p.o.Gate(tx)
		if err != nil || gate != maintenance.Open {
			return err
		}
		rows, err = p.claim(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim deferred deployments: %w", err)
	}
	p.ended = len(rows) < deferredChunk
	return rows, nil
}

func (p *DeferredPass) claim(tx *database.Tx) ([]models.Outbox, error) {
	now, err := tx.Now()
	if err != nil {
		return nil, err
	}
	if p.began.IsZero() {
		p.began = now
	}
	var rows []models.Outbox
	err = tx.SkipLocked().Scopes(p.due).Order("created_at, id").Limit(deferredChunk).Find(&rows).Error
	if err != nil {
		return nil, err
	}
	return rows, stamp(tx, rows, ceil(now.Add(DeferredCooldown)))
}

func (p *DeferredPass) due(query *gorm.DB) *gorm.DB {
	return query.Where("operation = ? AND status = ? AND last_error_code = ? AND dispatch_namespace IN ?",
		models.OperationDeploy, models.OutboxPending, CodeFenced, p.o.scope.Namespaces()).
		Where("(next_attempt_at IS NULL OR next_attempt_at <= ?)", p.began)
}

// FenceRepublishAccepted is mark_fence_republish_accepted: the transport has
// taken the wake-up of a claimed row, which loses its marks (S1-321). From now on
// a lost message is the recovery sweep's. A row that somebody has taken
// meanwhile is models.ErrStaleTransition.
func (o *Outbox) FenceRepublishAccepted(ctx context.Context, row models.Outbox) error {
	return o.db.Tx(ctx, func(tx *database.Tx) error {
		return claimed(tx, row, map[string]any{"next_attempt_at": nil, "last_error_code": ""}, "clear the fence's mark")
	})
}
