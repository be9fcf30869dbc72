package builder

import "slices"

// Policy names the rules under which a bundle was built, and with them what
// its runtime understands. It is stored with each version.
type Policy string

// The policies, oldest first (D8).
const (
	V2_5 Policy = "department-worker-project-v2.5" // the base
	V2_6 Policy = "department-worker-project-v2.6" // adds Worker secrets
	V2_7 Policy = "department-worker-project-v2.7" // adds secrets.purge
	V2_8 Policy = "department-worker-project-v2.8" // adds operation settings and service accounts
)

// Current is the policy of new builds.
const Current = V2_8

var policies = []Policy{V2_5, V2_6, V2_7, V2_8}

// Policies returns all policies, oldest first.
func Policies() []Policy { return slices.Clone(policies) }

// Known reports whether p is one of the policies above.
func (p Policy) Known() bool { return slices.Contains(policies, p) }

// AtLeast reports whether p is floor or newer. An unknown policy is older than
// every known one, so that a stored value that nobody can explain never
// unlocks a feature.
func (p Policy) AtLeast(floor Policy) bool {
	return slices.Index(policies, p) >= slices.Index(policies, floor) && floor.Known()
}
