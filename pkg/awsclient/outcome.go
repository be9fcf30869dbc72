package awsclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Rejected tells whether the service answered that it did not do what it was
// asked: a 4xx, but 408, which says that it did not wait for all of it.
func Rejected(err error) bool {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return false
	}
	status := response.HTTPStatusCode()
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusRequestTimeout
}

// Witness sees each attempt of one call. The zero value is ready.
type Witness struct{ open bool }

// Watch is given to the call as an option of its API.
func (w *Witness) Watch(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("Witness",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleDeserialize(ctx, in)
			w.open = w.open || !Rejected(err)
			return out, metadata, err
		}), middleware.Before)
}

// MayHaveHappened tells, after a call that failed, whether the service may have
// done what it was asked: an attempt without an answer counts, also when a later
// one was rejected. A call of which nothing was sent did nothing.
func (w *Witness) MayHaveHappened() bool { return w.open }

var plainCode = regexp.MustCompile(`\A[A-Za-z0-9.]{1,64}\z`)

// maxFailureText bounds what is kept of a connection's error, in bytes.
const maxFailureText = 300

// Failure makes an error of what a call ended with that can be logged: the
// operation with the status and code, or the connection's error. What the service
// wrote beside the code is left out, because it may quote the request.
func Failure(operation string, err error) error {
	text := Kind(err)
	if text == NoAnswer {
		inner := err
		var send *smithyhttp.RequestSendError
		if errors.As(err, &send) {
			inner = send.Err
		}
		text = inner.Error()
	}
	return &failure{text: operation + ": " + text[:min(len(text), maxFailureText)], cause: err}
}

// NoAnswer is the kind of a failure to which the service said nothing.
const NoAnswer = "no answer"

// Kind tells failures apart that are worth a line each in a log: the status and
// code, or NoAnswer. A connection's own error names ports, and so is never the
// same twice.
func Kind(err error) string {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusMultipleChoices { // else the answer broke off
		return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", response.HTTPStatusCode(), Code(err)))
	}
	return NoAnswer
}

// Code gives the service's error code, "" where it gave none that can be shown.
func Code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	code := api.ErrorCode()
	if at := strings.LastIndexByte(code, '#'); at >= 0 {
		code = code[at+1:]
	}
	if !plainCode.MatchString(code) {
		return ""
	}
	return code
}

type failure struct {
	text  string
	cause error
}

// Error implements error.
func (f *failure) Error() string { return f.text }

// Unwrap gives the SDK's error, to look for a cause in. It is not for a log.
func (f *failure) Unwrap() error { return f.cause }
