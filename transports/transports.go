// Package transports is the port through which a committed deployment reaches
// a deployer. A message only ever points at a durable row: it may be lost,
// doubled, late or reordered without harm.
package transports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// DeployFunction is the one built-in function; it is self-gated by its outbox
// id and cannot be disabled (S1-262, S1-263).
const DeployFunction = "run_edge_worker_deployment"

// Message is one job. JobID equals the message id of the row (S1-253).
type Message struct {
	JobID    string   `json:"job_id"`
	Function string   `json:"function"`
	Args     []string `json:"args"`
}

// Deploy makes the message of a deployment: outbox_id, company_id,
// department_id and message_id in this order (S1-051).
func Deploy(outboxID, companyID, departmentID, messageID string) Message {
	return Message{JobID: messageID, Function: DeployFunction, Args: []string{outboxID, companyID, departmentID, messageID}}
}

// MaxMessageBytes bounds an encoded message. A deployment's has about 250 bytes;
// a longer one is not ours.
const MaxMessageBytes = 4096

// Encode gives the message as a broker carries it.
func (m Message) Encode() ([]byte, error) {
	err := m.Validate()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// Decode reads a message that a broker delivered. Members that it does not know
// are a newer sender's and are passed over. Any error is ErrMalformed and has
// nothing of the message in it, so that it may be logged.
func Decode(raw []byte) (Message, error) {
	if len(raw) > MaxMessageBytes {
		return Message{}, fmt.Errorf("%w: %d bytes, more than %d", ErrMalformed, len(raw), MaxMessageBytes)
	}
	var m Message
	err := json.NewDecoder(bytes.NewReader(raw)).Decode(&m)
	if err != nil || !json.Valid(raw) { // valid as a whole: nothing comes after it
		return Message{}, fmt.Errorf("%w: it is not a JSON object of the expected form", ErrMalformed)
	}
	return m, m.Validate()
}

// Publisher hands a message to the transport. A nil error means that the
// transport accepted it; ErrRefused that it definitely did not; any other
// error leaves that open.
type Publisher interface {
	Publish(ctx context.Context, message Message) error
}

// ErrRefused says that the transport definitely did not take the message.
var ErrRefused = errors.New("the transport refused the message")

// ErrMalformed says that a message can never be run: it is dropped (S1-267).
var ErrMalformed = errors.New("the message is malformed")

// Handler runs one message. nil: done, acknowledge. ErrMalformed: drop. Any
// other error: deliver again later.
type Handler func(ctx context.Context, message Message) error

// Validate checks the form of a message: the known function and four non-empty
// arguments (S1-052, S1-053).
func (m Message) Validate() error {
	if m.Function != DeployFunction {
		return fmt.Errorf("%w: unknown function", ErrMalformed)
	}
	if len(m.Args) != 4 {
		return fmt.Errorf("%w: %d arguments instead of four", ErrMalformed, len(m.Args))
	}
	for i, arg := range m.Args {
		if arg == "" {
			return fmt.Errorf("%w: argument %d is empty", ErrMalformed, i+1)
		}
	}
	if m.JobID != m.Args[3] {
		return fmt.Errorf("%w: job id and message id differ", ErrMalformed)
	}
	return nil
}
