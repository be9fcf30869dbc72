package deploy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts settlements and measures stages. The stages upload, read_back
// and readiness are the provider's share; the rest is the control plane's own.
type Metrics struct {
	stages  *prometheus.HistogramVec
	results *prometheus.CounterVec
	total   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edge_workers_deploy_stage_seconds", Help: "Duration of each stage of the deployment task.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"stage"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_workers_deployments_total", Help: "Deployment runs by verdict and error code.",
		}, []string{"verdict", "code"}),
		total: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edge_workers_deploy_run_seconds", Help: "Duration of whole runs of the deployment task by verdict.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 12),
		}, []string{"verdict"}),
	}
	for _, c := range []prometheus.Collector{m.stages, m.results, m.total} {
		err := registry.Register(c)
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) stage(name string, d time.Duration) {
	m.stages.WithLabelValues(name).Observe(d.Seconds())
}

func (m *Metrics) settled(out outcome, started time.Time) {
	m.results.WithLabelValues(string(out.kind), out.code).Inc()
	m.total.WithLabelValues(string(out.kind)).Observe(time.Since(started).Seconds())
}
