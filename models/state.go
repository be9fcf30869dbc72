package models

import (
	"errors"
	"fmt"
)

// WorkerStatus says whether a Worker takes invocations.
type WorkerStatus string

// The Worker statuses (S3-17).
const (
	// WorkerDraft: nothing was ever deployed. A manager acts next.
	WorkerDraft WorkerStatus = "draft"
	// WorkerActive: the current version answers invocations.
	WorkerActive WorkerStatus = "active"
	// WorkerPaused: a deployment holds it, or its outcome is uncertain; no
	// invocation is admitted. The deployment task or a company admin's repair
	// acts next.
	WorkerPaused WorkerStatus = "paused"
)

// VersionState is the place of a revision on the ladder of S2.
type VersionState string

// The version states (S3-28), each with who acts next and who rescues it.
const (
	// VersionUploading is the database's fail-closed default. No code path
	// produces it and nothing leaves it (S3-29, S3-30).
	VersionUploading VersionState = "uploading"
	// VersionReady: submitted and complete. A manager's deployment acts next.
	VersionReady VersionState = "ready"
	// VersionDeployPending: admitted. The deployment task acts next; the
	// recovery sweep publishes it again when no task does.
	VersionDeployPending VersionState = "deploy_pending"
	// VersionDeploying: fenced; the provider may be changing. The task that
	// holds the lease acts next; whoever takes over only reads (S2-214).
	VersionDeploying VersionState = "deploying"
	// VersionDeployed: live. The next successful deployment acts next.
	VersionDeployed VersionState = "deployed"
	// VersionSuperseded: replaced, kept as evidence, final (S2-015).
	VersionSuperseded VersionState = "superseded"
	// VersionFailed: the provider was provably not changed. Final.
	VersionFailed VersionState = "failed"
	// VersionUncertain: the outcome is not known. A company admin's repair
	// acts next, nothing else does (S2-249).
	VersionUncertain VersionState = "uncertain"
)

// OutboxStatus is the durable state of an intent.
type OutboxStatus string

// The outbox statuses (S3-46). A deployment's ticket shows them too.
const (
	// OutboxPending: waits for a delivery or, for cleanup and audit rows, for
	// its due time. A consumer or a sweep acts next.
	OutboxPending OutboxStatus = "pending"
	// OutboxLeased: one owner works on it until its lease ends; the recovery
	// sweep rescues it after that.
	OutboxLeased OutboxStatus = "leased"
	// OutboxCompleted, OutboxFailed and OutboxCancelled are final for a
	// deployment (S2-264).
	OutboxCompleted OutboxStatus = "completed"
	OutboxFailed    OutboxStatus = "failed"
	OutboxCancelled OutboxStatus = "cancelled"
	// OutboxUncertain: paused until a company admin's repair; it keeps the
	// admission fence (S2-081).
	OutboxUncertain OutboxStatus = "uncertain"
)

// Released reports whether the status frees the department for its next
// deployment: ADMISSION_RELEASE_STATUSES of S2 (S2-080).
func (s OutboxStatus) Released() bool {
	return s == OutboxCompleted || s == OutboxFailed || s == OutboxCancelled
}

// Operation is what an outbox row intends.
type Operation string

// The operations (S3-45). "delete" is in the CHECK for forward compatibility
// and has no code path (S3-81).
const (
	OperationDeploy          Operation = "deploy"
	OperationArtifactCleanup Operation = "artifact_cleanup"
	OperationControlAudit    Operation = "control_audit"
)

// Edge is one permitted step from one state to another, and who takes it.
type Edge[S ~string] struct {
	From, To S
	By       string
}

// VersionEdges is the whole ladder of S2 with the two edges that D19 adds.
// docs/states.md is tested against it.
var VersionEdges = []Edge[VersionState]{
	{VersionReady, VersionDeployPending, "deploy admission"},
	{VersionDeployPending, VersionDeploying, "pre-provider fence"},
	{VersionDeployPending, VersionFailed, "definite failure before the fence"},
	{VersionDeploying, VersionDeployed, "success settlement"},
	{VersionDeploying, VersionFailed, "provider provably untouched"},
	{VersionDeploying, VersionUncertain, "ambiguous result"},
	{VersionDeploying, VersionDeployPending, "retryable result"},
	{VersionUncertain, VersionDeploying, "company repair"},
	{VersionDeployed, VersionSuperseded, "the next success settlement"},
}

// OutboxEdges is every step an intent may take.
var OutboxEdges = []Edge[OutboxStatus]{
	{OutboxPending, OutboxLeased, "lease"},
	{OutboxPending, OutboxFailed, "definite refusal before a lease"},
	{OutboxPending, OutboxCancelled, "adoption by the version's transaction"},
	{OutboxPending, OutboxCompleted, "the request whose command was applied"},
	{OutboxPending, OutboxUncertain, "isolation of an invalid payload"},
	{OutboxLeased, OutboxLeased, "takeover of an ended lease"},
	{OutboxLeased, OutboxPending, "retryable result"},
	{OutboxLeased, OutboxCompleted, "success settlement"},
	{OutboxLeased, OutboxFailed, "definite failure"},
	{OutboxLeased, OutboxCancelled, "cleanup of referenced objects"},
	{OutboxLeased, OutboxCancelled, "control row of a retired Worker"},
	{OutboxLeased, OutboxUncertain, "ambiguous result"},
	{OutboxUncertain, OutboxPending, "company repair"},
	{OutboxCompleted, OutboxPending, "cleanup whose writer came back late"},
}

// Permits reports whether edges hold the step from → to.
func Permits[S ~string](edges []Edge[S], from, to S) bool {
	for _, e := range edges {
		if e.From == from && e.To == to {
			return true
		}
	}
	return false
}

// ErrStaleTransition says that a compare-and-set found another state, owner or
// mark than it expected: somebody else has moved the row.
var ErrStaleTransition = errors.New("the row was changed by somebody else")

// ErrForbiddenTransition says that the step is not an edge at all: a defect.
type ErrForbiddenTransition struct{ From, To string }

func (e ErrForbiddenTransition) Error() string {
	return fmt.Sprintf("transition %s → %s is not permitted", e.From, e.To)
}
