package edgehost

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a host. Labels hold no script names: their number is unbounded.
type metrics struct {
	processes    prometheus.Gauge
	starts       *prometheus.CounterVec
	startSeconds prometheus.Histogram
	ends         *prometheus.CounterVec
	validations  *prometheus.HistogramVec
	requests     *prometheus.CounterVec
	fenced       prometheus.Collector
	registerer   prometheus.Registerer
}

func newMetrics(registerer prometheus.Registerer, fence *fence) (*metrics, error) {
	buckets := []float64{0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8}
	m := &metrics{
		registerer: registerer,
		processes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "edge_host_worker_processes", Help: "Worker processes that run or are being started."}),
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_host_worker_starts_total", Help: "Starts of Worker processes by result."}, []string{"result"}),
		startSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "edge_host_worker_start_seconds", Help: "Time from the wish for a process to its listening.", Buckets: buckets}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_host_worker_ends_total", Help: "Ends of Worker processes by reason."}, []string{"reason"}),
		validations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edge_host_validation_seconds", Help: "Time of validation starts by result.", Buckets: buckets}, []string{"result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edge_host_requests_total", Help: "Answers of the data plane by door and status class."}, []string{"door", "class"}),
		fenced: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "edge_host_backup_fence", Help: "1 while a backup fence is up and no script can change, else 0."}, fence.gauge),
	}
	for i, c := range m.all() {
		if err := registerer.Register(c); err != nil {
			for _, done := range m.all()[:i] {
				registerer.Unregister(done)
			}
			return nil, fmt.Errorf("register edge host metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.processes, m.starts, m.startSeconds, m.ends, m.validations, m.requests, m.fenced}
}

func (m *metrics) unregister() {
	for _, c := range m.all() {
		m.registerer.Unregister(c)
	}
}
