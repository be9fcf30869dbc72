package faults

import (
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
)

// sound is the evidence of a story that went well.
func sound() evidence {
	payload := `{"items":[]}`
	return evidence{
		Versions: []models.Version{{ID: "v", State: models.VersionDeployed, Revision: 1, ProjectObjectKey: "p", BundleObjectKey: "b", ReleaseGeneration: "g"}},
		Workers:  []models.Worker{{ID: "w", Status: models.WorkerActive, CurrentVersionID: "v"}},
		Rows: []models.Outbox{
			{ID: "c", Operation: models.OperationArtifactCleanup, Status: models.OutboxCancelled, Payload: &payload},
			{ID: "d", Operation: models.OperationDeploy, Status: models.OutboxCompleted, VersionID: "v", ScriptName: "s"},
		},
		Facts: []models.AuditLog{{Action: "version.submitted"}, {Action: "deployment.admitted"}, {Action: "deployment.completed"}},
		History: []Change{
			{Kind: "version", Became: "ready"},
			{Kind: "deploy", Became: "pending"},
			{Kind: "deploy", Was: "pending", Became: "leased", Owner: "one", Attempts: 1, VersionState: "deploy_pending"},
			{Kind: "deploy", Was: "leased", Became: "leased", OwnerWas: "one", Owner: "two", AttemptsWas: 1, Attempts: 1, VersionState: "deploying"},
			{Kind: "deploy", Was: "leased", Became: "completed", OwnerWas: "two", AttemptsWas: 1, Attempts: 1, VersionState: "deployed"},
		},
		Requests: []Request{{Method: "PUT", Applied: true}, {Method: "GET", Applied: true}, {Method: "PROBE", Path: "/probe/s/g", Applied: true}},
		Objects:  []string{"p", "b"},
	}
}

// TestSoundStoryHasNoViolation is the positive control of TestTampered.
func TestSoundStoryHasNoViolation(t *testing.T) {
	t.Parallel()
	if found := sound().violations(); len(found) > 0 {
		t.Fatal(found)
	}
	if found := sound().unexpected(Cell{Mode: Kill}); len(found) > 0 {
		t.Fatal(found)
	}
}

// TestTampered changes one thing of a sound story at a time.
func TestTampered(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, want string
		tamper     func(*evidence)
	}{
		{"row without an end", "I1: the deployment is leased", func(e *evidence) { e.Rows[1].Status = models.OutboxLeased }},
		{"no row", "I1: the story has 0 deployments", func(e *evidence) { e.Rows = e.Rows[:1] }},
		{"token twice", "I2: the token one took the row twice", func(e *evidence) { e.History[3].Owner, e.History[3].OwnerWas = "one", "two" }},
		{"terminal left", "I3: a row went from completed to leased", func(e *evidence) {
			e.History = append(e.History, Change{Kind: "deploy", Was: "completed", Became: "leased"})
		}},
		{"step that is none", "I3: a version went from ready to deployed", func(e *evidence) {
			e.History = append(e.History, Change{Kind: "version", Was: "ready", Became: "deployed"})
		}},
		{"second upload", "I4: 2 uploads", func(e *evidence) { e.Requests = append(e.Requests, e.Requests[0]) }},
		{"object of nobody", "I7: nobody owns the object x", func(e *evidence) { e.Objects = append(e.Objects, "x") }},
		{"object missing", "I7: revision 1 lacks its object b", func(e *evidence) { e.Objects = e.Objects[:1] }},
		{"attempt not counted", "I8: a lease over a deploy_pending version", func(e *evidence) { e.History[2].Attempts = 0 }},
		{"attempt counted for a read", "I8: a lease over a deploying version", func(e *evidence) { e.History[3].Attempts = 2 }},
		{"no probe", "truth: completed without", func(e *evidence) { e.Requests = e.Requests[:2] }},
		{"another generation's probe", "truth: completed without", func(e *evidence) { e.Requests[2].Path = "/probe/s/h" }},
		{"unanswered probe", "truth: completed without", func(e *evidence) { e.Requests[2].Applied = false }},
		{"failed but applied", "truth: failed while", func(e *evidence) { e.Rows[1].Status = models.OutboxFailed }},
		{"uncertain but applied", "truth: still uncertain", func(e *evidence) { e.Rows[1].Status = models.OutboxUncertain }},
		{"version says otherwise", "truth: the row is completed and its version deploying", func(e *evidence) { e.Versions[0].State = models.VersionDeploying }},
		{"Worker says otherwise", "truth: the Worker does not fit", func(e *evidence) { e.Workers[0].Status = models.WorkerPaused }},
		{"fact twice", "audit: 2 facts deployment.completed for 1", func(e *evidence) { e.Facts = append(e.Facts, e.Facts[2]) }},
		{"fact missing", "audit: 0 facts deployment.completed for 1", func(e *evidence) { e.Facts = e.Facts[:2] }},
		{"fact of nothing", "audit: 1 facts deployment.failed without", func(e *evidence) {
			e.Facts = append(e.Facts, models.AuditLog{Action: "deployment.failed"})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			c.tamper(&e)
			for _, violation := range e.violations() {
				if strings.HasPrefix(violation, c.want) {
					return
				}
			}
			t.Errorf("want %q, got %q", c.want, e.violations())
		})
	}
}

// TestOpenIntentIsNoEnd: the story is over when every intent is settled.
func TestOpenIntentIsNoEnd(t *testing.T) {
	t.Parallel()
	for status, fine := range map[models.OutboxStatus]bool{
		models.OutboxCancelled: true, models.OutboxCompleted: true, models.OutboxPending: false, models.OutboxLeased: false, models.OutboxFailed: false,
	} {
		e := sound()
		e.Rows[0].Status = status
		if found := e.violations(); (len(found) == 0) != fine {
			t.Errorf("%s: %v", status, found)
		}
	}
}

// TestUnexpectedEnds: only an error may fail a deployment, and only one that
// was never uploaded may stay uncertain.
func TestUnexpectedEnds(t *testing.T) {
	t.Parallel()
	e := sound()
	e.Rows[1].Status = models.OutboxFailed
	if len(e.unexpected(Cell{Mode: Kill})) != 1 || len(e.unexpected(Cell{Mode: Error})) != 0 {
		t.Error("failed is for errors only")
	}
	e.Rows[1].Status = models.OutboxUncertain
	if len(e.unexpected(Cell{Mode: Kill})) != 1 {
		t.Error("an applied release may not stay uncertain")
	}
	e.Requests = nil
	if len(e.unexpected(Cell{Mode: Kill})) != 0 {
		t.Error("what was never uploaded may stay uncertain")
	}
}
