package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// changeTimeout bounds a change of a live Worker: a little more than the API
// gives itself.
const changeTimeout = 330 * time.Second

// change sends a change of a live Worker, once: after an error for which
// OutcomeUnknown holds it may have been made.
func change[T any](ctx context.Context, c *Client, method string, body any, path ...string) (T, error) {
	var none T
	in := call{method: method, path: append([]string{"worker"}, path...), timeout: changeTimeout}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return none, fmt.Errorf("encode the change: %w", err)
		}
		in.contentType, in.body = "application/json", encoded
	}
	return fetch[T](ctx, c, in)
}

func state[T any](ctx context.Context, c *Client, path string) (T, error) {
	return fetch[T](ctx, c, call{method: http.MethodGet, path: []string{"worker", path}, repeatable: true})
}

// AccessPolicy tells who may call the live Worker.
func (c *Client) AccessPolicy(ctx context.Context) (gen.AccessPolicy, error) {
	return state[gen.AccessPolicy](ctx, c, "access-policy")
}

// ReplaceAccessPolicy sets mode and allow list.
func (c *Client) ReplaceAccessPolicy(ctx context.Context, in gen.AccessPolicyRequest) (gen.AccessPolicy, error) {
	return change[gen.AccessPolicy](ctx, c, http.MethodPut, in, "access-policy")
}

// RotateAccessKey gives the Worker a new API key, which is in the answer and
// nowhere else.
func (c *Client) RotateAccessKey(ctx context.Context, base int64) (gen.AccessPolicyKey, error) {
	return change[gen.AccessPolicyKey](ctx, c, http.MethodPost, gen.RevisionRequest{BaseRevision: base}, "access-policy", "api-key", "rotate")
}

// RevokeAccessKey takes the Worker's API key away.
func (c *Client) RevokeAccessKey(ctx context.Context, base int64) (gen.AccessPolicyRevocation, error) {
	return change[gen.AccessPolicyRevocation](ctx, c, http.MethodPost, gen.RevisionRequest{BaseRevision: base}, "access-policy", "api-key", "revoke")
}

// RuntimeConfig gives what handlers see as ctx.config.
func (c *Client) RuntimeConfig(ctx context.Context) (gen.RuntimeConfig, error) {
	return state[gen.RuntimeConfig](ctx, c, "runtime-config")
}

// ReplaceRuntimeConfig puts a JSON object in place of the configuration.
func (c *Client) ReplaceRuntimeConfig(ctx context.Context, base int64, value json.RawMessage) (gen.RuntimeConfig, error) {
	return change[gen.RuntimeConfig](ctx, c, http.MethodPut, gen.RuntimeConfigRequest{BaseRevision: base, Value: value}, "runtime-config")
}

// DeleteRuntimeConfig empties the configuration.
func (c *Client) DeleteRuntimeConfig(ctx context.Context, base int64) (gen.RuntimeConfig, error) {
	return fetch[gen.RuntimeConfig](ctx, c, call{
		method: http.MethodDelete, path: []string{"worker", "runtime-config"}, timeout: changeTimeout,
		query: url.Values{"base_revision": {strconv.FormatInt(base, 10)}},
	})
}

// OperationSettings gives the settings of the live release's operations.
func (c *Client) OperationSettings(ctx context.Context) (gen.OperationSettings, error) {
	return state[gen.OperationSettings](ctx, c, "operation-settings")
}

// ReplaceOperationSettings sets the whole table. The request is the API's JSON,
// in which a field that is left out is another thing than null.
func (c *Client) ReplaceOperationSettings(ctx context.Context, in gen.OperationSettingsRequest) (gen.OperationSettings, error) {
	return change[gen.OperationSettings](ctx, c, http.MethodPut, in, "operation-settings")
}

// RotateOperationKey gives an operation a new API key, which is in the answer
// and nowhere else.
func (c *Client) RotateOperationKey(ctx context.Context, operationID string, base int64) (gen.OperationSettingsKey, error) {
	return change[gen.OperationSettingsKey](ctx, c, http.MethodPost, gen.RevisionRequest{BaseRevision: base}, "operation-settings", segment(operationID), "api-key", "rotate")
}

// RevokeOperationKey takes an operation's own API key away.
func (c *Client) RevokeOperationKey(ctx context.Context, operationID string, base int64) (gen.OperationSettingsRevocation, error) {
	return change[gen.OperationSettingsRevocation](ctx, c, http.MethodPost, gen.RevisionRequest{BaseRevision: base}, "operation-settings", segment(operationID), "api-key", "revoke")
}

// Secrets lists the live Worker's secrets without their values.
func (c *Client) Secrets(ctx context.Context) (gen.SecretList, error) {
	return state[gen.SecretList](ctx, c, "secrets")
}

// PutSecret sets a secret.
func (c *Client) PutSecret(ctx context.Context, name, value string) (gen.Secret, error) {
	return change[gen.Secret](ctx, c, http.MethodPut, gen.SecretRequest{Value: value}, "secrets", segment(name))
}

// DeleteSecret removes a secret.
func (c *Client) DeleteSecret(ctx context.Context, name string) (gen.SecretDeletion, error) {
	return change[gen.SecretDeletion](ctx, c, http.MethodDelete, nil, "secrets", segment(name))
}

// ServiceAccounts lists the accounts whose credentials were put.
func (c *Client) ServiceAccounts(ctx context.Context) (gen.ServiceAccountList, error) {
	return state[gen.ServiceAccountList](ctx, c, "service-accounts")
}

// PutCredentials sets an account's credentials.
func (c *Client) PutCredentials(ctx context.Context, id, username, password string) (gen.ServiceAccount, error) {
	return change[gen.ServiceAccount](ctx, c, http.MethodPut, gen.CredentialsRequest{Username: username, Password: password}, "service-accounts", segment(id), "credentials")
}

// DeleteCredentials removes an account.
func (c *Client) DeleteCredentials(ctx context.Context, id string) (gen.ServiceAccountDeletion, error) {
	return change[gen.ServiceAccountDeletion](ctx, c, http.MethodDelete, nil, "service-accounts", segment(id), "credentials")
}
