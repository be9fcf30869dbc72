package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/maintenance/maintenancetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/test/plane"
)

// gated is an API in front of an edge host's gates.
func gated(t *testing.T, db *database.DB) (*api, *maintenancetest.Host) {
	t.Helper()
	p, host := plane.NewIn(t, db, outbox.OnPremScope("host-1")), maintenancetest.Start(t)
	client, err := onprem.New(onprem.Params{Origin: host.URL, Token: maintenancetest.Token})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := maintenance.New(maintenance.Params{DB: db, Scope: p.Outbox.Scope().Default().Namespace, Host: client, Reader: p.Provider, Log: p.Log})
	if err != nil {
		t.Fatal(err)
	}
	return newAPIOver(t, p, func(in *httpapi.Params) { in.Maintenance = keeper }), host
}

const gateBody = `{"fence_ending":%v,"fence_id":%s,"gate":"%s","restore_pending":%v,"resync_active":%v,"resync_epoch":%d,"scope":"onprem:4a1796ac4935"}`

func quoted(id string) string { return `"` + id + `"` }

// S3-49, S2-043, S2-044, S2-072, S2-075, S1-313: each gate by its routes, and
// what a deployment is answered behind it; repeats answer the state.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a, host := gated(t, db)
		deploy := func(text string) answer {
			v := a.Submit(text)
			return a.do("POST", "/worker/deployments", request{
				token: a.manager(), media: "application/json", body: strings.NewReader(fmt.Sprintf(`{"version_id":%q,"base_revision":%d}`, v.ID, v.Revision)),
			})
		}
		a.admin("GET", "/platform/maintenance", "").is(200, fmt.Sprintf(gateBody, false, "null", "open", false, false, 0))
		for range 2 {
			a.admin("PUT", "/platform/maintenance/resync", "").is(200, fmt.Sprintf(gateBody, false, "null", "maintenance", false, true, 1))
		}
		deploy("a").is(409, `{"detail":{"code":"edge_workers_maintenance","message":"Edge Workers are under maintenance; try again when the platform's operator has ended it"}}`)
		a.admin("PUT", "/platform/maintenance/fence", "").is(409, `{"detail":{"code":"maintenance_resync_active","message":"A resync is under way; end it with DELETE /platform/maintenance/resync before you begin a backup fence"}}`)
		for range 2 {
			a.admin("DELETE", "/platform/maintenance/resync", "").is(200, fmt.Sprintf(gateBody, false, "null", "open", false, false, 1))
		}
		for range 2 {
			a.admin("PUT", "/platform/maintenance/restore", "").is(200, fmt.Sprintf(gateBody, false, "null", "restore", true, false, 1))
		}
		deploy("b").is(409, `{"detail":{"code":"edge_workers_restore_pending","message":"Edge Workers were restored from a backup that is still being checked; try again when the platform's operator has ended the restore"}}`)
		for range 2 {
			a.admin("DELETE", "/platform/maintenance/restore", "").is(200, fmt.Sprintf(gateBody, false, "null", "open", false, false, 1))
		}
		host.Lose(maintenancetest.Answer)
		a.admin("PUT", "/platform/maintenance/fence", "").is(202, fmt.Sprintf(gateBody, false, quoted(a.fence()), "fenced", false, false, 1))
		id := a.fence()
		a.admin("PUT", "/platform/maintenance/fence", "").is(200, fmt.Sprintf(gateBody, false, quoted(id), "fenced", false, false, 1))
		var ticket gen.Ticket
		deploy("c").into(202, &ticket)
		if ticket.Status != "pending" || ticket.ErrorCode == nil || *ticket.ErrorCode != "edge_host_fenced" || len(a.Published.Messages()) != 0 {
			t.Errorf("behind the fence: %+v", ticket)
		}
		host.Lose(maintenancetest.Request)
		a.admin("DELETE", "/platform/maintenance/fence", "").is(202, fmt.Sprintf(gateBody, true, quoted(id), "fenced", false, false, 1))
		for range 2 {
			a.admin("DELETE", "/platform/maintenance/fence", "").is(200, fmt.Sprintf(gateBody, false, "null", "open", false, false, 1))
		}
		for _, action := range []string{"fence_begun", "fence_ended", "resync_begun", "resync_ended", "restore_begun", "restore_ended"} {
			if n := a.facts("maintenance." + action); n != 1 {
				t.Errorf("%d facts of %s", n, action)
			}
		}
		a.do("GET", "/platform/maintenance", request{token: a.manager()}).is(403, `{"detail":"Not enough permissions"}`)
		a.Exec("DELETE FROM edge_worker_maintenance")
		a.admin("GET", "/platform/maintenance", "").is(200, fmt.Sprintf(gateBody, false, "null", "maintenance", false, false, 0))
		a.admin("PUT", "/platform/maintenance/fence", "").is(409, `{"detail":{"code":"maintenance_row_missing","message":"The row of edge_worker_maintenance is missing, so every deployment is refused; restart the API: every process creates it when it starts"}}`)
	})
}

// fence is the row's fence id.
func (a *api) fence() string {
	a.t.Helper()
	var id string
	a.must(a.DB.Read(context.Background()).Table("edge_worker_maintenance").Select("fence_id").Scan(&id).Error)
	return id
}

// The comparison names a Worker whose script is another one, and nobody else.
func TestDifferences(t *testing.T) {
	t.Parallel()
	a, _ := gated(t, databasetest.MySQL(t))
	v := a.Submit("one")
	a.Admit(v)
	a.must(a.Task(nil).Handle(context.Background(), a.Published.Messages()[0]))
	a.admin("GET", "/platform/maintenance/differences", "").is(200, `{"checked":1,"items":[],"next_cursor":null}`)
	a.Provider.OnReadBack = func(provider.Release) error { return &provider.MismatchError{Detail: "tag"} }
	var page gen.MaintenanceDifferencePage
	a.admin("GET", "/platform/maintenance/differences", "").into(200, &page)
	if len(page.Items) != 1 || page.Items[0].VersionID != v.ID || page.Items[0].Result != gen.Differs || page.Items[0].DepartmentID != a.Tenant.DepartmentID {
		t.Errorf("%+v", page)
	}
	a.admin("GET", "/platform/maintenance/differences?cursor=*", "").is(422, `{"detail":[{"type":"cursor_invalid","loc":["query","cursor"],"msg":"cursor is not one that this list has given"}]}`)
}

// A cloud environment has no gates to keep.
func TestMaintenanceIsNotSupportedOnCloud(t *testing.T) {
	a := on(t)
	for _, target := range []string{"GET ", "GET /differences", "PUT /fence", "DELETE /fence", "PUT /restore", "DELETE /restore", "PUT /resync", "DELETE /resync"} {
		method, path, _ := strings.Cut(target, " ")
		a.admin(method, "/platform/maintenance"+path, "").
			is(409, `{"detail":{"code":"maintenance_not_supported","message":"Only an on-premises environment has maintenance gates; there is nothing to do here"}}`)
	}
}
