package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// notebook is a Worker that keeps what it is told.
const notebook = `import { defineWorker } from "@teamsync/edge-worker";
const table = "CREATE TABLE IF NOT EXISTS notes (k TEXT PRIMARY KEY)";
export default defineWorker({
  "put": (input, ctx) => {
    ctx.storage.sql.exec(table);
    ctx.storage.sql.exec("INSERT OR IGNORE INTO notes (k) VALUES (?)", input.k);
    return { release: %d };
  },
  "all": (_input, ctx) => {
    ctx.storage.sql.exec(table);
    return { release: %[1]d, notes: ctx.storage.sql.exec("SELECT k FROM notes").toArray().map((row) => row.k) };
  },
});
`

const notebookManifest = `{"schema_version":1,"name":"notebook","language":"javascript","entry":"src/index.js","compatibility_date":"2026-01-01",
  "operations":[{"id":"put","method":"POST","path":"/put"},{"id":"all","method":"POST","path":"/all"}]}`

func notebookRelease(t testing.TB, n int) []byte {
	t.Helper()
	return packed(t, entry{name: "worker.json", body: notebookManifest}, entry{name: "src/index.js", body: fmt.Sprintf(notebook, n)})
}

// department is one tenant and all that the system promised it.
type department struct {
	id, token string
	versions  []gen.Version // answered with 201
	tickets   []string      // answered with 202, in order
	notes     []string      // answered with 200
	tried     int
}

// newDepartment provisions a department and signs its manager's token with the
// folder's own key.
func (d *dev) newDepartment(n int) *department {
	d.t.Helper()
	id := fmt.Sprintf("department-%d", n)
	got := d.json("PUT", "/platform/departments/"+id, d.PlatformAdminToken, fmt.Sprintf(`{"company_id":%q,"name":"D"}`, d.CompanyID))
	if got.code != http.StatusOK {
		d.t.Fatalf("provision: %d %s %v", got.code, got.body, got.err)
	}
	key, err := auth.LoadPrivateKey(filepath.Join(d.data, "keys", "auth.pem"))
	must(d.t, err)
	issuer, err := auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	must(d.t, err)
	token, err := issuer.Issue(auth.Principal{
		Subject: "user:manager", CompanyID: d.CompanyID, DepartmentID: id, Roles: []auth.Role{auth.DepartmentManager},
	}, 24*time.Hour)
	must(d.t, err)
	return &department{id: id, token: token}
}

// use submits, deploys and writes until the process is gone, and notes every
// promise that it was given. A deployment that an earlier life left open is
// waited for: it blocks the next one.
func (p *department) use(d *dev, release *int) {
	d.t.Helper()
	for {
		*release++
		var v gen.Version
		got := d.submit(p.token, notebookRelease(d.t, *release))
		if got.err != nil {
			return
		}
		got.into(d.t, http.StatusCreated, &v)
		p.versions = append(p.versions, v)
		if !p.write(d) {
			return
		}
		got = d.deploy(p.token, v)
		switch got.code {
		case 0:
			return
		case http.StatusConflict: // only what an earlier life left open can be in the way
			if len(p.tickets) == 0 {
				d.t.Errorf("a first deployment is refused: %s", got.body)
			}
		default:
			var t gen.Ticket
			got.into(d.t, http.StatusAccepted, &t)
			p.tickets = append(p.tickets, t.TicketID)
		}
		for open := true; open; {
			if !p.write(d) {
				return
			}
			var alive bool
			open, alive = p.isOpen(d)
			if !alive {
				return
			}
		}
	}
}

// write sends one note; false means that the process is gone. A Worker that is
// not there yet, or is just being changed, refuses.
func (p *department) write(d *dev) bool {
	d.t.Helper()
	p.tried++
	k := fmt.Sprintf("%s-%d", p.id, p.tried)
	got := d.json("POST", "/worker/invoke/put", p.token, fmt.Sprintf(`{"k":%q}`, k))
	switch got.code {
	case 0:
		return false
	case http.StatusOK:
		p.notes = append(p.notes, k)
	case http.StatusNotFound, http.StatusServiceUnavailable, http.StatusBadGateway:
	default:
		d.t.Errorf("a write got %d %s", got.code, got.body)
	}
	return true
}

// isOpen reports whether the last ticket still moves by itself.
func (p *department) isOpen(d *dev) (bool, bool) {
	d.t.Helper()
	if len(p.tickets) == 0 {
		return false, true
	}
	got := d.call("GET", "/worker/deployments/"+p.tickets[len(p.tickets)-1], p.token, "", "")
	if got.err != nil {
		return false, false
	}
	var t gen.Ticket
	got.into(d.t, http.StatusOK, &t)
	if t.Status == gen.TicketStatusUncertain {
		d.t.Fatalf("ticket %s is uncertain: %s", t.TicketID, orNone(t.ErrorCode))
	}
	return !ended(t.Status), true
}

func ended(s gen.TicketStatus) bool {
	return s == gen.TicketStatusCompleted || s == gen.TicketStatusFailed || s == gen.TicketStatusCancelled
}

// check holds the department's state against every promise.
func (p *department) check(d *dev) {
	d.t.Helper()
	last := p.checkTickets(d)
	have := p.checkVersions(d)
	var worker gen.Worker
	got := d.call("GET", "/worker", p.token, "", "")
	if got.code == http.StatusNotFound && len(p.versions) == 0 {
		return
	}
	got.into(d.t, http.StatusOK, &worker)
	if worker.CurrentVersionID != nil {
		if worker.Status != gen.Active || have[*worker.CurrentVersionID].State != gen.VersionStateDeployed {
			d.t.Errorf("%s: worker %+v, current version %s", p.id, worker, have[*worker.CurrentVersionID].State)
		}
		p.checkNotes(d)
	} else if len(p.notes) > 0 || last == gen.TicketStatusCompleted {
		d.t.Errorf("%s: %d acknowledged writes, last ticket %s, and no current version", p.id, len(p.notes), last)
	}
	v, ticket := d.release(p.token, notebookRelease(d.t, 100_000))
	if ticket.Status != gen.TicketStatusCompleted {
		d.t.Errorf("%s: a new deployment is %s", p.id, ticket.Status)
	}
	if v.Revision <= worker.LatestRevision {
		d.t.Errorf("%s: revision %d after %d", p.id, v.Revision, worker.LatestRevision)
	}
	p.checkNotes(d)
}

// checkTickets waits for every admitted ticket and gives the last one's status.
func (p *department) checkTickets(d *dev) gen.TicketStatus {
	d.t.Helper()
	var last gen.TicketStatus
	for i, id := range p.tickets {
		t, alive := d.follow(p.token, id)
		if !alive {
			d.t.Fatal("the API is gone")
		}
		last = t.Status
		if t.Status != gen.TicketStatusCompleted && !d.overtaken(p, t) {
			d.t.Errorf("%s: ticket %d of %d is %s %s", p.id, i+1, len(p.tickets), t.Status, orNone(t.ErrorCode))
		}
	}
	return last
}

// overtaken: a deployment that was killed before its upload as often as it may
// be tried ends failed, which is its end too.
func (d *dev) overtaken(p *department, t gen.Ticket) bool {
	d.t.Helper()
	var v gen.Version
	d.call("GET", "/worker/versions/"+t.VersionID, p.token, "", "").into(d.t, http.StatusOK, &v)
	return t.Status == gen.TicketStatusFailed && orNone(t.ErrorCode) == "deployment_internal_error" && v.State == gen.VersionStateFailed
}

func orNone(code *string) string {
	if code == nil {
		return ""
	}
	return *code
}

// checkVersions reads the whole list: every accepted version is in it, with its
// bytes, and no two have the same revision.
func (p *department) checkVersions(d *dev) map[string]gen.Version {
	d.t.Helper()
	have := map[string]gen.Version{}
	var revisions []int64
	for cursor := "/worker/versions?limit=100"; cursor != ""; {
		var page gen.VersionPage
		d.call("GET", cursor, p.token, "", "").into(d.t, http.StatusOK, &page)
		for _, v := range page.Items {
			have[v.ID] = v
			revisions = append(revisions, v.Revision)
		}
		cursor = ""
		if page.NextCursor != nil {
			cursor = "/worker/versions?limit=100&cursor=" + *page.NextCursor
		}
	}
	slices.Sort(revisions)
	for i, r := range revisions {
		if r != int64(i+1) {
			d.t.Errorf("%s: revisions %v", p.id, revisions)
			break
		}
	}
	for _, v := range p.versions {
		if have[v.ID].ProjectDigest != v.ProjectDigest {
			d.t.Errorf("%s: the accepted revision %d is gone", p.id, v.Revision)
		}
		if got := d.call("GET", "/worker/versions/"+v.ID+"/source", p.token, "", ""); got.code != http.StatusOK {
			d.t.Errorf("%s: the archive of revision %d: %d %s", p.id, v.Revision, got.code, got.body)
		}
	}
	return have
}

// checkNotes: every acknowledged write is there.
func (p *department) checkNotes(d *dev) {
	d.t.Helper()
	var all struct{ Notes []string }
	d.json("POST", "/worker/invoke/all", p.token, "{}").into(d.t, http.StatusOK, &all)
	for _, k := range p.notes {
		if !slices.Contains(all.Notes, k) {
			d.t.Errorf("%s: the acknowledged write %s is lost", p.id, k)
		}
	}
}
