// Package bench keeps the speeds that the project promises. Its benchmarks run
// the whole system in this process, on real workerd; `make bench` runs them.
package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/test/figures"
)

const (
	example  = "../../examples/orders"
	packages = "../../pkg/builder/testdata/real"
)

// system starts everything in a folder of its own and stops it with b.
func system(b *testing.B) figures.Target {
	b.Helper()
	return systemWith(b, "")
}

// systemWith is system with a registry of npm packages.
func systemWith(b *testing.B, registry string) figures.Target {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan devkit.Ready, 1), make(chan error, 1)
	params := devkit.Params{
		Data: b.TempDir(), Addr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0", Log: observe.Discard(), NPMRegistry: registry,
		Ready: func(r devkit.Ready) error { ready <- r; return nil },
	}
	go func() { ended <- devkit.Run(ctx, params) }()
	var r devkit.Ready
	select {
	case r = <-ready:
	case err := <-ended:
		stop()
		b.Fatalf("start the system: %v", err)
	}
	b.Cleanup(func() {
		stop()
		err := <-ended
		if err != nil && !errors.Is(err, context.Canceled) {
			b.Errorf("stop the system: %v", err)
		}
	})
	api, err := client.New(client.Params{BaseURL: r.APIURL, Token: r.ManagerToken})
	if err != nil {
		b.Fatal(err)
	}
	return figures.Target{API: api, MetricsURL: r.MetricsURL}
}

func bareWork(b *testing.B, project string) *figures.Bare {
	b.Helper()
	bare, err := figures.NewBare(project, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bare.Close() })
	return bare
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkSubmission submits examples/orders over HTTP. "ratio" is the median
// submission over the median of the bare work, esbuild on the same files and
// the two artifact writes, taken in turns with it.
func BenchmarkSubmission(b *testing.B) {
	submissions(b, system(b), bareWork(b, example))
}

// BenchmarkSubmissionWithPackages is the same for a project with 64 npm
// packages. The first submission fetches them and is not counted; the bare
// bundler finds them in node_modules, where npm has put them.
func BenchmarkSubmissionWithPackages(b *testing.B) {
	registry := npmtest.Real(b)
	target, bare := systemWith(b, registry), bareWork(b, packages)
	err := bare.Install(b.Context(), registry)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	_, err = target.Submit(b.Context(), bare)
	if err != nil {
		b.Fatal(err)
	}
	cold := time.Since(began)
	submissions(b, target, bare)
	b.ReportMetric(milliseconds(cold), "ms/cold")
}

func submissions(b *testing.B, target figures.Target, bare *figures.Bare) {
	b.Helper()
	var all []figures.Submission
	for b.Loop() {
		s, err := target.Submit(b.Context(), bare)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
	}
	middle := figures.Submissions(all)
	b.ReportMetric(middle.Ratio(), "ratio")
	b.ReportMetric(milliseconds(middle.Whole), "ms/submission")
	b.ReportMetric(milliseconds(middle.Bundling), "ms/esbuild")
	b.ReportMetric(milliseconds(middle.Writing), "ms/writes")
	b.ReportMetric(0, "ns/op") // it would add the bare work to the submission
}

// BenchmarkDeployment deploys a fresh revision of examples/orders each time.
// "ms/accepted-completed" is what a poller sees, "ms/own" the control plane's
// share: every stage but upload, read-back and probe.
func BenchmarkDeployment(b *testing.B) {
	target, bare := system(b), bareWork(b, example)
	var accepted, own []time.Duration
	for b.Loop() {
		s, err := target.Submit(b.Context(), bare)
		if err != nil {
			b.Fatal(err)
		}
		deployment, err := target.Deploy(b.Context(), s.Version)
		if err != nil {
			b.Fatal(err)
		}
		accepted, own = append(accepted, deployment.Accepted), append(own, deployment.Stages.Own())
	}
	b.ReportMetric(milliseconds(figures.Median(accepted)), "ms/accepted-completed")
	b.ReportMetric(milliseconds(figures.Median(own)), "ms/own")
	b.ReportMetric(0, "ns/op") // it would add the submission to the deployment
}
