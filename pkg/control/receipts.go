package control

import (
	"context"
	"encoding/json"
	"errors"
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

// Receipt is what a Worker says about a mutation.
type Receipt struct {
	// Found is false when the Worker has no receipt: the mutation was not
	// applied, or not yet.
	Found bool
	// Result is what the mutation answered; unchecked.
	Result json.RawMessage
}

// DecodeReceipt decodes the result of control.receipt.get. A receipt of
// another mutation, operation or command, or another key or type, is a
// *MalformedError.
func DecodeReceipt(result json.RawMessage, operation string, q ReceiptQuery) (Receipt, error) {
	receipt, err := decodeReceipt(result, operation, q)
	if err != nil {
		return Receipt{}, &MalformedError{Detail: "receipt: " + err.Error()}
	}
	return receipt, nil
}

func decodeReceipt(result json.RawMessage, operation string, q ReceiptQuery) (Receipt, error) {
	var outer struct {
		Found   *bool           `json:"found"`
		Receipt json.RawMessage `json:"receipt"`
	}
	err := decodeExact(result, &outer, "found", "receipt")
	if err != nil {
		return Receipt{}, err
	}
	none := string(outer.Receipt) == "null"
	if outer.Found == nil || *outer.Found == none {
		return Receipt{}, errors.New("found and receipt contradict each other")
	}
	if none {
		return Receipt{}, nil
	}
	var inner struct {
		MutationID    string          `json:"mutationId"`
		Operation     string          `json:"operation"`
		CommandDigest string          `json:"commandDigest"`
		Result        json.RawMessage `json:"result"`
		CreatedAt     string          `json:"createdAt"`
	}
	err = decodeExact(outer.Receipt, &inner, "mutationId", "operation", "commandDigest", "result", "createdAt")
	switch {
	case err != nil:
		return Receipt{}, err
	case inner.MutationID != q.MutationID || inner.Operation != operation || inner.CommandDigest != q.CommandDigest:
		return Receipt{}, errors.New("it is of another mutation")
	case !isTime(inner.CreatedAt):
		return Receipt{}, errors.New("createdAt is not a time")
	}
	return Receipt{Found: true, Result: inner.Result}, nil
}

// CheckAcknowledged checks the result of control.receipt.ack: exactly
// {"acknowledged": true}. Anything else is a *MalformedError.
func CheckAcknowledged(result json.RawMessage) error {
	var answer struct {
		Acknowledged bool `json:"acknowledged"`
	}
	err := decodeExact(result, &answer, "acknowledged")
	if err == nil && !answer.Acknowledged {
		err = errors.New("it is not acknowledged")
	}
	if err != nil {
		return &MalformedError{Detail: "acknowledgement: " + err.Error()}
	}
	return nil
}
