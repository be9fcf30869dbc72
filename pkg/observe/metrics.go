package observe

import (
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// version is set by the linker in release builds (see the Makefile).
var version = ""

// Version names the build: what the linker set, else what the Go tool recorded
// of the module or the commit, else "unknown".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}

// NewRegistry makes the registry of a process, with the metrics of the Go
// runtime and of the operating system's process, and edge_workers_build_info,
// a constant 1 whose labels say which build of which binary runs.
func NewRegistry(binary string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "edge_workers_build_info",
		Help:        "Constant 1; the labels name the running build.",
		ConstLabels: prometheus.Labels{"binary": binary, "version": Version(), "go_version": runtime.Version()},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return registry
}

// The bounds of a scrape: a collector that hangs must not pile up requests.
const (
	scrapeTimeout  = 10 * time.Second
	scrapesAtOnce  = 4
	metricsPath    = "/metrics"
	livePath       = "/healthz"
	readyPath      = "/readyz"
	getAndHeadOnly = "GET "
)

// Admin serves /healthz, /readyz and /metrics. It belongs on a port that is not
// reachable from outside.
func Admin(health *Health, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(getAndHeadOnly+livePath, http.HandlerFunc(health.live))
	mux.Handle(getAndHeadOnly+readyPath, http.HandlerFunc(health.ready))
	mux.Handle(getAndHeadOnly+metricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector hides no other
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout,
	}))
	return mux
}
