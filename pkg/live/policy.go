package live

import (
	"context"
	"encoding/json"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// PolicyKey is a policy with the key that it was given; the key is shown this
// once.
type PolicyKey struct {
	Policy control.AccessPolicy
	Key    string
}

// AccessPolicy reads the Worker's access policy.
func (d *Desk) AccessPolicy(ctx context.Context, by By) (control.AccessPolicy, error) {
	of, err := d.releaseOf(ctx, by.Tenant, everyRelease)
	if err != nil {
		return control.AccessPolicy{}, err
	}
	result, err := d.read(ctx, of, by, control.AccessPolicyGet)
	if err != nil {
		return control.AccessPolicy{}, err
	}
	policy, err := control.DecodeAccessPolicy(result)
	if err != nil {
		return control.AccessPolicy{}, unusable(err)
	}
	return policy, nil
}

// ReplaceAccessPolicy sets mode and allow list; the key stays.
func (d *Desk) ReplaceAccessPolicy(ctx context.Context, by By, base int64, mode string, allowlist []string) (control.AccessPolicy, error) {
	if allowlist == nil {
		allowlist = []string{}
	}
	policy, _, err := d.changePolicy(ctx, by, settings.AccessPolicyReplace, map[string]any{
		"baseRevision": base, "mode": mode, "ipAllowlist": allowlist,
	})
	return policy, err
}

// RotateKey gives the Worker a new API key; the one before opens nothing any
// more.
func (d *Desk) RotateKey(ctx context.Context, by By, base int64) (PolicyKey, error) {
	key, err := newKey()
	if err != nil {
		return PolicyKey{}, err
	}
	policy, _, err := d.changePolicy(ctx, by, settings.AccessPolicyKeyRotate, map[string]any{
		"baseRevision": base, "keyDigest": key.digest, "lastFour": key.lastFour,
	})
	if err != nil {
		return PolicyKey{}, err
	}
	return PolicyKey{Policy: policy, Key: key.text}, nil
}

// RevokeKey takes the Worker's API key away and tells whether there was one.
func (d *Desk) RevokeKey(ctx context.Context, by By, base int64) (control.AccessPolicy, bool, error) {
	return d.changePolicy(ctx, by, settings.AccessPolicyKeyRevoke, map[string]any{"baseRevision": base})
}

func (d *Desk) changePolicy(ctx context.Context, by By, operation settings.Operation, payload map[string]any) (control.AccessPolicy, bool, error) {
	command, err := parse(operation, payload)
	if err != nil {
		return control.AccessPolicy{}, false, err
	}
	result, err := d.changeLive(ctx, by, command)
	if err != nil {
		return control.AccessPolicy{}, false, err
	}
	done := readChange(result)
	policy, err := control.ReadAccessPolicy(done.Current)
	return policy, done.Revoked, err
}

// changed is the result of a mutation that settle has found good.
type changed struct {
	Current json.RawMessage `json:"current"`
	Revoked bool            `json:"revoked"`
	Deleted bool            `json:"deleted"`
}

func readChange(result json.RawMessage) changed {
	var c changed
	_ = json.Unmarshal(result, &c) // its form was checked when it was settled
	return c
}
