package liveplane_test

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// applied is a change that a fact tells of, with what its row keeps.
type applied struct {
	*change
	row        string // and mutation, and fact
	generation string
	stored     settings.Stored
	noOp       bool // as the fact says
}

// kind is the object that the operation changes.
func (c *change) kind() string {
	kind, _, _ := strings.Cut(string(c.operation), ".")
	return kind
}

// model is the state of a Worker as the facts make it.
type model struct {
	w      *world
	policy struct {
		mode      string
		allowlist []string
		lastFour  string
		revision  int64
	}
	config struct {
		value    string
		revision int64
	}
	table    settings.Table
	secrets  map[string]string // digests
	accounts map[string]string // digests
}

// fold makes the state of the facts. Changes with a revision follow each other
// by their bases, each base used once; the others follow in the order in which
// the Worker got them, of which none overtakes another in its department's turn.
func fold(w *world, facts map[string]applied) *model {
	m := &model{w: w, secrets: map[string]string{}, accounts: map[string]string{}}
	m.policy.mode, m.policy.allowlist, m.config.value = "private", []string{}, "{}"
	m.table.Operations = map[string]settings.Row{}
	for _, id := range w.Front.Order() {
		if a, ok := facts[id]; ok {
			m.named(a)
		}
	}
	m.policy.revision = m.chain(facts, "access_policy", m.onPolicy, func(applied) bool { return m.policy.lastFour == "" }, nil)
	m.config.revision = m.chain(facts, "runtime_config", m.onConfig, nil, nil)
	m.tables(facts)
	return m
}

// named applies a change of a secret or an account.
func (m *model) named(a applied) {
	into, digest := m.secrets, a.stored.ValueDigest
	if a.kind() == "service_accounts" {
		into, digest = m.accounts, a.stored.PasswordDigest
	} else if a.kind() != "secrets" {
		return
	}
	_, was := into[a.id]
	switch a.operation {
	case settings.SecretsPut, settings.CredentialsPut:
		into[a.id] = digest
	default:
		delete(into, a.id)
		if a.noOp == was {
			m.w.T.Errorf("no-op %t, but it was there: %t: %v", a.noOp, was, a.change)
		}
	}
}

// chain applies the changes of a kind by their bases and gives the last
// revision. idle tells whether a no-op fits the state; gap is asked when no
// change has the base.
func (m *model) chain(facts map[string]applied, kind string, apply func(applied), idle func(applied) bool, gap func(next *applied) bool) int64 {
	at, left := map[int64][]applied{}, 0
	for _, a := range facts {
		if a.kind() == kind {
			at[a.base] = append(at[a.base], a)
			left++
		}
	}
	revision := int64(0)
	for {
		var next *applied
		for _, a := range at[revision] {
			switch {
			case a.noOp && (idle == nil || !idle(a)):
				m.w.T.Errorf("a no-op, but there was a key: %v", a.change)
			case a.noOp:
			case next != nil:
				m.w.T.Errorf("two changes were applied to revision %d:\n%v\n%v", revision, next.change, a.change)
			default:
				next = &a
			}
			if a.noOp {
				left--
			}
		}
		at[revision] = slices.DeleteFunc(at[revision], func(a applied) bool { return a.noOp })
		if gap != nil && gap(next) {
			if m.table.Revision > revision {
				revision++
			}
			continue
		}
		if next == nil {
			break
		}
		apply(*next)
		left--
		revision++
	}
	if left != 0 {
		m.w.T.Errorf("%s: %d changes are not in the line of revisions that ends at %d", kind, left, revision)
	}
	return revision
}

func (m *model) onPolicy(a applied) {
	switch a.operation {
	case settings.AccessPolicyReplace:
		m.policy.mode, m.policy.allowlist = a.mode, a.allowlist
	case settings.AccessPolicyKeyRotate:
		m.policy.lastFour = a.stored.LastFour
	default:
		if m.policy.lastFour == "" {
			m.w.T.Errorf("there was no key to revoke: %v", a.change)
		}
		m.policy.lastFour = ""
	}
}

func (m *model) onConfig(a applied) {
	m.config.value = "{}"
	if a.operation == settings.RuntimeConfigReplace {
		m.config.value = a.config
	}
}

// tables follows the operation settings through the releases: each one takes
// the table of the one before along, as a revision of its own.
func (m *model) tables(facts map[string]applied) {
	releases := m.w.releases
	at := 0
	carry := func(next *applied) bool {
		if (next != nil && next.generation == releases[at].ReleaseGeneration) || at+1 == len(releases) {
			return false
		}
		at++
		if m.table.Revision > 0 {
			m.table.Revision++
			maps.DeleteFunc(m.table.Operations, func(id string, _ settings.Row) bool {
				return !slices.Contains(m.w.projects[releases[at].ID], id)
			})
		}
		return true
	}
	m.chain(facts, "operation_settings", func(a applied) {
		m.onTable(a)
		m.table.Revision++
		if a.generation != releases[at].ReleaseGeneration {
			m.w.T.Errorf("applied to another release: %v", a.change)
		}
	}, func(a applied) bool { return !m.row(a.id).APIKeyConfigured }, carry)
}

func (m *model) onTable(a applied) {
	row := m.row(a.id)
	switch a.operation {
	case settings.OperationSettingsReplace:
		m.table.DefaultServiceAccountID = over(a.standard, m.table.DefaultServiceAccountID)
		rows := map[string]settings.Row{}
		for id, wanted := range a.rows {
			row := m.row(id)
			row.Access, row.ServiceAccountID = wanted.Access, over(wanted.Account, row.ServiceAccountID)
			rows[id] = row
		}
		m.table.Operations = rows
		return
	case settings.OperationKeyRotate:
		row.APIKeyConfigured, row.APIKeyLastFour = true, &a.stored.LastFour
	default:
		if !row.APIKeyConfigured {
			m.w.T.Errorf("there was no key to revoke: %v", a.change)
		}
		row.APIKeyConfigured, row.APIKeyLastFour = false, nil
	}
	m.table.Operations[a.id] = row
}

func (m *model) row(id string) settings.Row {
	row, isSet := m.table.Operations[id]
	if !isSet {
		return settings.Inherit()
	}
	return row
}

func over(b settings.Binding, now *string) *string {
	if b.Given {
		return b.ID
	}
	return now
}

// compare checks all that can be read of the Worker.
func (m *model) compare() {
	t, ctx, by := m.w.T, context.Background(), m.w.By()
	policy, err := m.w.desk.AccessPolicy(ctx, by)
	if err != nil || policy.Mode != m.policy.mode || !slices.Equal(policy.IPAllowlist, m.policy.allowlist) ||
		text(policy.APIKeyLastFour) != m.policy.lastFour || policy.Revision != m.policy.revision {
		t.Errorf("policy %+v %v, want %+v", policy, err, m.policy)
	}
	config, err := m.w.desk.RuntimeConfig(ctx, by)
	if err != nil || string(config.Value) != m.config.value || config.Revision != m.config.revision || config.SHA256 != canonical.SHA256(config.Value) {
		t.Errorf("config %+v %v, want %+v", config, err, m.config)
	}
	table, err := m.w.desk.Operations(ctx, by)
	if err != nil || table.Revision != m.table.Revision || text(table.DefaultServiceAccountID) != text(m.table.DefaultServiceAccountID) || len(table.Operations) != len(m.w.operations()) {
		t.Errorf("settings %+v %v, want %+v", table, err, m.table)
	}
	for id, got := range table.Operations {
		want := m.row(id)
		if got.Access != want.Access || got.APIKeyConfigured != want.APIKeyConfigured || text(got.APIKeyLastFour) != text(want.APIKeyLastFour) ||
			text(got.ServiceAccountID) != text(want.ServiceAccountID) {
			t.Errorf("operation %s: %+v, want %+v", id, got, want)
		}
	}
	secrets, err := m.w.desk.Secrets(ctx, by)
	found := map[string]string{}
	for _, s := range secrets {
		found[s.Name] = s.SHA256
	}
	if err != nil || !maps.Equal(found, m.secrets) {
		t.Errorf("secrets %v %v, want %v", found, err, m.secrets)
	}
	accounts, err := m.w.desk.Accounts(ctx, by)
	found = map[string]string{}
	for _, a := range accounts {
		found[a.ID] = a.PasswordDigest
	}
	if err != nil || !maps.Equal(found, m.accounts) {
		t.Errorf("accounts %v %v, want %v", found, err, m.accounts)
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
