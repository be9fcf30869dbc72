package fleet

import (
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/process/processtest"
)

// Program is one of a fleet's processes.
type Program struct {
	Name string
	*processtest.Process
}

// Programs are the processes that run, in the order in which they are stopped:
// first who takes new work, last what the others need. The jobs of Batch come
// and go by themselves and are not among them.
func (f *Fleet) Programs() []Program {
	all := []Program{{"api", f.api}}
	for i, p := range f.deployers {
		all = append(all, Program{fmt.Sprintf("deployer %d", i+1), p})
	}
	if f.reconciler != nil {
		all = append(all, Program{"reconciler", f.reconciler})
	}
	if f.host.process != nil {
		all = append(all, Program{"edgehost", f.host.process})
	}
	return all
}

// URL is the origin of API and gateway.
func (f *Fleet) URL() string { return f.api.URL("api") }

// KeyFile holds the key that tokens are signed with, for auth.LocalIssuer.
func (f *Fleet) KeyFile() string { return f.environment["EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"] }

// Provision makes a company and its departments.
func (f *Fleet) Provision(company string, departments ...string) {
	f.t.Helper()
	f.exec("INSERT INTO companies (id, name) VALUES (?, 'A company')", company)
	for _, d := range departments {
		f.exec("INSERT INTO departments (id, company_id, name) VALUES (?, ?, 'A department')", d, company)
	}
}

// Stop asks the programs to end, one after another, each of which finishes what
// it is doing. Its error names those that did not end well.
func (f *Fleet) Stop() error {
	f.t.Helper()
	var errs []error
	for _, p := range f.Programs() {
		if p.Process == f.reconciler {
			f.stopJobs()
		}
		code := 0
		f.step("stop "+p.Name, func() { code = p.Stop() })
		if code != 0 {
			errs = append(errs, fmt.Errorf("%s ended with exit code %d; the end of its log:\n%s", p.Name, code, Tail(p.Log())))
		}
	}
	return errors.Join(errs...)
}

// stopJobs ends the jobs of Batch, which are this fleet's deployers.
func (f *Fleet) stopJobs() {
	if jobs, ok := f.broker.(*batchJobs); ok && jobs.stop != nil {
		jobs.stop()
	}
}

// tailBytes of a log say what happened last.
const tailBytes = 2000

// Tail is the end of a log.
func Tail(log string) string { return log[max(0, len(log)-tailBytes):] }
