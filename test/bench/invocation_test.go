package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/test/figures"
	"github.com/teamsync/edge-workers/test/invoke"
)

// The bounds of an authorised invocation, which the benchmark prints and does
// not enforce: what else runs on the machine is not its to judge.
const (
	boundMore       = 1.0 // ms that the way through the gateway may take more
	boundThroughput = 0.7 // of what the Worker does without the gateway
)

const (
	callers = 16  // at once, for the throughput
	round   = 320 // calls of one measurement of it
	rounds  = 9
)

// BenchmarkInvocation calls an operation through the API's HTTP server, with a
// member's token and with an API key, and in turns with it sends the same
// signed request to workerd's own socket. "ms/more" is the median difference of
// a call, "throughput" what sixteen callers get done through the gateway, as a
// part of what they get done without it.
func BenchmarkInvocation(b *testing.B) {
	s := invoke.Start(b, nil)
	w := s.Deploy(map[string]string{
		"worker.json": `{"schema_version":1,"name":"ping","language":"javascript","entry":"index.js","compatibility_date":"2026-01-01",
			"operations":[{"id":"ping","method":"POST","path":"/ping"}]}`,
		"index.js": "export default { ping: (input) => ({ pong: input.n }) };\n",
	})
	key := ("ewk_" + uuid.NewString() + uuid.NewString())[:47]
	w.Key(canonical.SHA256([]byte(key)))
	w.Policy("api_key")
	for _, c := range []struct{ name, header, value string }{
		{"member", "Authorization", "Bearer " + s.Token(w.Tenant)}, {"key", "X-Api-Key", key},
	} {
		b.Run(c.name, func(b *testing.B) {
			compare(b, newGateway(s.URL+"/w/"+w.ScriptName+"/ping", http.Header{c.header: {c.value}}), newDirect(b, w))
		})
	}
}

const input = `{"n":1}`

// way is one way to the Worker.
type way struct {
	client *http.Client
	url    string
	header func() http.Header
}

func (w *way) call(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader([]byte(input)))
	if err != nil {
		return err
	}
	request.Header = w.header()
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || string(body) != `{"pong":1}` {
		return fmt.Errorf("%d %s: %w", response.StatusCode, body, err)
	}
	return nil
}

func newGateway(url string, header http.Header) *way {
	header.Set("Content-Type", "application/json")
	return &way{url: url, header: func() http.Header { return header }, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}}
}

// direct is the way to workerd's socket, with assertions that were signed
// beforehand: each is good for one call.
type direct struct {
	way
	worker *invoke.Worker
	signed []string
	next   atomic.Int64
}

func newDirect(b *testing.B, w *invoke.Worker) *direct {
	b.Helper()
	socket := findSocket(b, w.HostFolder)
	d := &direct{worker: w}
	d.url = "http://worker/__invoke/ping"
	d.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: callers,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.header = func() http.Header {
		return http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + d.signed[d.next.Add(1)-1]}}
	}
	return d
}

// prepare signs for n calls, to be made within an assertion's life.
func (d *direct) prepare(n int) error {
	d.signed, d.next = make([]string, n), atomic.Int64{}
	for i := range d.signed {
		var err error
		d.signed[i], err = d.worker.Signer.SignInvoke(control.Assertion{
			Script: d.worker.ScriptName, Subject: "user:1", Operation: "ping", Generation: d.worker.Generation, Body: []byte(input),
		}, control.Caller{
			Kind: "member", Subject: "user:1", CompanyID: d.worker.Tenant.CompanyID, DepartmentID: d.worker.Tenant.DepartmentID,
			RequestID: uuid.NewString(), ClientAddress: "127.0.0.1",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findSocket finds the socket of the one running Worker.
func findSocket(b *testing.B, folder string) string {
	b.Helper()
	var found []string
	short := filepath.Join(os.TempDir(), "ew-"+canonical.SHA256([]byte(folder))[:12]) // where paths would be too long
	for _, dir := range []string{folder, short} {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "m.sock" {
				found = append(found, path)
			}
			return nil
		})
	}
	if len(found) != 1 {
		b.Fatalf("%d sockets of workerd", len(found))
	}
	return found[0]
}

func compare(b *testing.B, through *way, straight *direct) {
	b.Helper()
	ctx := b.Context()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	timed := func(w *way) time.Duration {
		began := time.Now()
		must(w.call(ctx))
		return time.Since(began)
	}
	var with, without, more []time.Duration
	for b.Loop() {
		must(straight.prepare(1))
		without = append(without, timed(&straight.way))
		with = append(with, timed(through))
		more = append(more, with[len(with)-1]-without[len(without)-1])
	}
	var ratios []float64
	for range rounds {
		must(straight.prepare(round))
		alone := crowd(ctx, b, &straight.way)
		ratios = append(ratios, alone.Seconds()/crowd(ctx, b, through).Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(milliseconds(figures.Median(without)), "ms/straight")
	b.ReportMetric(milliseconds(figures.Median(with)), "ms/gateway")
	b.ReportMetric(milliseconds(figures.Median(more)), "ms/more")
	b.ReportMetric(ratios[len(ratios)/2], "throughput")
	b.ReportMetric(0, "ns/op") // it would be the sum of both ways
	b.Logf("bounds: ms/more at most %.1f, throughput at least %.1f", boundMore, boundThroughput)
}

// crowd makes one round of calls with all callers at once.
func crowd(ctx context.Context, b *testing.B, w *way) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(round)
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				err := w.call(ctx)
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
