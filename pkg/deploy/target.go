package deploy

import (
	"github.com/teamsync/edge-workers/pkg/outbox"
)

// The codes of a deployment whose target is no longer the one that it was
// admitted for; cloud only (S2-218 to S2-220).
const (
	codeLegacyTarget   = "legacy_serving_target_unavailable"
	codeTarget         = "deployment_target_unavailable"
	codeReleaseChanged = "deployment_target_release_changed"
)

// checkTarget compares what the row recorded at admission with the Worker as
// it is now and gives the code of a difference, or "". A row without a record,
// from before there was one, must be of the Worker's own namespace; it is not
// looked at in the GET-only mode, where the seed knows only the other two
// codes (S2-271, S2-272).
func (r *run) checkTarget() string {
	if !r.p.Outbox.Scope().Cloud() {
		return ""
	}
	now := outbox.Location{Kind: r.worker.ServingKind, Namespace: r.worker.ServingNamespace}
	payload, err := outbox.DecodeDeploy(r.lease.Row)
	switch {
	case err != nil:
		return codeTarget
	case payload.Serving == nil && (r.lease.ReadOnly || r.lease.Row.DispatchNamespace == now.Namespace):
		return ""
	case payload.Serving == nil:
		return codeLegacyTarget
	case payload.Serving.Serving != now:
		return codeTarget
	case payload.Serving.LiveVersionID != r.worker.CurrentVersionID:
		return codeReleaseChanged
	}
	return ""
}
