package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// documentedAPI is the address that `make dev` listens on and that the
// documents use; the tests put that of their own system in its place.
const documentedAPI = "http://127.0.0.1:8787"

// reader is a folder like the repository of someone who reads the documents:
// bin/ with the built commands, examples/, and a running system.
type reader struct {
	folder string
	ready  devkit.Ready
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{folder: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(r.folder, "bin")+"/", "./cmd/...")
	build.Dir = root
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("build the commands: %v\n%s", err, out)
	}
	err = os.CopyFS(filepath.Join(r.folder, "examples"), os.DirFS(root+"/examples"))
	if err != nil {
		t.Fatal(err)
	}
	r.start(t)
	return r
}

// start runs `edgectl dev`, which says with its JSON that all is up.
func (r *reader) start(t *testing.T) {
	t.Helper()
	binary, err := workerd.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dev := exec.CommandContext(t.Context(), filepath.Join(r.folder, "bin", "edgectl"), "dev", "--json", "--addr", "127.0.0.1:0", "--workerd", binary)
	dev.Dir, dev.Stderr = r.folder, t.Output()
	dev.Env = environment()
	dev.Cancel = func() error { return dev.Process.Signal(syscall.SIGTERM) }
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	err = json.NewDecoder(out).Decode(&r.ready)
	if err != nil {
		t.Fatalf("the system did not start: %v, %v", err, dev.Wait())
	}
	t.Cleanup(func() { // the test's context has ended: the system is stopping
		_ = dev.Wait() // it reports the cancelled context
		if code := dev.ProcessState.ExitCode(); code != 0 {
			t.Errorf("edgectl dev ended with %d after SIGTERM", code)
		}
	})
}

// environment is this process's without what edgectl would heed.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "EDGE_WORKERS_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// run runs a block as its reader would, and gives what it printed.
func (r *reader) run(t *testing.T, script string) (string, error) {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(script, documentedAPI, r.ready.APIURL))
	shell.Dir, shell.Env = r.folder, environment()
	out, err := shell.CombinedOutput()
	return string(out), err
}

// The documents' commands do what the documents say, one after the other, as
// somebody does who reads them from the README on.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	_, err := r.run(t, "bin/edgectl no-such-command") // the positive control
	if err == nil {
		t.Fatal("a wrong command counts as right")
	}
	ran := map[string]int{}
	for _, d := range documents(t) {
		for _, b := range blocks(d.text) {
			out, err := r.run(t, b.script)
			if err != nil {
				t.Fatalf("%s:%d: %v\n%s\n%s", d.name, b.line, err, b.script, out)
			}
			for _, shown := range b.shows {
				if !strings.Contains(out, shown) {
					t.Errorf("%s:%d: the output has no %q\n%s", d.name, b.line, shown, out)
				}
			}
			ran[d.name]++
		}
	}
	if ran["README.md"] < 3 || ran["docs/operations.md"] < 2 {
		t.Errorf("blocks that were run: %v", ran)
	}
}
