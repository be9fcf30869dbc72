//go:build e2e

package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// S1-314, S1-315, S1-344, S2-072 to S2-075, S3-49: a backup of the running system
// behind a fence, and a restore of its database under an edge host that has gone
// on meanwhile. What came in during the backup is deployed after it; the restore
// is noticed and nothing is deployed until an operator has looked.
func TestBackupAndRestore(t *testing.T) {
	f := Start(t, Params{Transport: config.PubSubBroker, Deployers: 1})
	f.provision("d", "e")
	f.deploysAndAnswers()

	f.gate(client.Fence, true, gen.MaintenanceGateFenced)
	waiting := f.deploy("behind the fence")
	if waiting.Status != gen.TicketStatusPending || waiting.ErrorCode == nil || *waiting.ErrorCode != "edge_host_fenced" {
		t.Errorf("ticket %+v", waiting)
	}
	f.servesAda("behind the fence")
	f.backUp()
	uploads := f.host.puts()
	delete(uploads, "") // the fence is begun with a PUT too
	if len(uploads) != 1 {
		t.Errorf("%d releases were uploaded, one of them behind the fence", len(uploads))
	}
	f.gate(client.Fence, false, gen.MaintenanceGateOpen)
	f.sweepNow()
	f.completes("after the fence", waiting)

	f.restore()
	f.awaitGate(gen.MaintenanceGateRestore)
	v, err := f.as("e").SubmitVersion(t.Context(), f.archive("too early"), nil)
	f.must(err)
	_, err = f.as("e").Deploy(t.Context(), v.ID, v.Revision)
	if err == nil || !strings.Contains(err.Error(), "edge_workers_restore_pending") {
		t.Errorf("a deployment during the restore: %v", err)
	}
	f.gate(client.Resync, true, gen.MaintenanceGateMaintenance)
	if got := f.differences(); got != 1 {
		t.Errorf("%d differences", got)
	}
	f.gate(client.Resync, false, gen.MaintenanceGateRestore)
	f.gate(client.Restore, false, gen.MaintenanceGateOpen)
	f.sweepNow()
	f.completes("what waited in the backup", waiting)
	if got := f.differences(); got != 0 {
		t.Errorf("%d differences are left", got)
	}
	f.servesAda("after all")
	f.stopAll()
}

func (f *Fleet) servesAda(what string) {
	f.t.Helper()
	out, err := f.as("d").Invoke(f.t.Context(), "orders.get", json.RawMessage(`{"id":"1"}`))
	if err != nil || !strings.Contains(string(out), "Ada") {
		f.t.Errorf("%s: %s, %v", what, out, err)
	}
}

func (f *Fleet) gate(gate client.Gate, begin bool, want gen.MaintenanceGate) {
	f.t.Helper()
	set := f.as("d").EndGate
	if begin {
		set = f.as("d").BeginGate
	}
	state, confirmed, err := set(f.t.Context(), gate)
	if err != nil || !confirmed || state.Gate != want {
		f.t.Fatalf("%s: %+v, confirmed %v, %v\n%s", gate, state, confirmed, err, f.logs())
	}
}

func (f *Fleet) awaitGate(want gen.MaintenanceGate) {
	f.t.Helper()
	for limit := time.After(patience); ; {
		state, err := f.as("d").Maintenance(f.t.Context())
		f.must(err)
		if state.Gate == want {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit:
			f.t.Fatalf("the gate is %s\n%s", state.Gate, f.logs())
		}
	}
}

func (f *Fleet) differences() int {
	f.t.Helper()
	page, err := f.as("d").Differences(f.t.Context(), "")
	f.must(err)
	return len(page.Items)
}

// sweepNow lets the sweep begin a round.
func (f *Fleet) sweepNow() {
	f.t.Helper()
	f.reconciler.Kill()
	f.startReconciler()
}

// columns lists the columns of a table that a copy has to give; the others are
// the database's own.
func (f *Fleet) columns(table string) string {
	f.t.Helper()
	var names []string
	f.must(f.database.Read(f.t.Context()).Raw("SELECT CONCAT('`', column_name, '`') FROM information_schema.columns "+
		"WHERE table_schema = DATABASE() AND table_name = ? AND COALESCE(generation_expression, '') = '' ORDER BY ordinal_position", table).Scan(&names).Error)
	return strings.Join(names, ", ")
}

func tables() []string {
	return []string{
		models.Company{}.TableName(), models.Department{}.TableName(), models.Worker{}.TableName(), models.Version{}.TableName(),
		models.Outbox{}.TableName(), models.AuditLog{}.TableName(), models.Maintenance{}.TableName(),
	}
}

// backUp copies the database.
func (f *Fleet) backUp() {
	f.t.Helper()
	for _, table := range tables() {
		f.exec(fmt.Sprintf("CREATE TABLE backup_%s AS SELECT %s FROM %s", table, f.columns(table), table))
	}
}

// restore stops the control plane, brings the database back as it was, without
// what Redis knew, and starts the control plane.
func (f *Fleet) restore() {
	f.t.Helper()
	f.deployers[0].Stop()
	f.reconciler.Stop()
	f.api.Stop()
	all := tables()
	for i := range all {
		f.exec("DELETE FROM " + all[len(all)-1-i])
	}
	for _, table := range all {
		columns := f.columns(table)
		f.exec(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM backup_%s", table, columns, columns, table))
	}
	f.servers.forget()
	f.startAPI()
	f.startReconciler()
	f.restartDeployer()
}
