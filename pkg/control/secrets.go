package control

import (
	"encoding/json"
	"errors"
	"time"
)

// The operations by which a Worker's secrets are removed. Releases know them
// since builder policy v2.6, SecretsPurge since v2.7.
const (
	SecretsList   = "secrets.list"
	SecretsDelete = "secrets.delete"
	SecretsPurge  = "secrets.purge"
)

// CheckPurged checks the result of secrets.purge: exactly {"purged": n}, n not
// negative. Anything else is a *MalformedError.
func CheckPurged(result json.RawMessage) error {
	var purged struct {
		Purged *int64 `json:"purged"`
	}
	err := decodeExact(result, &purged, "purged")
	if err == nil && (purged.Purged == nil || *purged.Purged < 0) {
		err = errors.New("purged is not a number of secrets")
	}
	if err != nil {
		return &MalformedError{Detail: "result: " + err.Error()}
	}
	return nil
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
