package edgehost

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A host that is killed takes its Workers with it, and the next host on the
// folder serves the same release with the same data.
func TestKilledHost(t *testing.T) {
	if dir := os.Getenv("EDGEHOST_KILLED_HOST"); dir != "" {
		serveUntilKilled(t, dir)
		return
	}
	t.Parallel()
	dir, name := t.TempDir(), scriptName(70)
	first := openRig(t, dir, nil)
	first.deploy(name, bundle("one"))
	first.stop()
	for round := 1; round <= 2; round++ {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledHost$")
		child.Env = append(os.Environ(), "EDGEHOST_KILLED_HOST="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		count, pid := readReport(t, out)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if count != strconv.Itoa(round*2-1) {
			t.Fatalf("round %d: the child counted %s", round, count)
		}
		again := openRig(t, dir, nil)
		again.wantText(name, "count", strconv.Itoa(round*2))
		if runtime.GOOS == "linux" {
			eventually(t, func() bool { return syscall.Kill(pid, 0) != nil })
		} else {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		again.stop()
	}
}

// readReport returns what the child counted and the pid of its Worker.
func readReport(t *testing.T, out io.Reader) (string, int) {
	t.Helper()
	var count string
	var pid int
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "report %s %d", &count, &pid); err == nil {
			return count, pid
		}
	}
	t.Fatal("the child did not report")
	return "", 0
}

func serveUntilKilled(t *testing.T, dir string) {
	host, err := New(Params{DataDir: dir, Workerd: findWorkerd(t), Token: testToken, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/"+scriptName(70)+"/__invoke/count", strings.NewReader(""))
	host.DispatchHandler().ServeHTTP(answer, request)
	r := &rig{t: t, host: host}
	fmt.Printf("report %s %d\n", answer.Body.String(), r.instanceOf(scriptName(70)).server.PID())
	select {} // until it is killed
}

func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.MaxUploads = 1 })
	r.host.fleet.uploads <- struct{}{}
	a := r.put(scriptName(71), bundle("one"))
	wantCode(t, a, http.StatusTooManyRequests, "971")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	<-r.host.fleet.uploads
	r.deploy(scriptName(71), bundle("one"))
}
