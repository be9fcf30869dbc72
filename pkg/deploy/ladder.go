package deploy

import (
	"context"
	"errors"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// The error codes that a ticket may show (S2, D14, D19).
const (
	codeProviderInvalid    = "edge_workers_provider_invalid"
	codeDepartmentDeleted  = "department_deleted"
	codeWorkerDeleted      = "worker_deleted"
	codeIntegrity          = "artifact_integrity_failed"
	codeStorageUnavailable = "artifact_storage_unavailable"
	codeInternal           = "deployment_internal_error"
	codeMismatch           = "provider_bundle_mismatch"
	codeSettlementLost     = "provider_settlement_lost"
	codeUploadUncertain    = "cloudflare_upload_uncertain"
	codeReadinessTimeout   = "worker_readiness_timeout"
)

// failedText is what every terminal failure but one stores as the version's
// error_message (S2-229).
const failedText = "deployment failed"

// verdict is what is to be done with the row; doing it is settle's work.
type verdict string

const (
	completed verdict = "completed" // the release answered
	failed    verdict = "failed"    // the provider is provably unchanged
	uncertain verdict = "uncertain" // neither is known
	retryable verdict = "retryable" // withdraw the fence, if any, and try again
	deferred  verdict = "deferred"  // the host takes it later; not counted
	stopped   verdict = "stopped"   // not ours any more: write nothing
	abandoned verdict = "abandoned" // cannot be written now: the lease's end and the sweep decide
)

// outcome is a verdict with what the ticket will say and what the log will.
type outcome struct {
	kind  verdict
	code  string
	text  string
	cause error
}

// ladder maps an error of a stage to its outcome (D14). It asks for error
// classes only, never for a provider's name (S1-132).
func (r *run) ladder(err error) outcome {
	var terminal *provider.TerminalError
	var limited *provider.RateLimitedError
	var later *provider.DeferredError
	var unknown *database.CommitUnknownError
	switch {
	case errors.Is(err, outbox.ErrLeaseLost), errors.Is(err, models.ErrStaleTransition):
		return outcome{kind: stopped, cause: err}
	case errors.Is(err, errWorkerDeleted):
		return outcome{kind: failed, code: codeWorkerDeleted, text: errWorkerDeleted.Error(), cause: err}
	case errors.As(err, &terminal):
		return outcome{kind: failed, code: terminal.Code, text: terminal.Guidance, cause: err}
	case errors.As(err, &limited):
		return r.again(limited.Code, err)
	case errors.As(err, &later):
		return outcome{kind: deferred, code: later.Code, cause: err}
	case errors.Is(err, errIntegrity):
		return outcome{kind: failed, code: codeIntegrity, cause: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &unknown):
		return outcome{kind: abandoned, cause: err}
	case database.IsUnavailable(err) && !r.fenced():
		return outcome{kind: abandoned, cause: err}
	case errors.Is(err, artifact.ErrUnavailable) && !r.fenced():
		return r.again(codeStorageUnavailable, err)
	}
	return r.undecided(codeInternal, err)
}

// again asks for another attempt while there is one left, else fails safely
// (S2-204, S2-205).
func (r *run) again(code string, err error) outcome {
	if r.lease.Attempts >= maxAttempts {
		return outcome{kind: failed, code: code, cause: err}
	}
	return outcome{kind: retryable, code: code, cause: err}
}

// undecided is failed before the fence and uncertain after it.
func (r *run) undecided(code string, err error) outcome {
	if r.fenced() {
		return outcome{kind: uncertain, code: code, cause: err}
	}
	return outcome{kind: failed, code: code, cause: err}
}

// fenced reports whether this or an earlier run may have reached the provider.
func (r *run) fenced() bool {
	return r.lease.ReadOnly || r.version.State == models.VersionDeploying
}

func isUncertain(err error) bool {
	var u *provider.UncertainError
	return errors.As(err, &u)
}

// afterReadBack names a read-back that did not match: provably different, or
// unreadable after an accepted or an unknown upload (S2-211, S2-212, D19).
func afterReadBack(err, uploadErr error) outcome {
	var mismatch *provider.MismatchError
	cause := errors.Join(uploadErr, err)
	switch {
	case errors.As(err, &mismatch):
		return outcome{kind: uncertain, code: codeMismatch, cause: cause}
	case uploadErr == nil:
		return outcome{kind: uncertain, code: codeSettlementLost, cause: cause}
	}
	return outcome{kind: uncertain, code: codeUploadUncertain, cause: cause}
}
