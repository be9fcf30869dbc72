package settings

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Config is a Worker's runtime configuration. UpdatedAt is nil while none was
// put.
type Config struct {
	Value     json.RawMessage
	SHA256    string
	Revision  int64
	UpdatedAt *time.Time
}

// Table is the operation settings of one release generation. Keys are shown by
// their last four only.
type Table struct {
	State                   string         `json:"state"` // staged or reconciled
	Revision                int64          `json:"revision"`
	ReleaseGeneration       string         `json:"releaseGeneration"`
	DefaultServiceAccountID *string        `json:"default_service_account_id"`
	Operations              map[string]Row `json:"operations"`
	UpdatedAt               *time.Time     `json:"updated_at"`
}

// Row is what is set for one operation.
type Row struct {
	Access           string  `json:"access"`
	APIKeyConfigured bool    `json:"api_key_configured"`
	APIKeyLastFour   *string `json:"api_key_last_four"`
	ServiceAccountID *string `json:"service_account_id"`
}

// Inherit is the row of an operation that none was set for.
func Inherit() Row { return Row{Access: "inherit"} }

// Secret is what is shown of a secret.
type Secret struct {
	Name      string    `json:"name"`
	SHA256    string    `json:"sha256"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Account is what is shown of a service account.
type Account struct {
	ID             string    `json:"serviceAccountId"`
	Username       string    `json:"username"`
	PasswordDigest string    `json:"passwordDigest"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// ReadConfig reads a runtime configuration as strictly as ReadReceipt does.
func ReadConfig(raw []byte) (Config, error) {
	fields, err := object(raw, "valueJson", "sha256", "revision", "updated_at")
	if err != nil {
		return Config{}, fmt.Errorf("%w: config: %w", ErrReceipt, err)
	}
	var c Config
	value, err := text(fields["valueJson"])
	if err == nil {
		c.SHA256, err = text(fields["sha256"])
	}
	if err == nil {
		c.Revision, err = integer(fields["revision"], MaxRevision+1)
	}
	if err == nil {
		err = json.Unmarshal(fields["updated_at"], &c.UpdatedAt)
	}
	if err == nil && !isObject([]byte(value)) {
		err = fmt.Errorf("valueJson is not an object")
	}
	if err != nil {
		return Config{}, fmt.Errorf("%w: config: %w", ErrReceipt, err)
	}
	c.Value = json.RawMessage(value)
	return c, nil
}

// ReadTable reads a settings table with each of its rows.
func ReadTable(raw []byte) (Table, error) {
	fields, err := object(raw, "state", "revision", "releaseGeneration", "default_service_account_id", "operations", "updated_at")
	if err != nil {
		return Table{}, fmt.Errorf("%w: settings: %w", ErrReceipt, err)
	}
	var rows map[string]json.RawMessage
	err = json.Unmarshal(fields["operations"], &rows)
	if err != nil || rows == nil {
		return Table{}, fmt.Errorf("%w: settings: operations is not an object", ErrReceipt)
	}
	for id, row := range rows {
		_, err := object(row, "access", "api_key_configured", "api_key_last_four", "service_account_id")
		if err != nil || !operationIDForm.MatchString(id) {
			return Table{}, fmt.Errorf("%w: settings: a row has another form", ErrReceipt)
		}
	}
	var t Table
	err = json.Unmarshal(raw, &t)
	if err != nil {
		return Table{}, fmt.Errorf("%w: settings: %w", ErrReceipt, err)
	}
	return t, nil
}

// ReadTables reads the result of operation_settings.get: the live table and the
// one that is staged, each nil when there is none.
func ReadTables(result []byte) (*Table, *Table, error) {
	fields, err := object(result, "settings", "staged")
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	var tables [2]*Table
	for i, raw := range []json.RawMessage{fields["settings"], fields["staged"]} {
		if string(raw) == "null" {
			continue
		}
		table, err := ReadTable(raw)
		if err != nil {
			return nil, nil, err
		}
		tables[i] = &table
	}
	return tables[0], tables[1], nil
}

// maxSecrets is how many secrets a Worker holds at most; the runtime keeps it.
const maxSecrets = 64

// ReadSecrets reads the result of secrets.list. A name that is there twice or
// has another form, or more names than a Worker can hold, is no answer.
func ReadSecrets(result []byte) ([]Secret, error) {
	secrets, err := list[Secret](result, "secrets", "name", "sha256", "updated_at")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, secret := range secrets {
		if seen[secret.Name] || !secretNameForm.MatchString(secret.Name) || !canonical.IsSHA256(secret.SHA256) || len(secrets) > maxSecrets {
			return nil, fmt.Errorf("%w: secrets: not a list of at most %d names with digests", ErrReceipt, maxSecrets)
		}
		seen[secret.Name] = true
	}
	return secrets, nil
}

// ReadAccounts reads the result of service_accounts.list.
func ReadAccounts(result []byte) ([]Account, error) {
	return list[Account](result, "service_accounts", "serviceAccountId", "username", "passwordDigest", "updated_at")
}

// list reads {key: [items]} where each item has exactly the given keys.
func list[T any](result []byte, key string, keys ...string) ([]T, error) {
	fields, err := object(result, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	var items []json.RawMessage
	err = json.Unmarshal(fields[key], &items)
	if err != nil || items == nil {
		return nil, fmt.Errorf("%w: %s is not a list", ErrReceipt, key)
	}
	out := make([]T, len(items))
	for i, item := range items {
		_, err := object(item, keys...)
		if err == nil {
			err = json.Unmarshal(item, &out[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrReceipt, key, err)
		}
	}
	return out, nil
}
