package live

import "github.com/prometheus/client_golang/prometheus"

// outcome is what a request for a change came to.
type outcome string

// The outcomes of changes that were recorded.
const (
	applied   outcome = "applied"
	refusedBy outcome = "refused" // by the Worker: nothing was changed
	notSent   outcome = "not_sent"
	unknown   outcome = "unknown" // left to the control-audit lane
)

// Metrics counts changes.
type Metrics struct{ changes *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{changes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_workers_control_changes_total", Help: "Changes to live Workers by operation and outcome.",
	}, []string{"operation", "outcome"})}
	return m, registry.Register(m.changes)
}

func (m *Metrics) count(operation string, o outcome) {
	m.changes.WithLabelValues(operation, string(o)).Inc()
}
