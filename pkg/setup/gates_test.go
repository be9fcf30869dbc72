package setup

import (
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
)

// S3-47, S3-48, S3-50, S3-51: the API of an edge host creates its scope's row and
// leaves one that is there as it is; a cloud API has no row and no keeper.
func TestGateRow(t *testing.T) {
	t.Parallel()
	rows := func(p *process) []models.Maintenance {
		t.Helper()
		var all []models.Maintenance
		must(t, p.db.Read(t.Context()).Find(&all).Error)
		return all
	}
	p := startWith(t, inKit(), Params{})
	got := rows(p)
	if len(got) != 1 || got[0].Scope != p.Outbox.Scope().Default().Namespace || got[0].State != models.MaintenanceIdle || got[0].FenceID != "" || got[0].RestorePending {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(p.log.String(), "maintenance row created") {
		t.Errorf("log: %s", p.log.String())
	}
	must(t, p.db.Read(t.Context()).Exec("UPDATE edge_worker_maintenance SET fence_id = 'f', resync_epoch = 3").Error)
	created, err := p.keeper.Prepare(t.Context())
	if got = rows(p); err != nil || created || len(got) != 1 || got[0].FenceID != "f" || got[0].ResyncEpoch != 3 {
		t.Errorf("again: %v, %v, %+v", created, err, got)
	}
	cloud := start(t, complete(), newCloud(t))
	if cloud.keeper != nil || len(rows(cloud)) != 0 {
		t.Errorf("cloud: %+v", rows(cloud))
	}
}
