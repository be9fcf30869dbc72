package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// Error is an answer that is not a success. Clients branch on Code and Status
// and never compare Message (S2-040).
type Error struct {
	Status    int
	Code      string // empty for answers without one
	Message   string
	Problems  []fault.Problem // only with status 422
	RequestID string
}

// Error gives the code, the message and the status.
func (e *Error) Error() string {
	if e.Code != "" {
		return fmt.Sprintf("%s: %s (HTTP %d)", e.Code, e.Message, e.Status)
	}
	return fmt.Sprintf("%s (HTTP %d)", e.Message, e.Status)
}

// Unreachable says that there was no usable answer. Unless NotSent is true,
// the request may have been carried out.
type Unreachable struct {
	Host    string
	NotSent bool
	cause   error
}

// Error gives the host and the cause.
func (e *Unreachable) Error() string { return fmt.Sprintf("no answer from %s: %v", e.Host, e.cause) }

// Unwrap gives the cause.
func (e *Unreachable) Unwrap() error { return e.cause }

// The codes with which the API itself says that it does not know.
const (
	codeSubmissionUnknown = "submission_outcome_unknown"
	codeDeploymentUnknown = "deployment_outcome_unknown"
	codeControlUnknown    = "control_outcome_unknown"
)

// OutcomeUnknown reports whether a request that ended with err may still have
// been carried out: its answer was lost, a part on the way or a defect
// answered instead of the API, or the API says so.
func OutcomeUnknown(err error) bool {
	var silent *Unreachable
	if errors.As(err, &silent) {
		return !silent.NotSent
	}
	var refused *Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case codeSubmissionUnknown, codeDeploymentUnknown, codeControlUnknown:
		return true
	case "":
		return refused.Status >= http.StatusInternalServerError && refused.Status != http.StatusServiceUnavailable
	}
	return false
}

// parseError understands the three forms of the detail (D5), and anything
// else, for instance a proxy's page, by its status alone.
func parseError(response *http.Response, body []byte) *Error {
	parsed := &Error{
		Status:    response.StatusCode,
		Message:   http.StatusText(response.StatusCode),
		RequestID: response.Header.Get("X-Request-Id"),
	}
	var envelope struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &envelope) != nil || envelope.Detail == nil {
		return parsed
	}
	var text string
	var coded struct{ Code, Message string }
	var problems []fault.Problem
	switch {
	case json.Unmarshal(envelope.Detail, &text) == nil:
		parsed.Message = text
	case json.Unmarshal(envelope.Detail, &coded) == nil:
		parsed.Code, parsed.Message = coded.Code, coded.Message
	case json.Unmarshal(envelope.Detail, &problems) == nil:
		parsed.Problems = problems
		parsed.Message = fmt.Sprintf("the input is not valid: %d problems", len(problems))
		if len(problems) == 1 {
			parsed.Message = "the input is not valid: 1 problem"
		}
	}
	return parsed
}
