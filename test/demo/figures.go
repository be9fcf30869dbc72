package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

// rounds is how often each figure is taken; the median counts.
const rounds = 5

// figures are the speeds that the project promises, each as a ratio or a share
// taken in this very run.
type figures struct {
	submit, bundling, writing time.Duration
	accepted                  time.Duration // ticket accepted → completed
	own                       time.Duration // of which the control plane's share
	stages                    map[string]time.Duration
}

// The promises. They are printed always and are an error only when missed by
// far, because a busy machine bends them: the benchmarks keep them.
const (
	submitRatio   = 1.5
	acceptedLimit = time.Second
	ownLimit      = 50 * time.Millisecond
	tolerance     = 4
)

// measure takes the figures on the running system with further revisions.
func (d *demo) measure(ctx context.Context) (figures, error) {
	say("Measure")
	archive, err := project.Pack(example)
	if err != nil {
		return figures{}, err
	}
	source, err := project.Read(strings.NewReader(string(archive)))
	if err != nil {
		return figures{}, err
	}
	folder, err := os.MkdirTemp("", "edge-workers-bare-")
	if err != nil {
		return figures{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	var f figures
	var submits, bundlings, writings, accepts, owns []time.Duration
	for range rounds {
		began := time.Now()
		v, err := d.api.SubmitVersion(ctx, archive)
		if err != nil {
			return figures{}, err
		}
		submits = append(submits, time.Since(began))
		bundle, took, err := bareBundling(folder, source)
		if err != nil {
			return figures{}, err
		}
		bundlings = append(bundlings, took)
		took, err = bareWrites(ctx, filepath.Join(folder, "store"), archive, bundle)
		if err != nil {
			return figures{}, err
		}
		writings = append(writings, took)
		before, err := d.stages(ctx)
		if err != nil {
			return figures{}, err
		}
		began = time.Now()
		ticket, err := d.api.Deploy(ctx, v.ID, v.Revision)
		if err != nil {
			return figures{}, err
		}
		ticket, err = d.api.Wait(ctx, ticket.TicketID, client.WaitParams{})
		if err != nil {
			return figures{}, err
		}
		accepts = append(accepts, time.Since(began))
		after, err := d.stages(ctx)
		if err != nil {
			return figures{}, err
		}
		f.stages = map[string]time.Duration{}
		own := time.Duration(0)
		for name, total := range after {
			f.stages[name] = total - before[name]
			if name != "upload" && name != "read_back" && name != "readiness" {
				own += f.stages[name]
			}
		}
		owns = append(owns, own)
		fmt.Printf("  revision %d: %s\n", v.Revision, ticket.Status)
	}
	f.submit, f.bundling, f.writing, f.accepted, f.own = median(submits), median(bundlings), median(writings), median(accepts), median(owns)
	return f, nil
}

// bareBundling bundles the same files with esbuild alone: the author's sources
// and the runtime, from a folder.
func bareBundling(folder string, source *project.Project) ([]byte, time.Duration, error) {
	root := filepath.Join(folder, "project")
	for name, data := range source.Files {
		err := write(filepath.Join(root, name), data)
		if err != nil {
			return nil, 0, err
		}
	}
	err := errors.Join(
		write(filepath.Join(folder, "runtime.mjs"), []byte(runtime.Module())),
		write(filepath.Join(folder, "author.mjs"), []byte("export const defineWorker = (x) => x; export class OperationError extends Error {}\n")),
		write(filepath.Join(folder, "index.mjs"), []byte("export * from './runtime.mjs'; import entry from './project/"+source.Manifest.Entry+"'; globalThis.entry = entry;\n")),
	)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: folder, EntryPoints: []string{"index.mjs"}, Outfile: "out.mjs", Bundle: true, Format: api.FormatESModule,
		Platform: api.PlatformNeutral, Target: api.ES2022, LogLevel: api.LogLevelSilent, External: []string{"cloudflare:*"},
		Alias:  map[string]string{"@teamsync/edge-worker": "./author.mjs"},
		Loader: map[string]api.Loader{".sql": api.LoaderText},
	})
	took := time.Since(began)
	if len(result.Errors) > 0 {
		return nil, 0, fmt.Errorf("bare bundling: %s", result.Errors[0].Text)
	}
	return result.OutputFiles[0].Contents, took, nil
}

func write(name string, data []byte) error {
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// bareWrites stores archive and bundle in a directory store, as a submission
// does.
func bareWrites(ctx context.Context, folder string, archive, bundle []byte) (time.Duration, error) {
	directory, err := artifact.NewDirectory(folder)
	if err != nil {
		return 0, err
	}
	defer func() { _ = directory.Close() }()
	store := artifact.NewFenced(directory)
	began := time.Now()
	id := fmt.Sprint(began.UnixNano())
	for kind, content := range map[artifact.Kind][]byte{artifact.Project: archive, artifact.Bundle: bundle} {
		sum := sha256.Sum256(content)
		err := store.Put(ctx, artifact.Object{
			Tenant: artifact.Tenant{CompanyID: "c", DepartmentID: "d"}, Kind: kind, ArtifactID: id,
			Digest: hex.EncodeToString(sum[:]), Content: content,
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// stages reads the total time of each stage of the deployment task.
func (d *demo) stages(ctx context.Context) (map[string]time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.ready.MetricsURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	families, err := expfmtParser().TextToMetricFamilies(io.LimitReader(response.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	out := map[string]time.Duration{}
	for _, m := range families["edge_workers_deploy_stage_seconds"].GetMetric() {
		out[m.GetLabel()[0].GetValue()] = time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
	}
	return out, nil
}

func expfmtParser() *expfmt.TextParser {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return &parser
}

func (f figures) ratio() float64 { return f.submit.Seconds() / (f.bundling + f.writing).Seconds() }

func (f figures) print(w io.Writer) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	_, _ = fmt.Fprintf(w, `
Figures (medians of %d, taken in this run)
  submission (201)                      %8.1f ms = %.2f × (esbuild alone %.1f ms + artifact writes %.1f ms); promised ≤ %.1f ×
  ticket accepted → completed           %8.1f ms; promised ≤ %.0f ms on a quiet machine
  of which the control plane's own      %8.1f ms; promised ≤ %.0f ms
  stages of the last deployment
`, rounds, ms(f.submit), f.ratio(), ms(f.bundling), ms(f.writing), submitRatio, ms(f.accepted), ms(acceptedLimit), ms(f.own), ms(ownLimit))
	names := make([]string, 0, len(f.stages))
	for name := range f.stages {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return f.stages[names[i]] > f.stages[names[j]] })
	for _, name := range names {
		_, _ = fmt.Fprintf(w, "    %-22s %8.1f ms\n", name, ms(f.stages[name]))
	}
}

// judge fails only for what no busy machine explains.
func (f figures) judge() error {
	if f.ratio() > submitRatio*tolerance || f.accepted > acceptedLimit*tolerance || f.own > ownLimit*tolerance {
		return fmt.Errorf("a promised figure was missed more than %d times over", tolerance)
	}
	return nil
}

func median(all []time.Duration) time.Duration {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all[len(all)/2]
}
