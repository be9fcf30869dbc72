package downgrade

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/fault"
)

const canary = "canary-value-5b7e-of-the-downgrade"

func (s *system) facts() []models.AuditLog {
	s.T.Helper()
	var out []models.AuditLog
	for _, f := range s.Facts() {
		if f.Action == "secrets.purged_before_legacy_deploy" {
			out = append(out, f)
		}
	}
	return out
}

// S1-098, S1-115 to S1-126, S2-109 to S2-114: v2.5 over live v2.6 and v2.7 first
// removes every secret through the live release; they do not come back with a
// newer release, and what is put then is there. The value is nowhere.
func TestDowngradePurges(t *testing.T) {
	for policy, commands := range map[builder.Policy]string{
		builder.V2_6: "secrets.list secrets.delete:OTHER receipt.get receipt.ack secrets.delete:SECRET receipt.get receipt.ack secrets.list PUT",
		builder.V2_7: "secrets.purge receipt.get receipt.ack PUT",
	} {
		t.Run(string(policy), func(t *testing.T) {
			each(t, func(t *testing.T, s *system) {
				live := s.deploy(policy, "live")
				s.put(live, "SECRET", canary)
				s.put(live, "OTHER", "another value")
				if got := s.shows(live, "SECRET"); got != canary { // the control
					t.Fatalf("the project shows %v", got)
				}
				s.take()
				s.look(func(e event) {
					w := s.Worker()
					if w.Status != models.WorkerPaused || w.CurrentVersionID != live.ID || s.Count("edge_worker_versions") != 2 {
						t.Errorf("%s before the fence is visible", e)
					}
					if e.Operation == http.MethodPut && len(s.facts()) != 1 { // S1-121 stands before the upload
						t.Errorf("%d facts at the upload", len(s.facts()))
					}
				})
				old := s.deploy(builder.V2_5, "old")
				s.disarm()
				events := s.take()
				if got := spell(events); got != commands {
					t.Errorf("sent %s\nwant %s", got, commands)
				}
				for _, e := range events { // S1-117, S2-110
					if e.Operation != http.MethodPut && e.ReleaseGeneration != live.ReleaseGeneration {
						t.Errorf("%s carries another generation", e)
					}
				}
				facts := s.facts()
				if len(facts) != 1 || facts[0].ActorType != "system" || facts[0].ResourceType != "edge_worker" || facts[0].ResourceID != s.Worker().ID {
					t.Errorf("facts %+v", facts)
				}
				if got := s.shows(old, "SECRET"); got != "no secrets" {
					t.Errorf("v2.5 shows %v", got)
				}
				s.comeBack()
				s.wantNoTrace()
			})
		})
	}
}

// comeBack deploys newer releases again, one after another.
func (s *system) comeBack() {
	s.T.Helper()
	for _, policy := range []builder.Policy{builder.V2_6, builder.V2_7, builder.V2_8} {
		newer := s.deploy(policy, "newer")
		if got := s.names(newer); len(got) != 0 || s.shows(newer, "SECRET") != nil {
			s.T.Errorf("%s: %v are back", policy, got)
		}
	}
	last := s.deploy(builder.V2_8, "last")
	s.put(last, "SECRET", canary)
	if got := s.names(last); len(got) != 1 || s.shows(last, "SECRET") != canary {
		s.T.Errorf("after a put: %v", got)
	}
	if got := spell(s.take()); got != "PUT PUT PUT PUT" || len(s.facts()) != 1 {
		s.T.Errorf("newer releases sent %s, %d facts", got, len(s.facts()))
	}
}

// wantNoTrace looks for the secret's value, and for what is there.
func (s *system) wantNoTrace() {
	s.T.Helper()
	for _, text := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), fmt.Sprintf("%x", canary)} {
		if hits := s.traces(text); hits != "" {
			s.T.Errorf("%s is in %s", text, hits)
		}
	}
	hits := s.traces(s.Tenant.CompanyID)
	for _, where := range []string{"edge_workers.company_id", "edge_worker_versions.company_id", "edge_worker_outbox.company_id", "redis", "messages"} {
		if !strings.Contains(hits, where) {
			s.T.Errorf("the search does not see %s: %s", where, hits)
		}
	}
	if !strings.Contains(s.log.String(), s.Worker().ScriptName) {
		s.T.Error("nothing was logged")
	}
}

// S1-115, S1-126, S2-109, S2-111: no other pair of releases purges, and secrets
// stay where both know them; a purge does not ask whether there are any. v2.5
// over v2.8 is refused, and nothing is sent.
func TestOtherPairsDoNotPurge(t *testing.T) {
	each(t, func(t *testing.T, s *system) {
		pairs := []builder.Policy{builder.V2_5, builder.V2_5, builder.V2_6, builder.V2_7, builder.V2_6, builder.V2_7}
		var live models.Version
		for i, policy := range pairs {
			live = s.deploy(policy, fmt.Sprint("pair ", i))
			if i == 2 {
				s.put(live, "SECRET", canary)
			}
		}
		if got := spell(s.take()); got != "PUT PUT PUT PUT PUT PUT" || len(s.facts()) != 0 || s.shows(live, "SECRET") != canary {
			t.Errorf("sent %s, %d facts", got, len(s.facts()))
		}
		s.deploy(builder.V2_5, "down") // the control
		s.deploy(builder.V2_6, "up, and no secret")
		s.deploy(builder.V2_5, "down again")
		if got := spell(s.take()); got != "secrets.purge receipt.get receipt.ack PUT PUT secrets.list secrets.list PUT" || len(s.facts()) != 2 {
			t.Errorf("sent %s, %d facts", got, len(s.facts()))
		}
		top := s.deploy(builder.V2_8, "top")
		s.put(top, "SECRET", canary)
		s.take()
		published := len(s.Published.Messages())
		for _, policy := range []builder.Policy{builder.V2_5, builder.V2_6, builder.V2_7} {
			_, err := s.Desk.Deploy(t.Context(), s.Request(s.submit(policy, "blocked")))
			if f := fault.As(err); f == nil || f.Kind != fault.Conflict || f.Code != "release_downgrade_blocked" {
				t.Errorf("%s over v2.8: %v", policy, err)
			}
		}
		if got := s.take(); len(got) != 0 || len(s.Published.Messages()) != published || s.shows(top, "SECRET") != canary {
			t.Errorf("after refused downgrades: sent %s", spell(got))
		}
	})
}

// S1-120, S1-129 to S1-131, S2-153 to S2-155: an answer that was lost after its
// command was applied is settled by the receipt; what nobody confirms fails the
// deployment, the provider is untouched and the release before it serves on.
func TestLostAnswers(t *testing.T) {
	each(t, func(t *testing.T, s *system) {
		const internal, integrity = "deployment_internal_error", "artifact_integrity_failed"
		stop := func(event, func()) { panic(http.ErrAbortHandler) }
		var live models.Version
		for _, c := range []struct {
			name      string
			policy    builder.Policy
			operation string
			fault     loss
			code      string // empty: completed
			sent      string
			left      bool // the secret is still there
		}{
			{"delete lost after", builder.V2_6, "secrets.delete", lostAfter, "", "secrets.list secrets.delete:SECRET receipt.get receipt.ack secrets.list PUT", false},
			{"delete lost before", builder.V2_6, "secrets.delete", lostBefore, internal, "secrets.list secrets.delete:SECRET receipt.get", true},
			{"list lost", builder.V2_6, "secrets.list", stop, internal, "secrets.list secrets.list", true},
			{"put meanwhile", builder.V2_6, "control.receipt.get", nil, integrity, "secrets.list secrets.delete:SECRET receipt.get receipt.ack secrets.list", true},
			{"purge lost after", builder.V2_7, "secrets.purge", lostAfter, "", "secrets.purge receipt.get receipt.ack PUT", false},
			{"purge lost before", builder.V2_7, "secrets.purge", lostBefore, internal, "secrets.purge receipt.get", true},
			{"purge copied under way", builder.V2_7, "secrets.purge", copied, "", "secrets.purge receipt.get receipt.ack PUT", false},
			{"receipt lost", builder.V2_7, "control.receipt.get", stop, internal, "secrets.purge receipt.get receipt.get", false},
		} {
			if live.ID == "" || s.Worker().CurrentVersionID != live.ID || live.BuilderPolicy != string(c.policy) {
				live = s.deploy(c.policy, c.name)
			}
			s.put(live, "SECRET", canary)
			facts := len(s.facts())
			s.take()
			if c.fault == nil {
				c.fault = func(event, func()) { s.put(live, "SECRET", canary) }
			}
			s.arm(c.operation, c.fault)
			v, id := s.run(builder.V2_5, c.name)
			s.disarm()
			if got := spell(s.take()); got != c.sent {
				t.Errorf("%s: sent %s", c.name, got)
			}
			if c.code != "" {
				s.wantFailed(v, id, c.code, live)
				if left := len(s.names(live)) != 0; left != c.left || len(s.facts()) != facts {
					t.Errorf("%s: secrets left %t, %d facts", c.name, left, len(s.facts())-facts)
				}
				continue
			}
			if s.Row(id).Status != models.OutboxCompleted || len(s.facts()) != facts+1 {
				t.Errorf("%s: ticket %s %s, %d facts", c.name, s.Row(id).Status, s.Row(id).LastErrorCode, len(s.facts())-facts)
			}
		}
		s.wantNoTrace()
	})
}

// wantFailed checks that a deployment failed, safely, over the live release.
func (s *system) wantFailed(v models.Version, id, code string, live models.Version) {
	s.T.Helper()
	row, w := s.Row(id), s.Worker()
	if row.Status != models.OutboxFailed || row.LastErrorCode != code || s.Version(v.ID).State != models.VersionFailed {
		s.T.Errorf("ticket %s %s, version %s; want failed %s", row.Status, row.LastErrorCode, s.Version(v.ID).State, code)
	}
	if w.Status != models.WorkerActive || w.CurrentVersionID != live.ID {
		s.T.Errorf("Worker %s", w.Status)
	}
	if err := s.Probe(s.T.Context(), w.ScriptName, live.ReleaseGeneration); err != nil {
		s.T.Errorf("the live release does not answer: %v", err)
	}
}

// S1-127 to S1-131, S2-153, S2-155: a Worker that nobody reaches fails with the
// gateway's code; one whose release is another at the host, or whose row or
// release is another when the purge is done, with that of integrity. Nothing is
// uploaded.
func TestWorkerChangesMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *system) {
		live := s.deploy(builder.V2_7, "live")
		s.put(live, "SECRET", canary)
		other, script := s.submit(builder.V2_7, "other"), s.Worker().ScriptName
		changed := func(column, value string) func(event, func()) {
			return func(_ event, forward func()) {
				s.Exec("UPDATE edge_workers SET "+column+" = ? WHERE script_name = ?", value, script)
			}
		}
		for _, c := range []struct {
			name    string
			fault   loss
			restore string
			code    string
			sent    string
		}{
			{"unreachable", lostBefore, "", "deployment_internal_error", "secrets.purge receipt.get"},
			{"another current version", changed("current_version_id", other.ID), "UPDATE edge_workers SET current_version_id = '" + live.ID + "'",
				"artifact_integrity_failed", "secrets.purge receipt.get receipt.ack"},
			{"another script", changed("script_name", "dw-"+strings.Repeat("0", 48)), "UPDATE edge_workers SET script_name = '" + script + "'",
				"artifact_integrity_failed", "secrets.purge receipt.get receipt.ack"},
			{"no longer deployed", func(event, func()) {
				s.Exec("UPDATE edge_worker_versions SET state = 'superseded' WHERE id = ?", live.ID)
			}, "UPDATE edge_worker_versions SET state = 'deployed' WHERE id = '" + live.ID + "'", "artifact_integrity_failed", "secrets.purge receipt.get receipt.ack"},
		} {
			s.take()
			s.arm("secrets.purge", c.fault)
			v, id := s.run(builder.V2_5, c.name)
			s.disarm()
			if got := spell(s.take()); got != c.sent || len(s.facts()) != 0 {
				t.Errorf("%s: sent %s, %d facts", c.name, got, len(s.facts()))
			}
			if c.restore != "" {
				s.Exec(c.restore)
			}
			s.wantFailed(v, id, c.code, live)
		}
		s.put(live, "SECRET", canary)
		s.replace(other)
		v, id := s.run(builder.V2_5, "another generation serves")
		if got := spell(s.take()); got != "PUT secrets.purge" { // the PUT is the test's own
			t.Errorf("sent %s", got)
		}
		if got := s.names(other); len(got) != 1 || len(s.facts()) != 0 {
			t.Errorf("secrets %v, %d facts", got, len(s.facts()))
		}
		s.replace(live)
		s.wantFailed(v, id, "artifact_integrity_failed", live)
		s.take()
		s.deploy(builder.V2_5, "the control")
		if got := spell(s.take()); got != "secrets.purge receipt.get receipt.ack PUT" || len(s.facts()) != 1 {
			t.Errorf("sent %s, %d facts", got, len(s.facts()))
		}
	})
}
