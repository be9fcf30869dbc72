package chart

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	chartDir  = root + "/charts/edge-workers"
	namespace = "edge"
	release   = "prod"
)

// kubeVersions are the oldest Kubernetes that the chart is for, and a new one.
var kubeVersions = []string{"v1.30.0", "v1.36.0"}

// valueSets are the example values by name.
func valueSets(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/examples/values/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]map[string]any{}
	for _, file := range files {
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = readYAML(t, file)
	}
	want := []string{"batch-cloud", "legacy-cloud", "legacy-onprem", "pubsub-cloud", "sqs-cloud", "sqs-onprem"}
	if got := slices.Sorted(maps.Keys(sets)); !slices.Equal(got, want) {
		t.Fatalf("value sets %v, want %v", got, want)
	}
	return sets
}

func readYAML(t *testing.T, file string) map[string]any {
	t.Helper()
	var values map[string]any
	err := yaml.UnmarshalStrict([]byte(read(t, file)), &values)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return values
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// render is `helm template` with values over the chart's own.
func render(ctx context.Context, values map[string]any, kubeVersion string) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	merged, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(ctx, chart, merged)
}

func mustRender(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	files, err := render(t.Context(), values, kubeVersions[0])
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// with gives a copy of values with some replaced: path, value, path, value.
// A nil takes the chart's own value.
func with(t *testing.T, values map[string]any, changes ...any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	var changed map[string]any
	err = yaml.Unmarshal(text, &changed)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		at, names := changed, strings.Split(changes[i].(string), ".")
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		last := names[len(names)-1]
		at[last] = changes[i+1]
		if changes[i+1] == nil {
			delete(at, last)
		}
	}
	return changed
}

// `helm lint --strict`: not even a warning, for each value set.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		for _, version := range kubeVersions {
			kube, err := common.ParseKubeVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			result := lint.RunAll(chartDir, values, namespace, lint.WithKubeVersion(kube))
			for _, message := range result.Messages {
				if message.Severity >= support.WarningSev {
					t.Errorf("%s on %s: %v", name, version, message)
				}
			}
		}
	}
	// The positive control: an unknown value is no lint-free one.
	result := lint.RunAll(chartDir, map[string]any{"transports": map[string]any{}}, namespace)
	if result.HighestSeverity < support.ErrorSev {
		t.Error("lint takes a misspelt value")
	}
}

// The chart is for Kubernetes 1.30 and later and renders the same on all.
func TestKubeVersions(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		first := mustRender(t, values)
		second, err := render(t.Context(), values, kubeVersions[1])
		if err != nil || !maps.Equal(first, second) {
			t.Errorf("%s: another rendering on %s: %v", name, kubeVersions[1], err)
		}
	}
}

// What an operator is told after an installation.
func TestNotes(t *testing.T) {
	t.Parallel()
	sets := valueSets(t)
	for name, texts := range map[string][]string{
		"legacy-cloud": {"helm test prod --namespace edge", "deployment/prod-edge-workers-api", "platform_admin", "edgectl deploy hello --wait", "edgectl dispatcher"},
		"pubsub-cloud": {"examples/pubsub"},
		"sqs-onprem":   {"deployment/edge-kit-api", "EDGE_WORKERS_API_URL=https://edge.kit.internal"},
	} {
		notes := mustRender(t, sets[name])["edge-workers/templates/NOTES.txt"]
		for _, text := range texts {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: the notes have no %q\n%s", name, text, notes)
			}
		}
		if strings.Contains(notes, "WARNING") {
			t.Errorf("%s: the notes warn\n%s", name, notes)
		}
	}
	notes := mustRender(t, with(t, sets["sqs-cloud"], "edge", nil, "networkPolicy.enabled", false))["edge-workers/templates/NOTES.txt"]
	if strings.Count(notes, "WARNING") != 2 {
		t.Errorf("an ingress without trusted proxies and pods without policies are not warned of\n%s", notes)
	}
}

// The brokers' definitions, to which the notes and the README send the operator,
// are in the packaged chart.
func TestExamplesArePackaged(t *testing.T) {
	t.Parallel()
	chart, err := loader.Load(chartDir) // heeds .helmignore
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range chart.Files {
		names = append(names, file.Name)
	}
	for _, want := range []string{"README.md", "examples/pubsub/subscription.json", "examples/sqs/queue.json", "examples/batch/job-definition.json", "examples/values/legacy-cloud.yaml"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in the package: %v", want, names)
		}
	}
}
