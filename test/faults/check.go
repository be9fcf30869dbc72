package faults

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/transports"
)

// evidence is all that can be known of a story from outside its processes.
type evidence struct {
	Versions []models.Version
	Workers  []models.Worker
	Rows     []models.Outbox
	Facts    []models.AuditLog
	History  []Change
	Requests []Request
	Objects  []string // keys
}

// checkEnd checks the invariants that are about the whole story.
func (s *story) checkEnd(c Cell) {
	s.t.Helper()
	e := s.gather()
	s.violations = append(s.violations, e.violations()...)
	s.violations = append(s.violations, e.unexpected(c)...)
}

func (s *story) gather() evidence {
	s.t.Helper()
	e := evidence{History: s.history(), Requests: s.outside.log()}
	own := s.config.Tenant.Own
	s.ok(own(s.ground.DB.Read(s.ctx)).Find(&e.Versions).Error)
	s.ok(own(s.ground.DB.Read(s.ctx)).Find(&e.Workers).Error)
	s.ok(own(s.ground.DB.Read(s.ctx)).Find(&e.Rows).Error)
	s.ok(own(s.ground.DB.Read(s.ctx)).Find(&e.Facts).Error)
	store := os.DirFS(s.config.Store)
	s.ok(fs.WalkDir(store, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "content" && strings.HasPrefix(name, "edge-workers/") {
			e.Objects = append(e.Objects, path.Dir(name))
		}
		return err
	}))
	return e
}

func (e evidence) deploys() []models.Outbox {
	rows := []models.Outbox{}
	for _, row := range e.Rows {
		if row.Operation == models.OperationDeploy {
			rows = append(rows, row)
		}
	}
	return rows
}

func (e evidence) versionOf(row models.Outbox) models.Version {
	for _, v := range e.Versions {
		if v.ID == row.VersionID {
			return v
		}
	}
	return models.Version{}
}

// violations lists every breach of an invariant.
func (e evidence) violations() []string {
	all := []string{}
	for _, check := range []func() []string{e.ended, e.owners, e.terminal, e.mutations, e.objects, e.attempts, e.truthful, e.facts} {
		all = append(all, check()...)
	}
	return all
}

// ended is I1: every committed row is terminal or uncertain.
func (e evidence) ended() []string {
	rows := e.deploys()
	if len(rows) != 1 || len(e.Workers) != 1 {
		return []string{fmt.Sprintf("I1: the story has %d deployments and %d Workers", len(rows), len(e.Workers))}
	}
	if !rows[0].Status.Released() && rows[0].Status != models.OutboxUncertain {
		return []string{fmt.Sprintf("I1: the deployment is %s", rows[0].Status)}
	}
	return nil
}

// owners is I2: each token takes the row once, and whoever ends a lease ends
// the one that was taken last.
func (e evidence) owners() []string {
	found := []string{}
	seen := map[string]bool{}
	for _, c := range e.History {
		if c.Kind != string(models.OperationDeploy) || c.Owner == c.OwnerWas {
			continue
		}
		if c.Owner != "" && seen[c.Owner] {
			found = append(found, fmt.Sprintf("I2: the token %s took the row twice", c.Owner))
		}
		seen[c.Owner] = true
	}
	return found
}

// terminal is I3: a deployment never leaves terminal, and no step is taken
// that the ladder does not have.
func (e evidence) terminal() []string {
	found := []string{}
	for _, c := range e.History {
		if c.Was == "" || c.Was == c.Became {
			continue
		}
		switch c.Kind {
		case string(models.OperationDeploy), string(models.OperationArtifactCleanup):
			ended := c.Kind == string(models.OperationDeploy) && models.OutboxStatus(c.Was).Released()
			skipped := models.OutboxStatus(c.Was) == models.OutboxPending && models.OutboxStatus(c.Became) == models.OutboxCompleted // a control row's way
			if ended || skipped || !models.Permits(models.OutboxEdges, models.OutboxStatus(c.Was), models.OutboxStatus(c.Became)) {
				found = append(found, fmt.Sprintf("I3: a row went from %s to %s", c.Was, c.Became))
			}
		case "version":
			if !models.Permits(models.VersionEdges, models.VersionState(c.Was), models.VersionState(c.Became)) {
				found = append(found, fmt.Sprintf("I3: a version went from %s to %s", c.Was, c.Became))
			}
		}
	}
	return found
}

// puts are the uploads that reached the provider.
func puts(requests []Request) []Request {
	found := []Request{}
	for _, r := range requests {
		if r.Method == http.MethodPut && r.Applied {
			found = append(found, r)
		}
	}
	return found
}

// mutations is I4: no deployment changes the provider twice.
func (e evidence) mutations() []string {
	if n := len(puts(e.Requests)); n > len(e.deploys()) {
		return []string{fmt.Sprintf("I4: %d uploads were applied for %d deployments", n, len(e.deploys()))}
	}
	return nil
}

// objects is I7: when every intent has come to its end, every object has a
// version and every version its objects.
func (e evidence) objects() []string {
	found := []string{}
	owned, stored := map[string]bool{}, map[string]bool{}
	for _, key := range e.Objects {
		stored[key] = true
	}
	for _, v := range e.Versions {
		for _, key := range []string{v.ProjectObjectKey, v.BundleObjectKey} {
			owned[key] = true
			if !stored[key] {
				found = append(found, fmt.Sprintf("I7: revision %d lacks its object %s", v.Revision, key))
			}
		}
	}
	for _, row := range e.Rows {
		if row.Operation == models.OperationArtifactCleanup && row.Status != models.OutboxCompleted && row.Status != models.OutboxCancelled {
			found = append(found, fmt.Sprintf("I7: an intent ended as %s", row.Status))
		}
	}
	for _, key := range e.Objects {
		if !owned[key] {
			found = append(found, "I7: nobody owns the object "+key)
		}
	}
	return found
}

// attempts is I8: a lease that finds the version deploy_pending counts one
// attempt, any other none.
func (e evidence) attempts() []string {
	found := []string{}
	for _, c := range e.History {
		if c.Kind != string(models.OperationDeploy) || c.Owner == "" || c.Owner == c.OwnerWas {
			continue
		}
		want := c.AttemptsWas
		if c.VersionState == string(models.VersionDeployPending) {
			want++
		}
		if c.Attempts != want {
			found = append(found, fmt.Sprintf("I8: a lease over a %s version took the attempts from %d to %d", c.VersionState, c.AttemptsWas, c.Attempts))
		}
	}
	return found
}

// truthful: completed only after an answered probe of the own generation,
// never failed while the provider has the release, and row, version and Worker
// say the same.
func (e evidence) truthful() []string {
	found := []string{}
	for _, row := range e.deploys() {
		v, applied := e.versionOf(row), len(puts(e.Requests)) > 0
		probed := false
		for _, r := range e.Requests {
			probed = probed || r.Method == "PROBE" && r.Applied && r.Path == control.ProbePath+row.ScriptName+"/"+v.ReleaseGeneration
		}
		state := map[models.OutboxStatus]models.VersionState{
			models.OutboxCompleted: models.VersionDeployed, models.OutboxFailed: models.VersionFailed, models.OutboxUncertain: models.VersionUncertain,
		}[row.Status]
		switch {
		case row.Status == models.OutboxCompleted && !probed:
			found = append(found, "truth: completed without an answered probe of its generation")
		case row.Status == models.OutboxFailed && applied:
			found = append(found, "truth: failed while the provider has the release")
		case row.Status == models.OutboxUncertain && applied:
			found = append(found, "truth: still uncertain after a repair although the provider has the release")
		case v.State != state:
			found = append(found, fmt.Sprintf("truth: the row is %s and its version %s", row.Status, v.State))
		}
		worker := map[models.OutboxStatus]models.WorkerStatus{
			models.OutboxCompleted: models.WorkerActive, models.OutboxFailed: models.WorkerDraft, models.OutboxUncertain: models.WorkerPaused,
		}[row.Status]
		if len(e.Workers) != 1 || e.Workers[0].Status != worker || (e.Workers[0].CurrentVersionID == v.ID) != (row.Status == models.OutboxCompleted) {
			found = append(found, fmt.Sprintf("truth: the Worker does not fit a %s deployment", row.Status))
		}
	}
	return found
}

// facts: each version, admission and settlement has exactly one fact.
func (e evidence) facts() []string {
	happened, recorded := map[string]int{}, map[string]int{}
	for _, c := range e.History {
		switch {
		case c.Kind == "version" && c.Was == "":
			happened["version.submitted"]++
		case c.Kind == string(models.OperationDeploy) && c.Was == "":
			happened["deployment.admitted"]++
		case c.Kind == string(models.OperationDeploy) && c.Was == string(models.OutboxUncertain) && c.Became == string(models.OutboxPending):
			happened["deployment.repair_requested"]++
		case c.Kind == string(models.OperationDeploy) && c.Was != c.Became && (models.OutboxStatus(c.Became).Released() || c.Became == string(models.OutboxUncertain)):
			happened["deployment."+c.Became]++
		}
	}
	for _, f := range e.Facts {
		if strings.HasPrefix(f.Action, "version.") || strings.HasPrefix(f.Action, "deployment.") {
			recorded[f.Action]++
		}
	}
	found := []string{}
	for action, n := range happened {
		if recorded[action] != n {
			found = append(found, fmt.Sprintf("audit: %d facts %s for %d changes", recorded[action], action, n))
		}
	}
	for action, n := range recorded {
		if happened[action] == 0 {
			found = append(found, fmt.Sprintf("audit: %d facts %s without a change", n, action))
		}
	}
	return found
}

// unexpected: whatever is no error completes, except that what was cut off
// between the fence and the upload stays uncertain, because nobody may upload
// again (S2-214). An error before the fence may fail the deployment.
func (e evidence) unexpected(c Cell) []string {
	found := []string{}
	for _, row := range e.deploys() {
		fine := row.Status == models.OutboxCompleted ||
			row.Status == models.OutboxUncertain && len(puts(e.Requests)) == 0 ||
			row.Status == models.OutboxFailed && c.Mode == Error
		if !fine {
			found = append(found, fmt.Sprintf("I1: %s ended as %s", c.Name(), row.Status))
		}
	}
	return found
}

func sameTime(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// messageOf is the message of a deployment's row.
func messageOf(t testing.TB, row models.Outbox) transports.Message {
	t.Helper()
	payload, err := outbox.DecodeDeploy(row)
	if err != nil {
		t.Fatal(err)
	}
	return transports.Deploy(row.ID, row.CompanyID, row.DepartmentID, payload.MessageID)
}

// message is the message that a run's command line names.
func message(s *story, args []string) transports.Message {
	return transports.Deploy(args[1], s.config.Tenant.CompanyID, s.config.Tenant.DepartmentID, args[2])
}
