package deploy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

// deployPolicy brings a release of a policy live.
func deployPolicy(t *testing.T, p *plane.Plane, policy builder.Policy) models.Version {
	t.Helper()
	v, message := admitPolicy(t, p, policy)
	handle(t, p.Task(nil), message)
	return v
}

func admitPolicy(t *testing.T, p *plane.Plane, policy builder.Policy) (models.Version, transports.Message) {
	t.Helper()
	v := p.SubmitPolicy(string(policy), policy)
	p.Admit(v)
	messages := p.Published.Messages()
	return v, messages[len(messages)-1]
}

func purgeFacts(p *plane.Plane) []models.AuditLog {
	var out []models.AuditLog
	for _, f := range p.Facts() {
		if f.Action == "secrets.purged_before_legacy_deploy" {
			out = append(out, f)
		}
	}
	return out
}

// S1-098, S1-115, S1-117, S1-120 to S1-126, S2-109 to S2-113: v2.5 over live
// v2.6 or v2.7 purges once, through the live release, after the fence is
// visible and before the upload; every other pair purges nothing.
func TestLegacyPurge(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		for _, policy := range []builder.Policy{builder.V2_5, builder.V2_5, builder.V2_6, builder.V2_7} {
			deployPolicy(t, p, policy) // first, equal, newer: nothing to purge
		}
		if n := len(p.Secrets.Purges()); n != 0 || len(purgeFacts(p)) != 0 {
			t.Fatalf("%d purges where none was due", n)
		}
		live := p.Worker().CurrentVersionID
		old, message := admitPolicy(t, p, builder.V2_5)
		puts := p.Provider.Puts()
		p.Secrets.OnPurge = func(purge deploy.Purge) error {
			if purge.Generation != p.Version(live).ReleaseGeneration || purge.Policy != builder.V2_7 || purge.ScriptName != p.Worker().ScriptName {
				t.Errorf("purge %+v", purge)
			}
			if p.Version(old.ID).State != models.VersionDeploying || p.Worker().Status != models.WorkerPaused {
				t.Error("the fence is not visible at the purge")
			}
			if p.Provider.Puts() != puts {
				t.Error("uploaded before the purge")
			}
			return nil
		}
		handle(t, p.Task(nil), message)
		facts := purgeFacts(p)
		if len(p.Secrets.Purges()) != 1 || len(facts) != 1 {
			t.Fatalf("%d purges, %d facts", len(p.Secrets.Purges()), len(facts))
		}
		if facts[0].ResourceType != "edge_worker" || facts[0].ActorType != "system" || facts[0].ResourceID != p.Worker().ID {
			t.Errorf("fact %+v", facts[0])
		}
		if p.Worker().CurrentVersionID != old.ID {
			t.Error("the older release is not live")
		}
		p.Secrets.OnPurge = nil
		deployPolicy(t, p, builder.V2_6) // over v2.5: nothing to purge
		deployPolicy(t, p, builder.V2_5) // over v2.6
		if n := len(p.Secrets.Purges()); n != 2 || p.Secrets.Purges()[1].Policy != builder.V2_6 {
			t.Errorf("%d purges", n)
		}
	})
}

// S1-127 to S1-131, S2-153 to S2-155: a purge that is not confirmed, or during
// which the Worker or its live release changed, fails the deployment with
// artifact_integrity_failed, a gateway error with deployment_internal_error;
// nothing is uploaded and the Worker is active again.
func TestLegacyPurgeFailures(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		live := deployPolicy(t, p, builder.V2_7)
		cases := map[string]struct {
			purge func(deploy.Purge) error
			code  string
		}{
			"not confirmed": {func(deploy.Purge) error { return deploy.ErrPurgeUnconfirmed }, "artifact_integrity_failed"},
			"gateway":       {func(deploy.Purge) error { return errors.New("connection refused") }, "deployment_internal_error"},
			"release changed": {func(deploy.Purge) error {
				p.Exec("UPDATE edge_workers SET current_version_id = 'another' WHERE id = ?", p.Worker().ID)
				return nil
			}, "artifact_integrity_failed"},
		}
		for name, c := range cases {
			v, message := admitPolicy(t, p, builder.V2_5)
			p.Secrets.OnPurge = c.purge
			puts := p.Provider.Puts()
			handle(t, p.Task(nil), message)
			p.Exec("UPDATE edge_workers SET current_version_id = ? WHERE id = ?", live.ID, p.Worker().ID)
			got := p.Version(v.ID)
			if got.State != models.VersionFailed || got.ErrorCode != c.code || p.Worker().Status != models.WorkerActive {
				t.Errorf("%s: version %s %s, Worker %s", name, got.State, got.ErrorCode, p.Worker().Status)
			}
			if p.Provider.Puts() != puts || len(purgeFacts(p)) != 0 {
				t.Errorf("%s: uploaded, or a fact was written", name)
			}
		}
		p.Secrets.OnPurge = nil // the control
		_, message := admitPolicy(t, p, builder.V2_5)
		handle(t, p.Task(nil), message)
		if len(purgeFacts(p)) != 1 {
			t.Error("no fact of the good purge")
		}
	})
}

// S1-081, S2-214: the GET-only mode never purges: its release may be live.
func TestReconcileNeverPurges(t *testing.T) {
	each(t, func(t *testing.T, p *plane.Plane) {
		deployPolicy(t, p, builder.V2_7)
		v, message := admitPolicy(t, p, builder.V2_5)
		release := provider.Release{ScriptName: p.Worker().ScriptName, CompatibilityDate: v.CompatibilityDate, BundleDigest: v.BundleDigest}
		if p.Provider.Upload(context.Background(), release) != nil {
			t.Fatal("apply")
		}
		p.Exec("UPDATE edge_worker_versions SET state = 'deploying' WHERE id = ?", v.ID)
		handle(t, p.Task(nil), message)
		if len(p.Secrets.Purges()) != 0 || p.Worker().CurrentVersionID != v.ID {
			t.Errorf("%d purges", len(p.Secrets.Purges()))
		}
	})
}
