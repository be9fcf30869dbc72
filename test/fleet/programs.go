package fleet

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
)

// root is the module's, from this package's folder.
const root = "../.."

// module is where the programs are, from anywhere in it.
const module = "github.com/teamsync/edge-workers/cmd/"

// build is what a folder of programs is built for.
type build struct {
	origin string // of the artifact service
	commit string // empty is this tree
}

var builds struct {
	mu      sync.Mutex
	folders map[build]string
}

// programs builds the programs of a commit, once for each artifact service, and
// gives their folder. Without a commit they are this tree's, with the edge host.
func programs(t TB, origin, commit string) string {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	b := build{origin: origin, commit: commit}
	if folder := builds.folders[b]; folder != "" {
		return folder
	}
	source, commands := "", []string{module + "api", module + "deployer", module + "reconciler"}
	if commit == "" {
		commands = append(commands, module+"edgehost")
	} else {
		source = checkout(t, commit)
	}
	if builds.folders == nil {
		builds.folders = map[build]string{}
	}
	builds.folders[b] = compile(t, source, origin, commands)
	return builds.folders[b]
}

// compile does without the paths of this machine, so that what two commits have
// in common is compiled once.
func compile(t TB, source, origin string, commands []string) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "ew-programs-")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"build", "-trimpath", "-buildvcs=false", "-ldflags", "-X github.com/teamsync/edge-workers/pkg/config.artifactsOrigin=" + origin, "-o", folder + "/",
	}, commands...)
	cmd := exec.CommandContext(t.Context(), "go", args...) // #nosec G204 -- the test's own words
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(folder)
		t.Fatalf("build: %v\n%s", err, text)
	}
	return folder
}

// checkout lays the files of a commit into a folder, as this clone has them.
func checkout(t TB, commit string) string {
	t.Helper()
	folder := t.TempDir()
	// The clone may belong to another user, as it does under sudo.
	archive := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "archive", "--format=tar", commit) // #nosec G204 -- a commit of the test's
	archive.Dir = root
	var said bytes.Buffer
	archive.Stderr = &said
	files, err := archive.Output()
	if err != nil {
		t.Fatalf("the commit %s is not in this clone: %v\n%sThis test builds an older release from the history. In a shallow clone run: git fetch --unshallow", commit, err, said.String())
	}
	extract := exec.CommandContext(t.Context(), "tar", "-x", "-C", folder) // #nosec G204 -- as above
	extract.Stdin = bytes.NewReader(files)
	text, err := extract.CombinedOutput()
	if err != nil {
		t.Fatalf("unpack the commit %s: %v\n%s", commit, err, text)
	}
	return folder
}

// RemovePrograms deletes what was built.
func RemovePrograms() {
	builds.mu.Lock()
	defer builds.mu.Unlock()
	for _, folder := range builds.folders {
		_ = os.RemoveAll(folder)
	}
	builds.folders = nil
}
