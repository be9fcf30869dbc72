package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-043, S1-044: a delivery that reaches another environment ends at once and
// well: no call to its provider, its store or its releases, and the row is as
// it was. Its own environment then runs it.
func TestMisdirectedDelivery(t *testing.T) {
	t.Parallel()
	db := databasetest.MySQL(t)
	ours := plane.New(t, db)
	theirs := plane.NewIn(t, db, outbox.CloudScope("another-environment"))
	_, ticketID, m := admitted(t, ours, "one")
	before := ours.Row(ticketID)
	counting := artifacttest.Count(ours.Backend)
	handle(t, theirs.Task(func(p *deploy.Params) { p.Store = artifact.NewFenced(counting) }), m)
	after := ours.Row(ticketID)
	if len(theirs.Provider.Calls()) != 0 || len(counting.Calls()) != 0 || after.Status != models.OutboxPending || after.Attempts != 0 ||
		after.LeaseOwner != before.LeaseOwner || !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("calls %v and %v, row %+v", theirs.Provider.Calls(), counting.Calls(), after)
	}
	handle(t, ours.Task(nil), m)
	if ours.Row(ticketID).Status != models.OutboxCompleted || len(ours.Provider.Calls()) == 0 {
		t.Errorf("at home: %+v", ours.Row(ticketID))
	}
}

// S2-146: a deployment reads what was stored and asks npm for nothing.
func TestDeploymentReadsNoPackages(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	x := npmtest.Make("x", "1.0.0", map[string]string{"index.js": "export default 'is-x'"})
	registry.Add(x)
	p := plane.New(t, databasetest.MySQL(t))
	p.BuildFrom(registry.URL)
	files := plane.Project("one")
	maps.Copy(files, npmtest.Project(x))
	files["src/index.js"] = "import x from 'x';\nexport default { 'echo.say': () => ({ said: x }) };\n"
	v := p.SubmitArchive(projecttest.Archive(t, files))
	asked := registry.Requests()
	if asked != 1 {
		t.Fatalf("the build asked the registry %d times", asked)
	}
	ticketID := p.Admit(v).TicketID
	err := p.Task(nil).Handle(context.Background(), p.Published.Messages()[0])
	if err != nil || p.Row(ticketID).Status != models.OutboxCompleted || registry.Requests() != asked {
		t.Errorf("%v, %s, the registry was asked %d times", err, p.Row(ticketID).Status, registry.Requests()-asked)
	}
}

// S1-069: on-prem, a provider that cannot be built puts the delivery off before
// anything is leased or settled; the same delivery runs when it can.
func TestUnavailableProvider(t *testing.T) {
	t.Parallel()
	p := plane.NewIn(t, databasetest.MySQL(t), outbox.OnPremScope("host-1"))
	v, ticketID, m := admitted(t, p, "one")
	before := p.Row(ticketID)
	p.Invalid = fmt.Errorf("%w: no address", provider.ErrUnavailable)
	err := p.Task(nil).Handle(t.Context(), m)
	if !errors.Is(err, deploy.ErrRetry) || !strings.Contains(err.Error(), "Edge Worker provider is unavailable") {
		t.Errorf("%v", err)
	}
	after := p.Row(ticketID)
	if after.Status != models.OutboxPending || after.Attempts != 0 || after.LeaseOwner != "" || !after.UpdatedAt.Equal(before.UpdatedAt) ||
		p.Version(v.ID).State != models.VersionDeployPending || len(p.Provider.Calls()) != 0 {
		t.Errorf("row %+v, version %s", after, p.Version(v.ID).State)
	}
	p.Invalid = nil
	handle(t, p.Task(nil), m)
	if p.Row(ticketID).Status != models.OutboxCompleted {
		t.Errorf("with a provider: %+v", p.Row(ticketID))
	}
}
