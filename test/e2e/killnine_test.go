package e2e_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kills is how often the process is killed, and maxLife the longest that it
// may live in between; a whole deployment fits into it.
const (
	kills   = 14
	maxLife = 5 * time.Second
)

// Nothing that was acknowledged is lost, nothing is reported wrongly, no ticket
// is stuck and the Worker answers, whenever the process is killed. E2E_SEED
// repeats the moments of a run.
func TestKillNine(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("E2E_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		seed = given
	}
	t.Logf("E2E_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	data := filepath.Join(t.TempDir(), "data")
	release := 0
	var p *department
	for range kills {
		d := start(t, data, "--log-level", "info")
		if p == nil {
			p = d.newDepartment(0)
		}
		moment := time.AfterFunc(time.Duration(random.Int64N(int64(maxLife))), func() { _ = d.command.Process.Kill() })
		p.use(d, &release)
		<-d.done
		moment.Stop()
	}
	d := start(t, data, "--log-level", "info")
	p.check(d)
	versions, tickets, notes := len(p.versions), len(p.tickets), len(p.notes)
	t.Logf("%d kills, %d versions, %d tickets, %d writes", kills, versions, tickets, notes)
	if versions == 0 || tickets == 0 || notes == 0 {
		t.Error("the run promised nothing, so it proves nothing")
	}
	d.secondStart()
}

// secondStart: a folder has one process. The second says so, ends, and leaves
// the first alone.
func (d *dev) secondStart() {
	d.t.Helper()
	out, errs, exit := run(d.t, "dev", "--data", d.data, "--addr", "127.0.0.1:0")
	if exit != 1 || out != "" || !strings.Contains(errs, d.data+" is in use by another edgectl dev") || !strings.Contains(errs, "--data") {
		d.t.Errorf("a second start: exit %d\n%s\n%s", exit, out, errs)
	}
	if got := d.call("GET", "/worker", d.ManagerToken, "", ""); got.err != nil {
		d.t.Errorf("the first process after a second start: %v", got.err)
	}
	if _, errs, exit := d.run("versions"); exit != 0 {
		d.t.Errorf("its ready file after a second start: %d %s", exit, errs)
	}
}
