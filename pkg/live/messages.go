package live

import (
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// The refusals, those of S2 and D13 word for word.
var (
	errLockHeld        = fault.Coded(fault.Conflict, "deployment_in_progress", "Another Worker settings mutation or deployment is in progress")
	errLockUnavailable = fault.New(fault.Unavailable, "Operation-settings mutation lock is unavailable")
	errInFlight        = fault.Coded(fault.Conflict, "deployment_in_progress", "Operation settings cannot change during a deployment")

	errNoRelease = fault.Coded(fault.Conflict, "live_release_required", "The Worker has no live release yet; deploy a version first")
	errMigrating = fault.Coded(fault.Conflict, "worker_migration_in_progress", "Worker migration is in progress")

	errSecretsUnsupported = fault.Coded(fault.Conflict, "worker_secrets_unsupported",
		"The release does not support Worker secrets; upload the project again and deploy the new revision")
	errSettingsUnsupported = fault.Coded(fault.Conflict, "operation_settings_unsupported",
		"The release does not support operation settings; upload the project again and deploy the new revision")
	errAccountsUnsupported = fault.Coded(fault.Conflict, "service_accounts_unsupported",
		"The release does not support service accounts; upload the project again and deploy the new revision")
	errLiveRequired = fault.Coded(fault.Conflict, "operation_settings_live_release_required",
		"A first deployment takes no operation settings; deploy, then set them")
	errSameRelease = fault.Coded(fault.Conflict, "operation_settings_same_release",
		"The version is the release that is live; change its settings without a deployment")

	errNoOperation = fault.New(fault.NotFound, "Operation not found")

	errPolicyStale   = fault.Coded(fault.Conflict, "revision_stale", "Access-policy revision is stale")
	errConfigStale   = fault.Coded(fault.Conflict, "revision_stale", "Runtime-configuration revision is stale")
	errSettingsStale = fault.New(fault.Conflict, "Operation-settings revision is stale") // S2-099

	errSecretLimit  = fault.Coded(fault.Conflict, "secret_limit_reached", "A Worker has at most 64 secrets")
	errAccountLimit = fault.Coded(fault.Conflict, "service_account_limit_reached", "A Worker has at most 64 service accounts")

	errChanging    = fault.Coded(fault.Unavailable, "worker_changing", "The Worker is being changed; try again")
	errUnreachable = fault.Coded(fault.Unavailable, "worker_control_unavailable", "The Worker did not answer; nothing was changed")
	errUnknown     = fault.Coded(fault.Unavailable, "control_outcome_unknown",
		"The change may or may not have been applied; read the current state before changing it again")
	errNotCommitted = fault.Coded(fault.Unavailable, "control_not_recorded", "The change could not be recorded and was not sent; try again")
)

// stale is the answer to a change whose base revision is not the current one.
func stale(operation settings.Operation) error {
	switch operation {
	case settings.AccessPolicyReplace, settings.AccessPolicyKeyRotate, settings.AccessPolicyKeyRevoke:
		return errPolicyStale
	case settings.RuntimeConfigReplace, settings.RuntimeConfigDelete:
		return errConfigStale
	default:
		return errSettingsStale
	}
}

// refused is the answer to a change that the Worker definitely did not make.
func refused(err *control.RefusedError) error {
	switch err.Code {
	case errSecretLimit.Code:
		return errSecretLimit
	case errAccountLimit.Code:
		return errAccountLimit
	case "release_generation_mismatch", "worker_not_found":
		return errChanging.Because(err)
	}
	return errUnreachable.Because(err)
}

// readFailed is the answer when a state could not be read.
func readFailed(err error) error {
	var no *control.RefusedError
	if errors.As(err, &no) {
		return refused(no)
	}
	return errUnreachable.Because(err)
}

// places are where the fields of commands stand in requests.
var places = map[string][]any{
	"baseRevision": {"body", "base_revision"}, "mode": {"body", "mode"}, "ipAllowlist": {"body", "ip_allowlist"},
	"valueJson": {"body", "value"}, "operationId": {"path", "operation_id"}, "name": {"path", "name"}, "value": {"body", "value"},
	"serviceAccountId": {"path", "service_account_id"}, "username": {"body", "username"}, "password": {"body", "password"},
	"operations": {"body", "operations"}, "defaultServiceAccountId": {"body", "default_service_account_id"},
}

// invalid is the 422 of a command that was refused before it was sent; its
// text names no value.
func invalid(err error) error {
	var field *settings.FieldError
	if !errors.As(err, &field) || places[field.Field] == nil {
		return fmt.Errorf("make the command: %w", err)
	}
	return fault.Refuse(fault.Problem{
		Type: "value_invalid", Loc: places[field.Field], Msg: fmt.Sprintf("%s: %v", places[field.Field][1], field.Reason),
	}).Because(err)
}
