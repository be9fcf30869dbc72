package setup

import (
	"context"
	"encoding/json"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/version"
)

// receiptSubject is the subject of the control-audit lane's assertions.
const receiptSubject = "system:edge-worker-control-audit"

// receipts is the lane's way to the Workers: it can ask for receipts and
// acknowledge them, and nothing else. Without usable provider settings it
// reaches nobody.
type receipts struct{ client *control.Receipts }

func (s *serving) receipts() receipts {
	if s.client == nil {
		return receipts{}
	}
	return receipts{client: control.NewReceipts(s.client, receiptSubject)}
}

// Get asks for a receipt.
func (r receipts) Get(ctx context.Context, q control.ReceiptQuery) (json.RawMessage, error) {
	if r.client == nil {
		return nil, version.ErrProviderInvalid
	}
	return r.client.Get(ctx, q)
}

// Ack acknowledges a receipt.
func (r receipts) Ack(ctx context.Context, q control.ReceiptQuery) (json.RawMessage, error) {
	if r.client == nil {
		return nil, version.ErrProviderInvalid
	}
	return r.client.Ack(ctx, q)
}
