package control

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// AccessPolicyGet is the operation that reads the access policy; it is also
// the readiness probe of a fresh release.
const AccessPolicyGet = "access_policy.get"

// AccessPolicy is a Worker's access policy as its control state holds it.
type AccessPolicy struct {
	APIKeyConfigured bool       `json:"api_key_configured"`
	APIKeyLastFour   *string    `json:"api_key_last_four"`
	IPAllowlist      []string   `json:"ip_allowlist"`
	Mode             string     `json:"mode"` // private, api_key or public
	Revision         int64      `json:"revision"`
	UpdatedAt        *time.Time `json:"updated_at"` // nil: never changed
}

// AccessPolicy asks the release of the given generation for its policy and
// decodes the answer strictly: another key or type is a *MalformedError.
func (c *Client) AccessPolicy(ctx context.Context, script, generation, subject string) (AccessPolicy, error) {
	result, err := c.Call(ctx, Command{Script: script, Generation: generation, Subject: subject, Operation: AccessPolicyGet})
	if err != nil {
		return AccessPolicy{}, err
	}
	return DecodeAccessPolicy(result)
}

// DecodeAccessPolicy decodes the result of access_policy.get.
func DecodeAccessPolicy(result json.RawMessage) (AccessPolicy, error) {
	var wrapper struct {
		Policy json.RawMessage `json:"policy"`
	}
	if err := decodeExact(result, &wrapper, "policy"); err != nil {
		return AccessPolicy{}, &MalformedError{Detail: "result: " + err.Error()}
	}
	return ReadAccessPolicy(wrapper.Policy)
}

// ReadAccessPolicy decodes a policy itself, such as the one that a change left.
func ReadAccessPolicy(raw json.RawMessage) (AccessPolicy, error) {
	var policy AccessPolicy
	err := decodeExact(raw, &policy,
		"api_key_configured", "api_key_last_four", "ip_allowlist", "mode", "revision", "updated_at")
	if err != nil {
		return AccessPolicy{}, &MalformedError{Detail: "policy: " + err.Error()}
	}
	switch {
	case !slices.Contains([]string{"private", "api_key", "public"}, policy.Mode):
		return AccessPolicy{}, &MalformedError{Detail: "policy: unknown mode"}
	case policy.IPAllowlist == nil, policy.Revision < 0:
		return AccessPolicy{}, &MalformedError{Detail: "policy: ip_allowlist or revision is not usable"}
	case policy.APIKeyConfigured != (policy.APIKeyLastFour != nil):
		return AccessPolicy{}, &MalformedError{Detail: "policy: api_key_last_four does not fit api_key_configured"}
	}
	return policy, nil
}
