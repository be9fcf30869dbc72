//go:build e2e

package fleet

import (
	"bytes"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
)

// rollout is a fleet whose programs are replaced while it works.
type rollout struct {
	*Fleet
	queue *pubSub
	now   mix
	done  []deployment
	facts []gen.AuditFact // as the api showed them last
}

// deployment is one that has completed, and what it was made from.
type deployment struct {
	ticket  gen.Ticket
	archive []byte
}

func begin(t *testing.T, first mix) *rollout {
	t.Helper()
	if shallow(t) {
		t.Skip("this clone is shallow and has no older release: git fetch --unshallow")
	}
	r := &rollout{now: first, Fleet: Start(t, Params{
		Transport: config.PubSubBroker, Deployers: 1, Model: true,
		Releases: map[string]string{"api": first.api, "deployer": first.deployer, "reconciler": first.reconciler},
	})}
	r.queue = r.broker.(*pubSub)
	r.provision("d")
	return r
}

// shallow tells whether the clone was made without its history.
func shallow(t *testing.T) bool {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "rev-parse", "--is-shallow-repository").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(said)) == "true"
}

// submits submits a version and asks for its deployment.
func (r *rollout) submits(what string) deployment {
	r.t.Helper()
	d := deployment{archive: r.archive(fmt.Sprintf("%d: %s, %s", len(r.done), what, r.now))}
	v, err := r.as("d").SubmitVersion(r.t.Context(), d.archive, nil)
	r.must(err)
	d.ticket, err = r.as("d").Deploy(r.t.Context(), v.ID, v.Revision)
	r.must(err)
	return d
}

// ends waits until a deployment is completed.
func (r *rollout) ends(what string, d deployment) {
	r.t.Helper()
	r.completes(fmt.Sprintf("%s; %s", what, r.now), d.ticket)
	var err error
	d.ticket, err = r.as("d").Deployment(r.t.Context(), d.ticket.TicketID)
	r.must(err)
	r.done = append(r.done, d)
	r.once(what)
}

// reads checks that the api shows what all the others have written: tickets,
// archives, and one fact for each deployment.
func (r *rollout) reads() {
	r.t.Helper()
	for _, d := range r.done {
		ticket, err := r.as("d").Deployment(r.t.Context(), d.ticket.TicketID)
		r.must(err)
		source, err := r.as("d").Source(r.t.Context(), d.ticket.VersionID)
		if err != nil || !reflect.DeepEqual(ticket, d.ticket) || !bytes.Equal(source, d.archive) {
			r.t.Errorf("%s: ticket %+v with %d bytes of source, %v; it was %+v with %d", r.now, ticket, len(source), err, d.ticket, len(d.archive))
		}
	}
	page, err := r.as("d").Audit(r.t.Context(), client.AuditQuery{Action: "deployment.completed", Limit: 100})
	r.must(err)
	older := page.Items[max(0, len(page.Items)-len(r.facts)):] // newest first
	if len(page.Items) != len(r.done) || !reflect.DeepEqual(older, r.facts) && len(r.facts) > 0 {
		r.t.Errorf("%s: %d deployments have the facts %+v; before there were %+v", r.now, len(r.done), page.Items, r.facts)
	}
	r.facts = page.Items
}

// end checks from outside that nothing happened twice, nothing was given up,
// nobody changed the schema, and everybody ends cleanly.
func (r *rollout) end(schema map[string]string) {
	r.t.Helper()
	uploads := 0
	for _, n := range r.host.puts() {
		uploads += n
	}
	if all := int64(len(r.done)); uploads != len(r.done) || r.count("status = 'completed'") != all || r.count("1 = 1") != all || r.broker.Dead() != 0 {
		r.t.Errorf("%d deployments: %d uploads, %d completed rows of %d, %d dead messages", all, uploads, r.count("status = 'completed'"), r.count("1 = 1"), r.broker.Dead())
	}
	if got := r.schema(); len(got) < 5 || !reflect.DeepEqual(got, schema) {
		r.t.Errorf("the schema was changed:\n%v\nwas\n%v", got, schema)
	}
	r.stops(r.deployers[0], r.reconciler, r.api)
}

// replaceDeployer stops the deployer, which has nothing to do, and starts that
// of a release.
func (r *rollout) replaceDeployer(release string) {
	r.t.Helper()
	r.stops(r.deployers[0])
	r.releases["deployer"] = release
	r.restartDeployer()
}

// stops stops programs, which is to be clean.
func (r *rollout) stops(programs ...*processtest.Process) {
	r.t.Helper()
	for _, p := range programs {
		if code := p.Stop(); code != 0 {
			r.t.Errorf("exit code %d\n%s", code, p.Log())
		}
	}
}

func (r *rollout) await(g *gate) {
	r.t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(patience):
		r.t.Fatalf("no upload arrives\n%s", r.logs())
	}
}

// schema is how each table would be created.
func (r *rollout) schema() map[string]string {
	r.t.Helper()
	var tables []string
	db := r.database.Read(r.t.Context())
	r.must(db.Raw("SHOW TABLES").Scan(&tables).Error)
	out := map[string]string{}
	for _, table := range tables {
		var name, statement string
		r.must(db.Raw("SHOW CREATE TABLE "+table).Row().Scan(&name, &statement))
		out[name] = statement
	}
	return out
}

// extend changes the schema as a later release may, and gives the tables that
// there were.
func (r *rollout) extend() []string {
	r.t.Helper()
	var tables []string
	for table := range r.schema() {
		tables = append(tables, table)
		r.exec("ALTER TABLE " + table + " ADD COLUMN added_later VARCHAR(32) NOT NULL DEFAULT 'unknown', ADD INDEX ix_added_later (added_later)")
	}
	r.exec("CREATE TABLE edge_worker_added_later (id VARCHAR(36) PRIMARY KEY)")
	return tables
}
