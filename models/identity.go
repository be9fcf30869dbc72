package models

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// ScriptName is the opaque, globally unique and rename-proof name of a
// department's script: "dw-" and 48 hex digits, 51 characters (S3-18 to S3-21).
func ScriptName(companyID, departmentID string) string {
	return "dw-" + derive("edge-worker-v2", companyID, departmentID, 48)
}

var scriptName = regexp.MustCompile(`\Adw-[0-9a-f]{48}\z`)

// IsScriptName reports whether s has the exact form of a script name (S1-248).
func IsScriptName(s string) bool { return scriptName.MatchString(s) }

// derive hashes domain, company and department with NUL bytes between them, so
// that no two different pairs share an input, and keeps n hex digits.
func derive(domain, companyID, departmentID string, n int) string {
	sum := sha256.Sum256([]byte(domain + "\x00" + companyID + "\x00" + departmentID))
	return hex.EncodeToString(sum[:])[:n]
}
