package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/pkg/provider/providertest"
)

// host is what serves Workers, with a front before its script API that sees
// each upload and can hold one up.
type host struct {
	front    *providertest.Front
	api      *httptest.Server // the front's
	dispatch string
	process  *processtest.Process // nil for the model
	data     string

	mu      sync.Mutex
	uploads map[string]int // by the release's tag
}

// startHost starts a real edge host, as a process on workerd, with its state in
// data.
func startHost(t TB, data, programs string) *host {
	t.Helper()
	h := &host{data: data}
	h.start(t, programs, "127.0.0.1:0", "127.0.0.1:0")
	target, err := url.Parse(h.process.URL("script API"))
	if err != nil {
		t.Fatal(err)
	}
	h.dispatch = h.process.URL("dispatch")
	h.serve(t, httputil.NewSingleHostReverseProxy(target))
	return h
}

func (h *host) start(t TB, programs, api, dispatch string) {
	t.Helper()
	binary, err := workerd.Find("")
	if err != nil {
		t.Fatal(err)
	}
	h.process = processtest.StartProgram(t, filepath.Join(programs, "edgehost"), 3, map[string]string{
		"EDGE_WORKERS_HOST_DATA_DIR": h.data, "EDGE_WORKERS_HOST_API_TOKEN": processtest.HostToken, "EDGE_WORKERS_HOST_WORKERD": binary,
		"EDGE_WORKERS_HOST_API_ADDR": api, "EDGE_WORKERS_HOST_DISPATCH_ADDR": dispatch, "EDGE_WORKERS_HOST_METRICS_ADDR": "127.0.0.1:0",
		"EDGE_WORKERS_HOST_ISOLATION": "off",
	})
}

// restart kills the host and brings it back at its addresses.
func (h *host) restart(t TB, programs string) {
	t.Helper()
	h.process.Kill()
	address := func(server string) string { return strings.TrimPrefix(h.process.URL(server), "http://") }
	h.start(t, programs, address("script API"), address("dispatch"))
}

// startModel starts a model that keeps what is uploaded and answers for every
// release as a live Worker does. It runs nothing: it is there for many
// deployments.
func startModel(t TB) *host {
	t.Helper()
	live := httptest.NewServer(http.HandlerFunc(answerCommand))
	t.Cleanup(live.Close)
	h := &host{dispatch: live.URL}
	h.serve(t, providertest.NewServer())
	return h
}

func (h *host) serve(t TB, inner http.Handler) {
	t.Helper()
	h.uploads = map[string]int{}
	h.front = providertest.NewFront(inner)
	h.api = httptest.NewServer(h.front)
	t.Cleanup(func() { h.api.CloseClientConnections(); h.api.Close() })
}

// puts counts the uploads of each release so far.
func (h *host) puts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.front.Requests(http.MethodPut) {
		h.uploads[r.Tag()]++
	}
	return h.uploads
}

// gate holds an upload up: Arrived is closed once it is there, and Open lets it
// through.
type gate struct {
	arrived, opened chan struct{}
	once, release   sync.Once
}

// hold stops the next upload before the host has seen it, or, with after, once
// the host has it and before it has answered.
func (h *host) hold(t TB, after bool) *gate {
	t.Helper()
	g := &gate{arrived: make(chan struct{}), opened: make(chan struct{})}
	t.Cleanup(g.open) // a test that failed leaves nobody waiting
	h.front.Inject(providertest.OnUpload(func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		first := false
		g.once.Do(func() { first = true })
		if !first {
			return false
		}
		answer := httptest.NewRecorder()
		if after {
			inner.ServeHTTP(answer, r)
		}
		close(g.arrived)
		<-g.opened
		if !after {
			inner.ServeHTTP(answer, r)
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return true
	}), nil)
	return g
}

func (g *gate) open() { g.release.Do(func() { close(g.opened) }) }

// answerCommand answers the commands that a deployment sends to a live release.
func answerCommand(w http.ResponseWriter, r *http.Request) {
	var command struct {
		Operation         string `json:"operation"`
		ReleaseGeneration string `json:"releaseGeneration"`
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(raw, &command)
	}
	results := map[string]any{
		"access_policy.get": map[string]any{"policy": map[string]any{
			"api_key_configured": false, "api_key_last_four": nil, "ip_allowlist": []string{}, "mode": "private", "revision": 0, "updated_at": nil,
		}},
		"operation_settings.get": map[string]any{"settings": nil, "staged": nil},
	}
	result, known := results[command.Operation]
	if err != nil || !known {
		http.Error(w, "the model knows no such command", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"operation": command.Operation, "releaseGeneration": command.ReleaseGeneration, "result": result})
}
