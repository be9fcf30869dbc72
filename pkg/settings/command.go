package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
)

// ErrCommand is the class of every command that is refused. Its text names
// fields and never their values.
var ErrCommand = errors.New("control command is not valid")

// FieldError is an ErrCommand about one field of the payload.
type FieldError struct {
	Operation Operation
	Field     string
	Reason    error
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s: %s: %v", ErrCommand, e.Operation, e.Field, e.Reason)
}

// Unwrap makes it an ErrCommand.
func (e *FieldError) Unwrap() error { return ErrCommand }

// Command is a validated command. The zero Command is none.
type Command struct {
	operation Operation
	payload   json.RawMessage
	stored    json.RawMessage
	digest    string
}

// Parse validates a command with its payload as it is sent to the Worker
// (S1-237 to S1-242). The payload is brought to canonical form, and so is the
// JSON text of a runtime configuration.
func Parse(operation Operation, payload []byte) (Command, error) {
	fields := operation.fields()
	if fields == nil {
		return Command{}, fmt.Errorf("%w: operation %.100q is unknown", ErrCommand, operation)
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	values, err := object(payload, names...)
	if err != nil {
		return Command{}, fmt.Errorf("%w: %s: %w", ErrCommand, operation, err)
	}
	stored := map[string]json.RawMessage{}
	for _, f := range fields {
		err := f.check(values[f.name])
		if err == nil && f.stored != "" {
			stored[f.stored], err = f.keep(values[f.name])
		}
		if err != nil {
			return Command{}, &FieldError{operation, f.name, err}
		}
	}
	err = across(operation, values)
	var field *FieldError
	switch {
	case errors.As(err, &field):
		return Command{}, field
	case err != nil:
		return Command{}, fmt.Errorf("%w: %s: %w", ErrCommand, operation, err)
	}
	return seal(operation, values, stored)
}

// across checks and changes what concerns more than a field by itself.
func across(operation Operation, values map[string]json.RawMessage) error {
	switch operation {
	case SecretsPut:
		return digested(operation, values, valueDigest, secretValue)
	case CredentialsPut:
		return digested(operation, values, passwordDigest, salt, password)
	case RuntimeConfigReplace:
		given, err := text(values[valueJSON.name])
		if err != nil {
			return err
		}
		text, err := canonical.Transform([]byte(given))
		if err != nil {
			return err
		}
		if len(text) > MaxValueJSON {
			return &FieldError{operation, valueJSON.name, fmt.Errorf("it has more than %d bytes in canonical form", MaxValueJSON)}
		}
		values[valueJSON.name], err = canonical.JSON(string(text))
		if err != nil {
			return err
		}
	default:
	}
	return nil
}

// digested checks that a digest is that of texts, joined by NUL: no field that
// is digested with another has one in it.
func digested(operation Operation, values map[string]json.RawMessage, digest field, of ...field) error {
	var joined []string
	for _, f := range of {
		s, err := text(values[f.name])
		if err != nil {
			return err
		}
		joined = append(joined, s)
	}
	if equals(values[digest.name], canonical.SHA256([]byte(strings.Join(joined, "\x00")))) != nil {
		return &FieldError{operation, digest.name, errors.New("it is not that of the value")}
	}
	return nil
}

func seal(operation Operation, values, stored map[string]json.RawMessage) (Command, error) {
	c := Command{operation: operation}
	var err error
	c.payload, err = canonical.JSON(values)
	if err != nil {
		return Command{}, fmt.Errorf("%w: %s: %w", ErrCommand, operation, err)
	}
	c.stored, err = canonical.JSON(stored)
	if err != nil {
		return Command{}, fmt.Errorf("%w: %s: %w", ErrCommand, operation, err)
	}
	c.digest, err = control.CommandDigest(string(operation), c.payload)
	return c, err
}

// Operation is the command's name.
func (c Command) Operation() string { return string(c.operation) }

// Payload is what is sent to the Worker, in canonical form. It may hold a
// secret: it is neither stored nor logged.
func (c Command) Payload() json.RawMessage { return c.payload }

// Digest is the command digest that the control channel computes.
func (c Command) Digest() string { return c.digest }

// Stored is the part that may be kept: digests and fields that are no secret
// (S1-243 to S1-247).
func (c Command) Stored() json.RawMessage { return c.stored }

// String keeps the payload out of logs.
func (c Command) String() string { return string(c.operation) }

// Stored is a command as it was kept.
type Stored struct {
	BaseRevision      int64  `json:"baseRevision"`
	LastFour          string `json:"lastFour"`
	ReleaseGeneration string `json:"releaseGeneration"`
	ValueDigest       string `json:"valueDigest"`
	OperationID       string `json:"operationId"`
	Name              string `json:"name"`
	ServiceAccountID  string `json:"serviceAccountId"`
	Username          string `json:"username"`
	PasswordDigest    string `json:"passwordDigest"`
}

// ReadStored reads a kept command back as strictly as it was written.
func ReadStored(operation Operation, raw []byte) (Stored, error) {
	fields := operation.fields()
	if fields == nil {
		return Stored{}, fmt.Errorf("%w: operation %.100q is unknown", ErrCommand, operation)
	}
	var names []string
	checks := map[string]func(json.RawMessage) error{}
	for _, f := range fields {
		if f.stored != "" {
			names = append(names, f.stored)
			checks[f.stored] = f.storedCheck()
		}
	}
	values, err := object(raw, names...)
	if err != nil {
		return Stored{}, fmt.Errorf("%w: stored %s: %w", ErrCommand, operation, err)
	}
	for name, check := range checks {
		err := check(values[name])
		if err != nil {
			return Stored{}, fmt.Errorf("%w: stored %s: %s: %w", ErrCommand, operation, name, err)
		}
	}
	var s Stored
	err = json.Unmarshal(raw, &s)
	if err != nil {
		return Stored{}, fmt.Errorf("%w: stored %s: %w", ErrCommand, operation, err)
	}
	return s, nil
}
