package liveplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// outcome is what the caller of a change was told, or saw happen.
type outcome string

const (
	succeeded outcome = "succeeded"
	refused   outcome = "refused" // definitely not applied
	unknown   outcome = "unknown" // may or may not be applied
	died      outcome = "died"    // the process ended before it could tell
)

// change is one change that somebody asked for, by its request id, and what
// came of it.
type change struct {
	request   string
	operation settings.Operation
	fate      fate

	base      int64
	mode      string
	allowlist []string
	config    string
	id        string // of an operation, a secret or an account
	rows      map[string]settings.RowRequest
	standard  settings.Binding
	value     string // of a secret, or a password

	outcome outcome
	noOp    bool  // what the answer said
	left    int64 // the revision in the answer, 0 where there is none
	err     error
}

func (c *change) String() string {
	return fmt.Sprintf("%s %s base %d id %q fate %d: %s no-op %t left %d: %v", c.request, c.operation, c.base, c.id, c.fate, c.outcome, c.noOp, c.left, c.err)
}

// ask is the source of random changes.
type ask struct {
	draws
	w *world
}

func pick[T any](r interface{ IntN(n int) int }, from ...T) T { return from[r.IntN(len(from))] }

func (a ask) chance(percent int) bool { return a.IntN(100) < percent }

// next makes a random change. Names are few, so that changes meet.
func (a ask) next() *change {
	n := a.w.serial.Add(1)
	c := &change{
		request: fmt.Sprintf("req-%d-%s", n, a.w.Tenant.DepartmentID), operation: pick(a, settings.Operations()...),
		mode: pick(a, "private", "api_key", "public"), allowlist: pick(a, []string{}, []string{"192.0.2.0/24"}, []string{"10.0.0.0/8", "2001:db8::/32"}),
		config: fmt.Sprintf(`{"n":%d}`, n), value: fmt.Sprintf("canary-%d-%s", n, a.w.Tenant.DepartmentID),
	}
	switch p := a.IntN(100); {
	case p < 6:
		c.fate = diesBefore
	case p < 12:
		c.fate = diesAfter
	case p < 15:
		c.fate = noConnection
	case p < 20:
		c.fate = clientGone
	}
	switch c.operation {
	case settings.SecretsPut, settings.SecretsDelete:
		c.id = pick(a, "TOKEN", "OTHER")
		return c
	case settings.CredentialsPut, settings.CredentialsDelete:
		c.id = pick(a, "robot", "clerk")
		return c
	default:
	}
	c.id = pick(a, "a", "b", "c")
	c.rows = map[string]settings.RowRequest{}
	for _, id := range a.w.operations() {
		c.rows[id] = settings.RowRequest{Access: pick(a, "inherit", "public", "api_key", "disabled"), Account: a.binding()}
	}
	c.standard = a.binding()
	c.base = a.base(c.operation)
	return c
}

func (a ask) binding() settings.Binding {
	robot := "robot"
	return pick(a, settings.Binding{}, settings.Binding{}, settings.Binding{Given: true}, settings.Binding{Given: true, ID: &robot})
}

// base is the revision that somebody would name: mostly the current one, as
// far as it can be read, sometimes an older or any other.
func (a ask) base(operation settings.Operation) int64 {
	now, err := a.w.revision(context.Background(), a.w.desk, operation)
	switch {
	case err != nil, a.chance(10):
		return int64(a.IntN(12))
	case a.chance(20):
		return max(now-1, 0)
	case a.chance(5):
		return now + 1
	}
	return now
}

// revision reads what a change of the kind would be based on.
func (w *world) revision(ctx context.Context, desk *live.Desk, operation settings.Operation) (int64, error) {
	switch kind, _, _ := strings.Cut(string(operation), "."); kind {
	case "access_policy":
		p, err := desk.AccessPolicy(ctx, w.By())
		return p.Revision, err
	case "runtime_config":
		c, err := desk.RuntimeConfig(ctx, w.By())
		return c.Revision, err
	default:
		t, err := desk.Operations(ctx, w.By())
		return t.Revision, err
	}
}

// try asks for the change. A process that dies is a panic in the channel.
func (w *world) try(c *change) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctx = context.WithValue(ctx, fateKey{}, journey{c.fate, cancel})
	by := w.By()
	by.Actor = audit.Actor{Type: "user", ID: "user:manager", Method: "bearer_jwt", RequestID: c.request}
	defer func() {
		switch gone := recover(); gone {
		case nil:
		case any(errDied):
			c.outcome = died
		default:
			panic(gone)
		}
		w.note(c)
	}()
	c.err = w.send(ctx, by, c)
	c.outcome = outcomeOf(c.err)
}

// send makes the call and takes from its answer what can be compared.
func (w *world) send(ctx context.Context, by live.By, c *change) error {
	did := true
	var err error
	switch c.operation {
	case settings.AccessPolicyReplace:
		p, failed := w.desk.ReplaceAccessPolicy(ctx, by, c.base, c.mode, c.allowlist)
		c.left, err = p.Revision, failed
	case settings.AccessPolicyKeyRotate:
		p, failed := w.desk.RotateKey(ctx, by, c.base)
		c.left, err = p.Policy.Revision, failed
	case settings.AccessPolicyKeyRevoke:
		p, revoked, failed := w.desk.RevokeKey(ctx, by, c.base)
		c.left, did, err = p.Revision, revoked, failed
	case settings.RuntimeConfigReplace:
		config, failed := w.desk.ReplaceRuntimeConfig(ctx, by, c.base, json.RawMessage(c.config))
		c.left, err = config.Revision, failed
	case settings.RuntimeConfigDelete:
		config, failed := w.desk.DeleteRuntimeConfig(ctx, by, c.base)
		c.left, err = config.Revision, failed
	case settings.OperationSettingsReplace:
		t, failed := w.desk.ReplaceOperations(ctx, by, settings.TableRequest{BaseRevision: c.base, DefaultAccount: c.standard, Operations: c.rows})
		c.left, err = t.Revision, failed
	case settings.OperationKeyRotate:
		k, failed := w.desk.RotateOperationKey(ctx, by, c.base, c.id)
		c.left, err = k.Table.Revision, failed
	case settings.OperationKeyRevoke:
		t, revoked, failed := w.desk.RevokeOperationKey(ctx, by, c.base, c.id)
		c.left, did, err = t.Revision, revoked, failed
	case settings.SecretsPut:
		_, err = w.desk.PutSecret(ctx, by, c.id, c.value)
	case settings.SecretsDelete:
		did, err = w.desk.DeleteSecret(ctx, by, c.id)
	case settings.CredentialsPut:
		_, err = w.desk.PutCredentials(ctx, by, c.id, "user-"+c.id, c.value)
	case settings.CredentialsDelete:
		did, err = w.desk.DeleteCredentials(ctx, by, c.id)
	}
	c.noOp = !did
	return err
}
