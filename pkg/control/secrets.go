package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The operations by which a Worker's secrets are removed. Releases know them
// since builder policy v2.6, SecretsPurge since v2.7.
const (
	SecretsList   = "secrets.list"
	SecretsDelete = "secrets.delete"
	SecretsPurge  = "secrets.purge"
)

// maxSecrets is how many secrets a Worker holds at most; the runtime keeps it.
const maxSecrets = 64

var secretName = regexp.MustCompile(`\A[A-Z][A-Z0-9_]{0,63}\z`)

// DecodeSecretNames decodes the result of secrets.list and returns the names.
// Another key, type or form, a name that is there twice, or more names than a
// Worker can hold is a *MalformedError.
func DecodeSecretNames(result json.RawMessage) ([]string, error) {
	var list struct {
		Secrets []json.RawMessage `json:"secrets"`
	}
	err := decodeExact(result, &list, "secrets")
	if err == nil && (list.Secrets == nil || len(list.Secrets) > maxSecrets) {
		err = fmt.Errorf("it is no list of at most %d secrets", maxSecrets)
	}
	if err != nil {
		return nil, &MalformedError{Detail: "secrets: " + err.Error()}
	}
	names, seen := make([]string, 0, len(list.Secrets)), map[string]bool{}
	for _, raw := range list.Secrets {
		name, err := decodeSecret(raw)
		if err == nil && seen[name] {
			err = errors.New("a name is there twice")
		}
		if err != nil {
			return nil, &MalformedError{Detail: "secret: " + err.Error()}
		}
		seen[name] = true
		names = append(names, name)
	}
	return names, nil
}

func decodeSecret(raw json.RawMessage) (string, error) {
	var secret struct {
		Name      string `json:"name"`
		SHA256    string `json:"sha256"`
		UpdatedAt string `json:"updated_at"`
	}
	err := decodeExact(raw, &secret, "name", "sha256", "updated_at")
	switch {
	case err != nil:
		return "", err
	case !secretName.MatchString(secret.Name), !canonical.IsSHA256(secret.SHA256), !isTime(secret.UpdatedAt):
		return "", errors.New("name, sha256 or updated_at is not usable")
	}
	return secret.Name, nil
}

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

// CheckDeleted checks the result of secrets.delete of a name: no conflict, and
// current names it as gone (S1-176, S1-186). That there was nothing to delete
// is as good. Anything else is a *MalformedError.
func CheckDeleted(result json.RawMessage, name string) error {
	var answer struct {
		Conflict *bool           `json:"conflict"`
		Deleted  *bool           `json:"deleted"`
		Current  json.RawMessage `json:"current"`
	}
	var current struct {
		Name      string `json:"name"`
		Deleted   *bool  `json:"deleted"`
		UpdatedAt string `json:"updated_at"`
	}
	err := decodeExact(result, &answer, "conflict", "deleted", "current")
	if err == nil {
		err = decodeExact(answer.Current, &current, "name", "deleted", "updated_at")
	}
	switch {
	case err != nil:
	case answer.Conflict == nil || *answer.Conflict:
		err = errors.New("it is a conflict")
	case answer.Deleted == nil || current.Deleted == nil || *answer.Deleted != *current.Deleted:
		err = errors.New("deleted is missing or contradicts itself")
	case current.Name != name || !isTime(current.UpdatedAt):
		err = errors.New("current is not of the name that was sent")
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
