//go:build e2e

package fleet

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// oldest is the oldest release that a rolling upgrade may come from, and a
// rollback go to: the first one whose deployer and reconciler are programs of
// their own.
const oldest = "77607e931bf7293367a054eefee0ce701b7dd77d"

// today is this tree.
const today = ""

// mix is the release of each program.
type mix struct{ api, deployer, reconciler string }

func (m mix) String() string {
	name := func(release string) string { return cmp.Or(release[:min(len(release), 7)], "today") }
	return fmt.Sprintf("api %s, deployer %s, reconciler %s", name(m.api), name(m.deployer), name(m.reconciler))
}

// S3-02, S3-03, S1-253, S1-258 to S1-261, S1-266: today's programs take the
// place of the oldest ones, on the oldest ones' schema: first the deployer and
// the reconciler, then the api, and with a step back of the deployer.
func TestUpgrade(t *testing.T) {
	r := begin(t, mix{oldest, oldest, oldest})
	before := r.schema()
	r.works()
	r.to(mix{oldest, today, today})
	r.to(mix{today, oldest, today})
	r.to(mix{today, today, today})
	r.end(before)
}

// S3-02, S3-03, S3-06, S1-253, S1-258 to S1-261, S1-266: a rollback, on a schema
// that has more than the oldest programs know: a column in each table, with a
// default, and a table.
func TestUpgradeTakenBack(t *testing.T) {
	r := begin(t, mix{today, today, today})
	tables := r.extend()
	before := r.schema()
	r.works()
	r.to(mix{today, oldest, oldest})
	r.to(mix{oldest, today, oldest})
	r.to(mix{oldest, oldest, oldest})
	r.end(before)
	written := int64(0)
	for _, table := range tables {
		var all, defaulted int64
		r.must(r.database.Read(t.Context()).Raw("SELECT COUNT(*), COUNT(CASE WHEN added_later = 'unknown' THEN 1 END) FROM "+table).Row().Scan(&all, &defaulted))
		if all != defaulted {
			t.Errorf("%s: %d of %d rows have the new column's default", table, defaulted, all)
		}
		written += all
	}
	if written < int64(len(r.done)) {
		t.Errorf("only %d rows", written)
	}
}

// to replaces the programs: the deployer twice, once when it may end what it has
// in flight and once when it dies of it, and the others in between.
func (r *rollout) to(next mix) {
	r.t.Helper()
	began, before := time.Now(), r.now
	drained := r.drain(next)
	r.replaceDeployer(before.deployer)
	r.stops(r.api)
	r.releases["api"], r.now.api = next.api, next.api
	r.startAPI()
	r.ends("drained", drained)
	r.crash(next)
	r.now = next
	r.works()
	r.t.Logf("%s: %d deployments, %v", next, len(r.done), time.Since(began).Round(time.Millisecond))
}

// drain lets a deployment begin, starts the next deployer, and stops the one
// before, which ends it.
func (r *rollout) drain(next mix) deployment {
	r.t.Helper()
	gate := r.host.hold(r.t, false)
	d := r.submits("drained")
	r.await(gate)
	leaving := r.deployers[0]
	r.releases["deployer"] = next.deployer
	r.restartDeployer() // beside it
	code := make(chan int, 1)
	go func() { code <- leaving.Stop() }()
	r.stopping(leaving)
	gate.open()
	if got := <-code; got != 0 || !strings.Contains(leaving.Log(), d.ticket.TicketID) {
		r.t.Errorf("exit code %d, or the ticket is not in its log\n%s", got, leaving.Log())
	}
	return d
}

// crash kills the deployer once the host has an upload; the next reconciler and
// deployer find out what became of it, and do not repeat it.
func (r *rollout) crash(next mix) {
	r.t.Helper()
	gate := r.host.hold(r.t, true)
	d := r.submits("killed")
	r.await(gate)
	r.deployers[0].Kill()
	gate.open()
	r.stops(r.reconciler)
	r.passTime()
	r.releases["deployer"], r.releases["reconciler"] = next.deployer, next.reconciler
	r.restartDeployer()
	r.startReconciler()
	r.ends("killed", d)
}

// works checks that the programs work together: a message leads to its
// deployment, a lost one is published again, and all that was written before is
// read as it was.
func (r *rollout) works() {
	r.t.Helper()
	r.ends("published", r.submits("published"))
	r.republishes()
	r.reads()
}

// republishes loses a message: only the reconciler can publish it again.
func (r *rollout) republishes() {
	r.t.Helper()
	r.stops(r.deployers[0])
	d := r.submits("lost")
	want, limit := r.message(d.ticket.TicketID), time.After(patience)
	for !slices.ContainsFunc(r.queue.lose(), func(raw []byte) bool { return bytes.Equal(raw, want) }) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			r.t.Fatalf("%s: the message is not on the queue as this tree writes it: %s", r.now, want)
		}
	}
	r.stops(r.reconciler)
	r.passTime()
	r.restartDeployer()
	r.startReconciler()
	r.ends("lost", d)
}
