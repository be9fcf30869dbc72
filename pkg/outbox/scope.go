package outbox

import (
	"slices"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Serving kinds of D15: "shared" namespaces are served by every environment,
// a "legacy" one is an environment's own.
const (
	ServingShared = "shared"
	ServingLegacy = "legacy"
)

// Location is where a Worker is served.
type Location struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// Scope answers which namespaces this environment may run (D15). The zero
// Scope may run none: an environment without a usable setting claims nothing
// (S1-042).
type Scope struct {
	provider provider.Kind
	own      string
	shared   []string
}

// CloudScope is the scope of a cloud environment: its own dispatch namespace
// and the shared ones. An empty own namespace gives the zero Scope.
func CloudScope(own string, shared ...string) Scope {
	if own == "" {
		return Scope{provider: provider.Cloudflare}
	}
	return Scope{provider: provider.Cloudflare, own: own, shared: slices.Clone(shared)}
}

// OnPremScope is the scope of one edge host: onprem: and the first 12 hex
// digits of the SHA-256 of its identity (D15, S1-032).
func OnPremScope(identity string) Scope {
	if identity == "" {
		return Scope{provider: provider.OnPrem}
	}
	return Scope{provider: provider.OnPrem, own: "onprem:" + canonical.SHA256([]byte(identity))[:12]}
}

// Provider is the provider that the scope belongs to.
func (s Scope) Provider() provider.Kind { return s.provider }

// Cloud reports whether rules that S1 and S2 mark "cloud only" apply.
func (s Scope) Cloud() bool { return s.provider == provider.Cloudflare }

// OnPrem reports whether rules that S1 and S2 mark "on-prem only" apply.
func (s Scope) OnPrem() bool { return s.provider == provider.OnPrem }

// Default is the location of a Worker that records none yet, and the
// namespace that every cleanup intent is stamped with (S1-030, S1-031).
func (s Scope) Default() Location { return Location{Kind: ServingLegacy, Namespace: s.own} }

// Namespaces lists what the environment may run; the empty namespace is never
// among them (S1-040).
func (s Scope) Namespaces() []string {
	if s.own == "" {
		return nil
	}
	return append([]string{s.own}, s.shared...)
}

// May reports whether the environment may run a row of the namespace.
func (s Scope) May(namespace string) bool {
	return namespace != "" && slices.Contains(s.Namespaces(), namespace)
}
