package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the lanes did and when each last ended well. A nil
// Metrics counts nothing.
type Metrics struct {
	rows *prometheus.CounterVec
	last *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_workers_recovery_rows_total", Help: "Rows that a recovery lane handled, by what came of them.",
		}, []string{"lane", "result"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edge_workers_recovery_last_success_timestamp_seconds", Help: "When a recovery lane last ended its round without an error.",
		}, []string{"lane"}),
	}
	for _, c := range []prometheus.Collector{m.rows, m.last} {
		err := registry.Register(c)
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) round(lane string, result Result, err error) {
	if m == nil {
		return
	}
	for what, n := range result {
		m.rows.WithLabelValues(lane, what).Add(float64(n))
	}
	if err == nil {
		m.last.WithLabelValues(lane).Set(float64(time.Now().Unix()))
	}
}
