package figures

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// stageMetric sums the time that the deployment task spent in each stage.
	stageMetric   = "edge_workers_deploy_stage_seconds"
	scrapeTimeout = 10 * time.Second
	maxScrape     = 4 << 20 // bytes
)

// provided are the stages that wait for the provider; the others are the
// control plane's own.
var provided = []string{"upload", "read_back", "readiness"}

// Stages is the time that deployments spent in each stage.
type Stages map[string]time.Duration

// ReadStages reads the totals of a running system from its metrics.
func ReadStages(ctx context.Context, metricsURL string) (Stages, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metricsURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	defer response.Body.Close()
	return parseStages(io.LimitReader(response.Body, maxScrape))
}

func parseStages(text io.Reader) (Stages, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	stages := Stages{}
	for _, m := range families[stageMetric].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "stage" {
				stages[label.GetValue()] = time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
			}
		}
	}
	return stages, nil
}

// Since gives what was spent after an earlier reading.
func (s Stages) Since(before Stages) Stages {
	spent := Stages{}
	for name, total := range s {
		spent[name] = total - before[name]
	}
	return spent
}

// Own is the control plane's share: all stages but upload, read-back and probe.
func (s Stages) Own() time.Duration {
	own := time.Duration(0)
	for name, spent := range s {
		if !slices.Contains(provided, name) {
			own += spent
		}
	}
	return own
}

// Longest gives the stages' names, the longest first.
func (s Stages) Longest() []string {
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		if s[a] != s[b] {
			return int(s[b] - s[a])
		}
		return slices.Compare([]string{a}, []string{b})
	})
}

// Median gives the middle one of at least one duration.
func Median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
