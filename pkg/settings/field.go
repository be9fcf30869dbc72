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
	"strings"

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
	// MaxSecret is the most bytes of a secret's value.
	MaxSecret = 5_120
	// maxUsername, maxPassword and maxSalt bound an account's credentials in
	// bytes.
	maxUsername = 256
	maxPassword = 1_024
	maxSalt     = 256
	// maxOperations is the most rows of a settings table: a manifest's bound.
	maxOperations = 200
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
	defaultServiceAccount = field{name: "defaultServiceAccountId", check: accountOrNull, stored: "defaultServiceAccountId"}
	operations            = field{name: "operations", check: operationTable, stored: "operationsDigest", digested: true}
	operationID           = field{name: "operationId", check: matching(operationIDForm), stored: "operationId"}
	secretName            = field{name: "name", check: matching(secretNameForm), stored: "name"}
	secretValue           = field{name: "value", check: bounded(MaxSecret)}
	valueDigest           = field{name: "valueDigest", check: digestText, stored: "valueDigest"}
	serviceAccountID      = field{name: "serviceAccountId", check: matching(accountForm), stored: "serviceAccountId"}
	username              = field{name: "username", check: printable(maxUsername), stored: "username"}
	password              = field{name: "password", check: bounded(maxPassword)}
	salt                  = field{name: "salt", check: printable(maxSalt)}
	passwordDigest        = field{name: "passwordDigest", check: digestText, stored: "passwordDigest"}
)

// The forms of names are those that the Worker's runtime accepts.
var (
	secretNameForm  = regexp.MustCompile(`\A[A-Z][A-Z0-9_]{0,63}\z`)
	accountForm     = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\z`)
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

// modes are those of an access policy (D11).
var modes = []string{"private", "api_key", "public"}

func modeText(raw json.RawMessage) error {
	s, err := text(raw)
	if err == nil && !slices.Contains(modes, s) {
		return fmt.Errorf("it is not one of %s", strings.Join(modes, ", "))
	}
	return err
}

// networks is a list of CIDR ranges as the Worker's runtime takes them: host
// bits 0, so that a slip does not pass for a range, none twice, and none of
// IPv4 addresses in IPv6 form, in which no address would be.
func networks(raw json.RawMessage) error {
	var list []*string
	err := json.Unmarshal(raw, &list)
	if err != nil || list == nil || slices.Contains(list, nil) {
		return errors.New("it is not a list of texts")
	}
	if len(list) > MaxAllowlist {
		return fmt.Errorf("it has more than %d networks", MaxAllowlist)
	}
	seen := map[string]bool{}
	for i, item := range list {
		network, err := netip.ParsePrefix(*item)
		switch {
		case err != nil:
			return fmt.Errorf("entry %d is not a network such as 192.0.2.0/24", i)
		case network.Masked() != network:
			return fmt.Errorf("entry %d has host bits that are not 0", i)
		case network.Addr().Is4In6():
			return fmt.Errorf("entry %d is of IPv4 addresses in IPv6 form", i)
		case seen[*item]:
			return fmt.Errorf("entry %d is given twice", i)
		}
		seen[*item] = true
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
			return fmt.Errorf("it does not match %s", shown(form))
		}
		return err
	}
}

// shown is a form without its anchors.
func shown(form *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(form.String(), `\A`), `\z`)
}

// bounded is a text of 1 to most bytes.
func bounded(most int) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		s, err := text(raw)
		if err == nil && (s == "" || len(s) > most) {
			return fmt.Errorf("it does not have 1 to %d bytes", most)
		}
		return err
	}
}

// printable is a bounded text without control characters.
func printable(most int) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		err := bounded(most)(raw)
		if err != nil {
			return err
		}
		s, err := text(raw)
		if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return errors.New("it has a control character")
		}
		return err
	}
}

func accountOrNull(raw json.RawMessage) error {
	if string(raw) == "null" {
		return nil
	}
	return matching(accountForm)(raw)
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
	if err != nil { // its text may quote the value
		return errors.New("it has a key twice, or a text or number that has no canonical form")
	}
	return nil
}

func isObject(raw []byte) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}

// operationTable is the rows of operations by id, as the Worker takes them.
// Which ids there are is checked where the release's manifest is known.
func operationTable(raw json.RawMessage) error {
	var rows map[string]json.RawMessage
	err := json.Unmarshal(raw, &rows)
	if err != nil || rows == nil {
		return errors.New("it is not an object")
	}
	if len(rows) > maxOperations {
		return fmt.Errorf("it has more than %d operations", maxOperations)
	}
	for id, row := range rows {
		if !operationIDForm.MatchString(id) {
			return errors.New("it has an entry that is not the row of an operation")
		}
		fields, err := object(row, "access", "service_account_id")
		if err == nil {
			err = errors.Join(accessText(fields["access"]), accountOrNull(fields["service_account_id"]))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// accesses are what an operation may be set to (D11).
var accesses = []string{"inherit", "private", "api_key", "public", "disabled"}

func accessText(raw json.RawMessage) error {
	s, err := text(raw)
	if err == nil && !slices.Contains(accesses, s) {
		return fmt.Errorf("it is not one of %s", strings.Join(accesses, ", "))
	}
	return err
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
