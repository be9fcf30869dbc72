package devkit

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
)

func params(data string, log io.Writer) Params {
	return Params{Data: data, Addr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0", Log: observe.NewLogger(log, slog.LevelInfo)}
}

// up runs a system until the returned function is called, which gives what Run
// returned.
func up(t *testing.T, p Params) (Ready, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Ready, 1), make(chan error, 1)
	p.Ready = func(r Ready) error { ready <- r; return nil }
	go func() { ended <- Run(ctx, p) }()
	select {
	case r := <-ready:
		return r, func() error { cancel(); return <-ended }
	case err := <-ended:
		t.Fatalf("it ends at once: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("it does not come up")
	}
	cancel()
	return Ready{}, nil
}

func status(t *testing.T, url, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

// One call starts everything, says where it is, and takes it all down again;
// the second run finds the state of the first.
func TestRun(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	var log observetest.Log
	r, stop := up(t, params(data, &log))
	raw, err := os.ReadFile(filepath.Join(data, ReadyName))
	must(t, err)
	var written Ready
	must(t, json.Unmarshal(raw, &written))
	if written != r {
		t.Errorf("the ready file says %+v, the callback %+v", written, r)
	}
	info, err := os.Stat(filepath.Join(data, ReadyName))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the ready file has mode %v", info.Mode())
	}
	for url, want := range map[string]int{
		r.ConsoleURL: 200, r.APIURL + "/openapi.json": 200, r.MetricsURL: 200,
		strings.Replace(r.MetricsURL, "/metrics", "/readyz", 1): 200, strings.Replace(r.MetricsURL, "/metrics", "/healthz", 1): 200,
		r.APIURL + "/worker": 401,
	} {
		if got := status(t, url, ""); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
	if got := status(t, r.APIURL+"/worker/versions", r.ManagerToken); got != 200 {
		t.Errorf("manager: %d", got)
	}
	if got := status(t, r.APIURL+"/worker/versions", r.PlatformAdminToken); got != 403 {
		t.Errorf("platform admin: %d", got)
	}
	err = Run(t.Context(), params(data, io.Discard))
	if err == nil || !strings.Contains(err.Error(), "in use by another edgectl dev") {
		t.Errorf("a second system on the folder: %v", err)
	}
	if got := status(t, r.ConsoleURL, ""); got != 200 {
		t.Errorf("after a refused second start: %d", got)
	}
	must(t, stop())
	if _, err := os.Stat(filepath.Join(data, ReadyName)); !os.IsNotExist(err) {
		t.Errorf("the ready file after the end: %v", err)
	}
	for _, token := range []string{r.ManagerToken, r.CompanyAdminToken, r.PlatformAdminToken} {
		if strings.Contains(log.String(), token) {
			t.Error("the log holds a token")
		}
	}

	again, stop := up(t, params(data, io.Discard))
	if got := status(t, again.APIURL+"/worker/versions", r.ManagerToken); got != 200 {
		t.Errorf("an earlier run's token: %d", got)
	}
	must(t, stop())
}

// A start that fails says what to do, gives everything back, and leaves the
// folder usable.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	for name, change := range map[string]func(*Params){
		"is in use; choose another address": func(p *Params) { p.Addr = taken.Addr().String() },
		taken.Addr().String():               func(p *Params) { p.MetricsAddr = taken.Addr().String() },
		"missing-workerd":                   func(p *Params) { p.Workerd = filepath.Join(data, "missing-workerd") },
		"the caller's error":                func(p *Params) { p.Ready = func(Ready) error { return os.ErrDeadlineExceeded } },
	} {
		p := params(data, io.Discard)
		change(&p)
		err := Run(t.Context(), p)
		if err == nil || (name != "the caller's error" && !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(data, ReadyName)); !os.IsNotExist(err) {
			t.Errorf("%s: a ready file is left: %v", name, err)
		}
	}
	_, stop := up(t, params(data, io.Discard)) // the control
	must(t, stop())
}
