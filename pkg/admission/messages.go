package admission

import (
	"fmt"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// Every refusal of S2, word for word. Clients read the code where there is
// one and never compare a message (S2-040).
var (
	errTargetUnverified = fault.Coded(fault.Conflict, "worker_serving_target_unavailable", "Worker deployment target cannot be verified")
	errDedupeMismatch   = fault.Coded(fault.Conflict, "operation_settings_dedupe_mismatch", "Deployment settings differ from the existing ticket")

	errTargetLost        = fault.New(fault.Conflict, "Worker deployment target cannot be verified")
	errMigrating         = fault.Coded(fault.Conflict, "worker_migration_in_progress", "Worker migration is in progress")
	errRevisionChanged   = fault.New(fault.Conflict, "Worker revision changed; refresh before deploying")
	errDigestDiffers     = fault.New(fault.Conflict, "operation-settings digest differs from the existing deployment")
	errDigestInvalid     = fault.New(fault.Conflict, "operation-settings digest is invalid")
	errSuperseded        = fault.New(fault.Conflict, "Worker version was superseded; V2 rollback is not supported")
	errUncertain         = fault.New(fault.Conflict, "uncertain deployment requires company reconciliation")
	errActive            = fault.New(fault.Conflict, "a deployment is already active for this department Worker")
	errSequenceExhausted = fault.New(fault.Conflict, "Worker deployment sequence is exhausted")
	errTargetUnavailable = fault.New(fault.Conflict, "Worker deployment target is unavailable")

	errDowngrade = fault.Coded(fault.Conflict, "release_downgrade_blocked",
		"The live release does not allow an older builder policy; upload the project again and deploy the new revision")

	errRevisionStale = fault.New(fault.Conflict, "Worker revision is stale; refresh department state")
	errNotUncertain  = fault.Coded(fault.Conflict, "deployment_not_uncertain", "Only an uncertain deployment can be reconciled")

	errOutcomeUnknown = fault.Coded(fault.Unavailable, "deployment_outcome_unknown",
		"The deployment may have been admitted; repeat the same request to get its ticket")
)

func errNotReady(state models.VersionState) error {
	return fault.New(fault.Conflict, fmt.Sprintf("Worker version cannot deploy from state '%s'", state))
}
