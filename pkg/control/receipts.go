package control

import (
	"context"
	"encoding/json"
)

// The two commands of receipts; neither changes what a Worker does.
const (
	ReceiptGet = "control.receipt.get"
	ReceiptAck = "control.receipt.ack"
)

// ReceiptQuery names one mutation's receipt.
type ReceiptQuery struct {
	Script        string
	Generation    string // release generation that must be serving
	MutationID    string
	CommandDigest string
}

// Receipts asks for receipts and acknowledges them, and can send nothing else:
// what became of a mutation is never found out by sending it again (S1-163).
type Receipts struct {
	client  *Client
	subject string
}

// NewReceipts returns the receipts that a client reaches. The subject is who
// asks.
func NewReceipts(client *Client, subject string) *Receipts {
	return &Receipts{client: client, subject: subject}
}

// Get asks for the receipt and returns the unchecked result. Errors are those
// of Client.Call.
func (r *Receipts) Get(ctx context.Context, q ReceiptQuery) (json.RawMessage, error) {
	return r.call(ctx, ReceiptGet, q)
}

// Ack tells the Worker that the receipt is no longer needed and returns the
// unchecked result. Errors are those of Client.Call.
func (r *Receipts) Ack(ctx context.Context, q ReceiptQuery) (json.RawMessage, error) {
	return r.call(ctx, ReceiptAck, q)
}

// call sends no mutation id of its own: the query is about one.
func (r *Receipts) call(ctx context.Context, operation string, q ReceiptQuery) (json.RawMessage, error) {
	return r.client.Call(ctx, Command{
		Script: q.Script, Generation: q.Generation, Subject: r.subject, Operation: operation,
		Payload: map[string]string{"mutationId": q.MutationID, "commandDigest": q.CommandDigest},
	})
}
