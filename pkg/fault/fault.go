// Package fault holds the one typed error that crosses this module's borders.
//
// A fault says what kind of refusal it is, the machine-readable code and the
// public message that a client may see, and the private cause that only logs
// see. An error that is not a fault means "internal": its text never leaves
// the process. pkg/httpapi is the only place that turns a fault into HTTP.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the class of a refusal. It decides the HTTP status and nothing else.
type Kind string

// The kinds, each with the HTTP status that the error funnel gives it.
const (
	Invalid         Kind = "invalid"          // 422: the input itself is wrong
	Malformed       Kind = "malformed"        // 400: the request cannot be read at all
	Unauthenticated Kind = "unauthenticated"  // 401: no usable proof of identity
	Forbidden       Kind = "forbidden"        // 403: known caller, missing role
	NotFound        Kind = "not_found"        // 404: no such row for this tenant
	Conflict        Kind = "conflict"         // 409: the state does not allow it now
	TooLarge        Kind = "too_large"        // 413: a bound on size was crossed
	UnsupportedType Kind = "unsupported_type" // 415: the media type is not accepted
	RateLimited     Kind = "rate_limited"     // 429: too many tries; wait
	Unavailable     Kind = "unavailable"      // 503: a part this needs is not usable
	Upstream        Kind = "upstream"         // 502: a Worker or host answered unusably
	Timeout         Kind = "timeout"          // 504: a part did not answer in time
	Internal        Kind = "internal"         // 500: a defect or an unclassified failure
)

// Problem is one entry of a 422 answer, in the form that existing clients
// parse: a machine-readable type, the path to the faulty part, and a text.
// Loc holds strings (names, files) and ints (lines, columns, indexes).
type Problem struct {
	Type string `json:"type"`
	Loc  []any  `json:"loc"`
	Msg  string `json:"msg"`
}

// Error is the typed error. Code may be empty: the answer is then the plain
// message ({"detail": "text"}); with a code it is {"detail": {code, message}};
// with problems it is {"detail": [problems]}.
type Error struct {
	Kind     Kind
	Code     string
	Message  string
	Problems []Problem
	cause    error
}

// Error gives the public text and the cause, for logs.
func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = string(e.Kind)
	}
	if e.Code != "" {
		text = e.Code + ": " + text
	}
	if len(e.Problems) > 0 {
		text = fmt.Sprintf("%s (%d problems, first: %v %s)", text, len(e.Problems), e.Problems[0].Loc, e.Problems[0].Msg)
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.cause }

// New makes a fault that is answered as a plain text.
func New(kind Kind, message string) *Error { return &Error{Kind: kind, Message: message} }

// Coded makes a fault that is answered as {code, message}.
func Coded(kind Kind, code, message string) *Error {
	return &Error{Kind: kind, Code: code, Message: message}
}

// Refuse makes a 422 that lists each problem found.
func Refuse(problems ...Problem) *Error {
	return &Error{Kind: Invalid, Message: "the input is not valid", Problems: problems}
}

// Because returns a copy of e with the private cause set.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Is lets errors.Is compare two faults by kind, code and message, so that a
// package-level fault works as a sentinel whatever its cause.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Code == e.Code && t.Message == e.Message
}

// As returns the fault inside err, or an Internal one that wraps err. It
// returns nil only for a nil err.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	return &Error{Kind: Internal, Message: "Internal Server Error", cause: err}
}

// KindOf returns the kind of err; a plain error is Internal.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return As(err).Kind
}
