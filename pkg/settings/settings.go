// Package settings is the model of the twelve audited commands to a live
// Worker (design decision D12): which fields each one has, what of it may be
// kept, what a usable receipt of it is, and which audit fact it leaves. It
// decides and does no I/O.
//
// Values that must not be kept (secrets, passwords, salts) pass through a
// Command on their way to the Worker; what is stored comes from a list of
// fields that may be, so a new field is not stored until somebody says so.
package settings

import "slices"

// Operation is the name of a command.
type Operation string

// The twelve audited operations (S1-167 to S1-169).
const (
	AccessPolicyReplace      Operation = "access_policy.replace"
	AccessPolicyKeyRotate    Operation = "access_policy.api_key.rotate"
	AccessPolicyKeyRevoke    Operation = "access_policy.api_key.revoke"
	RuntimeConfigReplace     Operation = "runtime_config.replace"
	RuntimeConfigDelete      Operation = "runtime_config.delete"
	OperationSettingsReplace Operation = "operation_settings.replace"
	OperationKeyRotate       Operation = "operation_settings.api_key.rotate"
	OperationKeyRevoke       Operation = "operation_settings.api_key.revoke"
	SecretsPut               Operation = "secrets.put"
	SecretsDelete            Operation = "secrets.delete"
	CredentialsPut           Operation = "service_accounts.credentials.put"
	CredentialsDelete        Operation = "service_accounts.credentials.delete"
)

// Operations lists the twelve, in the order of D12.
func Operations() []Operation {
	return []Operation{
		AccessPolicyReplace, AccessPolicyKeyRotate, AccessPolicyKeyRevoke, RuntimeConfigReplace, RuntimeConfigDelete,
		OperationSettingsReplace, OperationKeyRotate, OperationKeyRevoke,
		SecretsPut, SecretsDelete, CredentialsPut, CredentialsDelete,
	}
}

// Known reports whether o is one of the twelve.
func (o Operation) Known() bool { return slices.Contains(Operations(), o) }

// fields is the exact payload of each operation (S1-237). The four operations
// without revision have no baseRevision (S1-240).
func (o Operation) fields() []field {
	switch o {
	case AccessPolicyReplace:
		return []field{baseRevision, mode, ipAllowlist}
	case AccessPolicyKeyRotate:
		return []field{baseRevision, keyDigest, lastFour}
	case AccessPolicyKeyRevoke, RuntimeConfigDelete:
		return []field{baseRevision}
	case RuntimeConfigReplace:
		return []field{baseRevision, valueJSON}
	case OperationSettingsReplace:
		return []field{baseRevision, releaseGeneration, defaultServiceAccount, operations}
	case OperationKeyRotate:
		return []field{baseRevision, operationID, keyDigest, lastFour}
	case OperationKeyRevoke:
		return []field{baseRevision, operationID}
	case SecretsPut:
		return []field{secretName, secretValue, valueDigest}
	case SecretsDelete:
		return []field{secretName}
	case CredentialsPut:
		return []field{serviceAccountID, username, password, salt, passwordDigest}
	case CredentialsDelete:
		return []field{serviceAccountID}
	}
	return nil
}
