package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
)

// ErrReceipt is the class of every receipt that cannot be used.
var ErrReceipt = errors.New("control receipt is not usable")

// Expectation is the mutation that a receipt must speak of.
type Expectation struct {
	MutationID    string
	Operation     Operation
	CommandDigest string
	Command       json.RawMessage // as Command.Stored gave it
}

// Receipt is what a usable answer says.
type Receipt struct {
	// Found is false when the Worker has no receipt: the mutation was not
	// applied.
	Found bool
	// NoOp says that the mutation found nothing to delete or to revoke.
	NoOp bool
}

// ReadReceipt checks the result of control.receipt.get against what was sent
// (S1-174 to S1-191, S1-210 to S1-216). It is pure; every answer that is not
// exactly right is ErrReceipt with the reason, which holds no value.
func ReadReceipt(want Expectation, result []byte) (Receipt, error) {
	r, err := readReceipt(want, result)
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return r, nil
}

func readReceipt(want Expectation, raw []byte) (Receipt, error) {
	receipt, err := control.DecodeReceipt(raw, string(want.Operation), control.ReceiptQuery{
		MutationID: want.MutationID, CommandDigest: want.CommandDigest,
	})
	if err != nil || !receipt.Found {
		return Receipt{}, err
	}
	noOp, err := CheckResult(want.Operation, want.Command, receipt.Result)
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Found: true, NoOp: noOp}, nil
}

// CheckResult checks a mutation's result, in a receipt or in the answer to the
// mutation itself, and reports whether it found nothing to do.
func CheckResult(operation Operation, command, result []byte) (bool, error) {
	stored, err := ReadStored(operation, command)
	if err != nil {
		return false, err
	}
	keys, did := []string{"conflict", "current"}, ""
	switch operation {
	case AccessPolicyKeyRevoke, OperationKeyRevoke: // S1-175
		did = "revoked"
	case SecretsDelete, CredentialsDelete: // S1-176
		did = "deleted"
	default: // S1-177
	}
	if did != "" {
		keys = append(keys, did)
	}
	fields, err := object(result, keys...)
	if err != nil {
		return false, fmt.Errorf("result: %w", err)
	}
	conflict, err := boolean(fields["conflict"])
	if err == nil && conflict { // S1-178
		err = errors.New("it is a conflict")
	}
	if err != nil {
		return false, fmt.Errorf("result: conflict: %w", err)
	}
	done := true
	if did != "" {
		done, err = boolean(fields[did])
		if err != nil {
			return false, fmt.Errorf("result: %s: %w", did, err)
		}
	}
	err = current(operation, stored, done, fields["current"])
	if err != nil {
		return false, fmt.Errorf("result: current: %w", err)
	}
	return !done, nil
}

// current checks the state that the mutation left.
func current(operation Operation, stored Stored, done bool, raw []byte) error {
	revision := stored.BaseRevision
	if done {
		revision++
	}
	switch operation {
	case AccessPolicyReplace, AccessPolicyKeyRotate, AccessPolicyKeyRevoke:
		return policy(operation, stored, revision, raw)
	case RuntimeConfigReplace, RuntimeConfigDelete:
		return config(operation, stored, revision, raw)
	case OperationSettingsReplace, OperationKeyRotate, OperationKeyRevoke:
		return operationSettings(operation, stored, revision, raw)
	case SecretsPut: // S1-183 to S1-185
		return exactly(raw, map[string]string{"name": stored.Name, "sha256": stored.ValueDigest}, nil)
	case SecretsDelete: // S1-186
		return exactly(raw, map[string]string{"name": stored.Name}, &done)
	case CredentialsPut: // S1-187, S1-188
		return exactly(raw, map[string]string{
			"serviceAccountId": stored.ServiceAccountID, "username": stored.Username, "passwordDigest": stored.PasswordDigest,
		}, nil)
	case CredentialsDelete: // S1-189
		return exactly(raw, map[string]string{"serviceAccountId": stored.ServiceAccountID}, &done)
	}
	return errors.New("the operation is unknown")
}

// exactly checks an object of the given texts, of "deleted" when it is not
// nil, and of a timestamp.
func exactly(raw []byte, texts map[string]string, deleted *bool) error {
	keys := []string{"updated_at"}
	for key := range texts {
		keys = append(keys, key)
	}
	if deleted != nil {
		keys = append(keys, "deleted")
	}
	fields, err := object(raw, keys...)
	if err != nil {
		return err
	}
	for key, value := range texts {
		err := equals(fields[key], value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if deleted != nil {
		got, err := boolean(fields["deleted"])
		if err != nil || got != *deleted {
			return errors.New("deleted is not what the result says")
		}
	}
	return updatedAt(fields)
}

// policy checks an access policy (S1-211 to S1-214).
func policy(operation Operation, stored Stored, revision int64, raw []byte) error {
	fields, err := object(raw, "api_key_configured", "api_key_last_four", "ip_allowlist", "mode", "revision", "updated_at")
	if err != nil {
		return err
	}
	err = atRevision(fields, revision)
	if err != nil {
		return err
	}
	configured, err := boolean(fields["api_key_configured"])
	if err != nil {
		return fmt.Errorf("api_key_configured: %w", err)
	}
	if configured == (string(fields["api_key_last_four"]) == "null") {
		return errors.New("api_key_last_four does not fit api_key_configured")
	}
	if configured {
		err := lastFour.check(fields["api_key_last_four"])
		if err != nil {
			return fmt.Errorf("api_key_last_four: %w", err)
		}
	}
	err = errors.Join(modeText(fields["mode"]), networks(fields["ip_allowlist"]))
	if err != nil {
		return err
	}
	if operation == AccessPolicyKeyRotate {
		err := equals(fields["api_key_last_four"], stored.LastFour)
		if err != nil {
			return fmt.Errorf("api_key_last_four: %w", err)
		}
	}
	if operation == AccessPolicyKeyRevoke && configured {
		return errors.New("a key is left after the revocation")
	}
	if revision == 0 && string(fields["updated_at"]) == "null" { // a policy that was never changed, and not now either
		return nil
	}
	return updatedAt(fields)
}

// config checks a runtime configuration (S1-212, S1-215, S1-216). A value that
// was put is the one that was sent.
func config(operation Operation, stored Stored, revision int64, raw []byte) error {
	fields, err := object(raw, "valueJson", "sha256", "revision", "updated_at")
	if err != nil {
		return err
	}
	err = atRevision(fields, revision)
	if err != nil {
		return err
	}
	value, err := text(fields["valueJson"])
	if err != nil {
		return fmt.Errorf("valueJson: %w", err)
	}
	form, err := canonical.Transform([]byte(value))
	if err != nil || string(form) != value || !isObject(form) {
		return errors.New("valueJson is not a canonical object")
	}
	digest := canonical.SHA256(form)
	err = equals(fields["sha256"], digest)
	if err != nil {
		return fmt.Errorf("sha256: %w", err)
	}
	if operation == RuntimeConfigReplace && digest != stored.ValueDigest {
		return errors.New("valueJson is not the value that was sent")
	}
	return updatedAt(fields)
}

// operationSettings checks a settings table (S1-179 to S1-182).
func operationSettings(operation Operation, stored Stored, revision int64, raw []byte) error {
	fields, err := object(raw, "state", "revision", "releaseGeneration", "default_service_account_id", "operations", "updated_at")
	if err != nil {
		return err
	}
	err = equals(fields["state"], "reconciled")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	err = atRevision(fields, revision)
	if err != nil {
		return err
	}
	err = digestText(fields["releaseGeneration"])
	if err == nil && operation == OperationSettingsReplace {
		err = equals(fields["releaseGeneration"], stored.ReleaseGeneration)
	}
	if err != nil {
		return fmt.Errorf("releaseGeneration: %w", err)
	}
	err = accountOrNull(fields["default_service_account_id"])
	if err != nil {
		return fmt.Errorf("default_service_account_id: %w", err)
	}
	if !isObject(fields["operations"]) {
		return errors.New("operations is not an object")
	}
	return updatedAt(fields)
}

func boolean(raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("it is not a boolean")
}

func equals(raw json.RawMessage, want string) error {
	got, err := text(raw)
	if err == nil && got != want {
		return errors.New("it is another one")
	}
	return err
}

func atRevision(fields map[string]json.RawMessage, want int64) error {
	got, err := integer(fields["revision"], MaxRevision+1)
	if err == nil && got != want {
		err = errors.New("it is another one")
	}
	if err != nil {
		return fmt.Errorf("revision: %w", err)
	}
	return nil
}

func updatedAt(fields map[string]json.RawMessage) error { // S1-191
	err := timestamp(fields["updated_at"])
	if err != nil {
		return fmt.Errorf("updated_at: %w", err)
	}
	return nil
}

func timestamp(raw json.RawMessage) error {
	s, err := text(raw)
	if err != nil {
		return err
	}
	_, err = time.Parse(time.RFC3339, s)
	if err != nil {
		return errors.New("it is not a timestamp")
	}
	return nil
}

// Conflicts reports whether a mutation's result says, and says nothing else
// than, that its base revision was not the current one: nothing was changed.
func Conflicts(result []byte) bool {
	fields, err := members(result)
	return err == nil && string(fields["conflict"]) == "true" && string(fields["revoked"]) != "true" && string(fields["deleted"]) != "true"
}
