//go:build e2e && linux

package fleet

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
)

// median sorts what it is given.
func median[T int64 | float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// starts is how often a program is started for its time.
const starts = 5

// idle is how long a program has nothing to do before its memory is read.
const idle = 3 * time.Second

// BenchmarkPrograms reports of each program its size, the time from its start to
// its readiness, and the memory that it has while it is idle.
func BenchmarkPrograms(b *testing.B) {
	f := Start(b, Params{Transport: config.PubSubBroker, Deployers: 1})
	programs := map[string]func() *processtest.Process{
		"api":        func() *processtest.Process { return f.run("api", 2) },
		"deployer":   func() *processtest.Process { return f.run("deployer", 1) },
		"reconciler": func() *processtest.Process { return f.run("reconciler", 1) },
		"edgehost": func() *processtest.Process {
			h := &host{data: b.TempDir()}
			h.start(b, f.folder, "127.0.0.1:0", "127.0.0.1:0")
			return h.process
		},
	}
	for name, start := range programs {
		b.Run(name, func(b *testing.B) {
			info, err := os.Stat(filepath.Join(f.folder, name))
			f.must(err)
			var took []time.Duration
			var resident []int64
			for range starts {
				began := time.Now()
				p := start()
				p.AwaitReadiness(http.StatusOK)
				took = append(took, time.Since(began))
				<-time.After(idle)
				resident = append(resident, residentKiB(b, p.PID()))
				p.Stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(info.Size())/1e6, "MB")
			b.ReportMetric(float64(median(took).Milliseconds()), "ms-to-ready")
			b.ReportMetric(float64(median(resident))/1024, "MiB-idle")
		})
	}
}

// residentKiB is the memory of a process that is in RAM.
func residentKiB(b *testing.B, pid int) int64 {
	b.Helper()
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = status.Close() }()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		var kib int64
		if strings.HasPrefix(lines.Text(), "VmRSS:") {
			_, err = fmt.Sscanf(lines.Text(), "VmRSS: %d kB", &kib)
			if err != nil {
				b.Fatal(err)
			}
			return kib
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// BenchmarkCommitToLease reports over each transport the median time from the
// commit of a deployment to the lease on it, both by the database's clock. It
// has the publication and the delivery in it.
func BenchmarkCommitToLease(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			f := Start(b, Params{Transport: kind, Deployers: 1, Model: true})
			f.provision("d")
			f.completes("the first deployment", f.deploy("first"))
			var took []int64
			for n := 0; b.Loop(); n++ {
				gate := f.host.hold(b, false)
				ticket := f.deploy(fmt.Sprint(n))
				<-gate.arrived
				var micros int64
				f.must(f.database.Read(b.Context()).Raw(
					"SELECT TIMESTAMPDIFF(MICROSECOND, created_at, lease_expires_at) - 90000000 FROM edge_worker_outbox WHERE ticket_id = ? AND status = 'leased'",
					ticket.TicketID).Scan(&micros).Error)
				took = append(took, micros)
				gate.open()
				f.completes("measured", ticket)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(median(took))/1000, "ms-to-lease")
		})
	}
}
