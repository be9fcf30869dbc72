package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Bounds of fields.
const (
	// MaxRevision is 2^53−1, the largest integer that every JSON reader keeps
	// (S1-239).
	MaxRevision = 1<<53 - 1
	// MaxValueJSON is the most UTF-8 bytes of a runtime configuration (S1-241).
	MaxValueJSON = 65_536
	// MaxAllowlist is the most networks of an allow list (D11).
	MaxAllowlist = 64
	// maxSecret bounds a secret's value, a password and a salt in bytes.
	maxSecret = 65_536
	// maxName bounds names and ids in bytes.
	maxName = 128
)

// field is one key of a command's payload.
type field struct {
	name  string
	check func(json.RawMessage) error
	// stored is the key under which the field may be kept; empty: it is never
	// kept (S1-243 to S1-246).
	stored string
	// digested keeps the SHA-256 of the field's canonical text instead of it.
	digested bool
}

// The fields of all commands.
var (
	baseRevision          = field{name: "baseRevision", check: revisionText, stored: "baseRevision"}
	mode                  = field{name: "mode", check: modeText, stored: "mode"}
	ipAllowlist           = field{name: "ipAllowlist", check: networks, stored: "ipAllowlist"}
	keyDigest             = field{name: "keyDigest", check: digestText, stored: "keyDigest"}
	lastFour              = field{name: "lastFour", check: matching(lastFourForm), stored: "lastFour"}
	valueJSON             = field{name: "valueJson", check: configText, stored: "valueDigest", digested: true}
	releaseGeneration     = field{name: "releaseGeneration", check: digestText, stored: "releaseGeneration"}
	defaultServiceAccount = field{name: "defaultServiceAccountId", check: nameOrNull, stored: "defaultServiceAccountId"}
	operations            = field{name: "operations", check: operationTable, stored: "operationsDigest", digested: true}
	operationID           = field{name: "operationId", check: matching(operationIDForm), stored: "operationId"}
	secretName            = field{name: "name", check: nameText, stored: "name"}
	secretValue           = field{name: "value", check: secretText}
	valueDigest           = field{name: "valueDigest", check: digestText, stored: "valueDigest"}
	serviceAccountID      = field{name: "serviceAccountId", check: nameText, stored: "serviceAccountId"}
	username              = field{name: "username", check: nameText, stored: "username"}
	password              = field{name: "password", check: secretText}
	salt                  = field{name: "salt", check: secretText}
	passwordDigest        = field{name: "passwordDigest", check: digestText, stored: "passwordDigest"}
)

var (
	integerForm     = regexp.MustCompile(`\A(0|[1-9][0-9]{0,15})\z`)
	lastFourForm    = regexp.MustCompile(`\A[A-Za-z0-9_-]{4}\z`)
	operationIDForm = regexp.MustCompile(`\A[a-z][a-z0-9_.-]{0,63}\z`)
)

// integer reads a true integer: no sign, fraction, exponent or quotes.
func integer(raw json.RawMessage, most int64) (int64, error) {
	if !integerForm.Match(raw) {
		return 0, errors.New("it is not an integer")
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("it is not in 0…%d", most)
	}
	return n, nil
}

// text reads a JSON string; null is none.
func text(raw json.RawMessage) (string, error) {
	var s *string
	err := json.Unmarshal(raw, &s)
	if err != nil || s == nil {
		return "", errors.New("it is not a text")
	}
	return *s, nil
}

func revisionText(raw json.RawMessage) error { // S1-238, S1-239
	_, err := integer(raw, MaxRevision)
	return err
}

func isMode(s string) bool { return slices.Contains([]string{"private", "api_key", "public"}, s) }

func modeText(raw json.RawMessage) error {
	s, err := text(raw)
	if err == nil && !isMode(s) {
		return errors.New("it is not a mode")
	}
	return err
}

func networks(raw json.RawMessage) error {
	var list []*string
	err := json.Unmarshal(raw, &list)
	if err != nil || list == nil {
		return errors.New("it is not a list of texts")
	}
	if len(list) > MaxAllowlist {
		return fmt.Errorf("it has more than %d networks", MaxAllowlist)
	}
	for _, item := range list {
		if item == nil {
			return errors.New("it is not a list of texts")
		}
		_, err := netip.ParsePrefix(*item)
		if err != nil {
			return errors.New("it has an entry that is not a network")
		}
	}
	return nil
}

func digestText(raw json.RawMessage) error {
	s, err := text(raw)
	if err == nil && !canonical.IsSHA256(s) {
		return errors.New("it is not a SHA-256")
	}
	return err
}

func matching(form *regexp.Regexp) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		s, err := text(raw)
		if err == nil && !form.MatchString(s) {
			return errors.New("it does not have its form")
		}
		return err
	}
}

// nameText is 1 to 128 bytes without control characters.
func nameText(raw json.RawMessage) error {
	s, err := text(raw)
	if err != nil {
		return err
	}
	if s == "" || len(s) > maxName || !utf8.ValidString(s) {
		return fmt.Errorf("it does not have 1 to %d bytes", maxName)
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return errors.New("it has a control character")
		}
	}
	return nil
}

func nameOrNull(raw json.RawMessage) error {
	if string(raw) == "null" {
		return nil
	}
	return nameText(raw)
}

func secretText(raw json.RawMessage) error {
	s, err := text(raw)
	if err == nil && (s == "" || len(s) > maxSecret) {
		return fmt.Errorf("it does not have 1 to %d bytes", maxSecret)
	}
	return err
}

// configText is JSON text of an object (S1-241, S1-242).
func configText(raw json.RawMessage) error {
	s, err := text(raw)
	if err != nil {
		return err
	}
	if len(s) > MaxValueJSON {
		return fmt.Errorf("it has more than %d bytes", MaxValueJSON)
	}
	if !isObject([]byte(s)) {
		return errors.New("it is not the text of a JSON object")
	}
	_, err = canonical.Transform([]byte(s))
	return err
}

func isObject(raw []byte) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}

// operationTable is an object of objects by operation id. What a row may say
// is checked where the release's manifest is known.
func operationTable(raw json.RawMessage) error {
	var rows map[string]json.RawMessage
	err := json.Unmarshal(raw, &rows)
	if err != nil || rows == nil {
		return errors.New("it is not an object")
	}
	for id, row := range rows {
		if !operationIDForm.MatchString(id) || !isObject(row) {
			return errors.New("it has an entry that is not the row of an operation")
		}
	}
	return nil
}

// keep is the stored form of a field's value.
func (f field) keep(raw json.RawMessage) (json.RawMessage, error) {
	if !f.digested {
		return raw, nil
	}
	value := []byte(raw)
	s, err := text(raw)
	if err == nil { // the digest is of the JSON text inside
		value = []byte(s)
	}
	value, err = canonical.Transform(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(canonical.SHA256(value))
}

// storedCheck is how the field is checked when it is read back.
func (f field) storedCheck() func(json.RawMessage) error {
	if f.digested {
		return digestText
	}
	return f.check
}
