package observe

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func get(t *testing.T, handler http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return response
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := NewRegistry("api")
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_workers_test_total", Help: "For this test."})
	registry.MustRegister(counter)
	counter.Add(3)
	response := get(t, Admin(NewHealth(0, nil), registry, Discard()), http.MethodGet, "/metrics")
	body := response.Body.String()
	if response.Code != http.StatusOK {
		t.Fatalf("status %d: %s", response.Code, body)
	}
	for _, text := range []string{
		`edge_workers_build_info{binary="api",go_version="` + runtime.Version() + `",version="` + Version() + `"} 1`,
		"edge_workers_test_total 3", "go_goroutines ",
	} {
		if !strings.Contains(body, text) {
			t.Errorf("no %q in:\n%s", text, body)
		}
	}
	if runtime.GOOS == "linux" && !strings.Contains(body, "process_open_fds ") {
		t.Error("no metrics of the process")
	}
}

type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("no"))
}

func TestBrokenCollectorHidesNoOther(t *testing.T) {
	t.Parallel()
	registry := NewRegistry("api")
	registry.MustRegister(broken{})
	response := get(t, Admin(NewHealth(0, nil), registry, Discard()), http.MethodGet, "/metrics")
	if response.Code != http.StatusOK || !strings.Contains(response.Body.String(), "edge_workers_build_info") {
		t.Errorf("status %d: %s", response.Code, response.Body)
	}
}

func TestRegistriesAreApart(t *testing.T) {
	t.Parallel()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_workers_test_total"})
	for _, binary := range []string{"api", "deployer"} {
		err := NewRegistry(binary).Register(counter)
		if err != nil {
			t.Errorf("%s: %v", binary, err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	revision := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}}
	cases := []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{Settings: revision, Main: debug.Module{Version: "v1.2.3"}}, "abc"},
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "unknown"},
		{debug.BuildInfo{}, "unknown"},
	}
	for _, c := range cases {
		if got := versionOf(&c.info); got != c.want {
			t.Errorf("version %q, want %q", got, c.want)
		}
	}
	if Version() == "" {
		t.Error("no version")
	}
}
