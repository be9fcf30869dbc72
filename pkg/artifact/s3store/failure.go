package s3store

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/awsclient"
)

// failure is what a call ended with. Its text names the operation, and the
// status and code or the connection's error; what the service wrote beside the
// code is left out, because it may quote the request.
type failure struct {
	operation string
	text      string
	cause     error
}

// Error implements error.
func (f *failure) Error() string { return "S3 " + f.operation + ": " + f.text }

// Unwrap gives the SDK's error, to look for a cause in. It is not for a log.
func (f *failure) Unwrap() error { return f.cause }

// maxFailureText bounds what is kept of a connection's error, in bytes.
const maxFailureText = 300

// failure makes an error of the port of what a call ended with.
func (s *Store) failure(operation string, err error) error {
	f := &failure{operation: operation, cause: err}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() != 0 {
		f.text = strings.TrimSpace(fmt.Sprintf("HTTP %d %s", response.HTTPStatusCode(), awsclient.Code(err)))
	} else {
		f.text = s.credentials.redact(innermost(err).Error())
	}
	if len(f.text) > maxFailureText {
		f.text = f.text[:maxFailureText]
	}
	return fmt.Errorf("%w: %w", artifact.ErrUnavailable, f)
}

// innermost leaves the SDK's wrapping out of a connection's error.
func innermost(err error) error {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) {
		return send.Err
	}
	return err
}

// statusOf gives the response's status, 0 when there was none.
func statusOf(err error) int {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
}

// missing tells whether the service said that there is no such object. A
// missing bucket is another matter: it says nothing of the object.
func missing(err error) bool {
	code := awsclient.Code(err)
	return statusOf(err) == http.StatusNotFound && (code == "NoSuchKey" || code == "NotFound")
}

// taken tells whether a conditional write met an object, or another write.
func taken(err error) bool {
	status := statusOf(err)
	return status == http.StatusPreconditionFailed || status == http.StatusConflict
}

// unknown tells whether a failed write may yet have been carried out: no
// answer, or one of a service in trouble.
func unknown(err error) bool {
	status := statusOf(err)
	return status == 0 || status == http.StatusRequestTimeout ||
		(status >= http.StatusInternalServerError && status != http.StatusNotImplemented)
}
