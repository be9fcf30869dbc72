package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// Docker is not needed for these tests, and no image is built by them: they
// check what can be known without.

func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, root+"/Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.Warnings) > 0 {
		t.Errorf("warnings: %v", parsed.Warnings)
	}
	var complaints []string
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		complaints = append(complaints, rule+": "+message)
	}})
	all, arguments, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if len(complaints) > 0 || len(arguments) > 0 {
		t.Errorf("the Dockerfile's linter says %v; global arguments: %v", complaints, arguments)
	}
	return all
}

func stage(t *testing.T, all []instructions.Stage, name string) instructions.Stage {
	t.Helper()
	at := slices.IndexFunc(all, func(s instructions.Stage) bool { return s.Name == name })
	if at < 0 {
		t.Fatalf("no stage %s", name)
	}
	return all[at]
}

// chain gives a stage's commands after those of the stages that it stands on,
// and the image at the bottom.
func chain(t *testing.T, all []instructions.Stage, name string) ([]instructions.Command, string) {
	t.Helper()
	s := stage(t, all, name)
	if slices.ContainsFunc(all, func(other instructions.Stage) bool { return other.Name == s.BaseName }) {
		below, base := chain(t, all, s.BaseName)
		return append(slices.Clone(below), s.Commands...), base
	}
	return s.Commands, s.BaseName
}

func commandsOf[T instructions.Command](commands []instructions.Command) []T {
	var found []T
	for _, command := range commands {
		one, ok := command.(T)
		if ok {
			found = append(found, one)
		}
	}
	return found
}

var targets = []string{"api", "deployer", "edgectl", "edgehost", "reconciler"}

// There is an image for each command and no other. It runs the program and
// nothing else, as the user that the chart and compose.yaml count on, on a base
// that is pinned by tag; it has no shell's commands to run when it is built.
func TestImages(t *testing.T) {
	t.Parallel()
	all := stages(t)
	entries, err := os.ReadDir(root + "/cmd")
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, entry := range entries {
		programs = append(programs, entry.Name())
	}
	if !slices.Equal(programs, targets) {
		t.Errorf("cmd has %v, the Dockerfile is for %v", programs, targets)
	}
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:[a-zA-Z0-9._-]+$`)
	for _, name := range targets {
		commands, base := chain(t, all, name)
		if !pinned.MatchString(base) || strings.HasSuffix(base, ":latest") {
			t.Errorf("%s stands on %s", name, base)
		}
		users := commandsOf[*instructions.UserCommand](commands)
		if len(users) == 0 || users[len(users)-1].User != "65532:65532" {
			t.Errorf("%s runs as %v", name, users)
		}
		if got := commandsOf[*instructions.RunCommand](commands); len(got) > 0 {
			t.Errorf("%s runs %v while it is built", name, got)
		}
		entry := commandsOf[*instructions.EntrypointCommand](commands)
		if len(entry) != 1 || entry[0].PrependShell || len(entry[0].CmdLine) != 1 || filepath.Base(entry[0].CmdLine[0]) != name {
			t.Fatalf("%s starts %v", name, entry)
		}
		taken := false
		for _, c := range commandsOf[*instructions.CopyCommand](commands) {
			taken = taken || (c.From == "build" && slices.Equal(c.SourcePaths, []string{"/out/" + name}) && c.DestPath == entry[0].CmdLine[0])
		}
		if !taken {
			t.Errorf("%s does not take its program from the build", name)
		}
		labels := map[string]string{}
		for _, l := range commandsOf[*instructions.LabelCommand](commands) {
			for _, pair := range l.Labels {
				labels[pair.Key] = strings.Trim(pair.Value, `"`)
			}
		}
		for _, key := range []string{"title", "vendor", "source", "licenses", "version"} {
			if labels["org.opencontainers.image."+key] == "" {
				t.Errorf("%s has no label %s", name, key)
			}
		}
	}
}

// The edge host's image has workerd beside the program, where it is looked for
// first, the authorities that its proxy trusts, and a folder that is its own.
func TestImageOfTheEdgeHost(t *testing.T) {
	t.Parallel()
	commands, base := chain(t, stages(t), "edgehost")
	if !strings.HasPrefix(base, "debian:") {
		t.Errorf("workerd needs glibc; the base is %s", base)
	}
	var found []string
	for _, c := range commandsOf[*instructions.CopyCommand](commands) {
		found = append(found, fmt.Sprintf("%s:%s %s %s", c.From, c.SourcePaths[0], c.DestPath, c.Chown))
	}
	for _, want := range []string{
		"workerd:/out/workerd /usr/local/bin/workerd ", "build:/out/edgehost /usr/local/bin/edgehost ",
		"build:/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt ", "workerd:/out/data /var/lib/edge-host 65532:65532",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("no %q among %q", want, found)
		}
	}
	// The version is that of the lock file, which the program was written for.
	lock := read(t, root+"/tools/npm/package-lock.json")
	source := regexp.MustCompile(`const Version = "([0-9.]+)"`).FindStringSubmatch(read(t, root+"/pkg/edgehost/workerd/find.go"))
	if source == nil || !strings.Contains(lock, `"version": "`+source[1]+`"`) {
		t.Errorf("the program is for workerd %v", source)
	}
}

// copied gives what a stage copies from the repository: each source exists and is not left out by .dockerignore.
func copied(t *testing.T, name string) []string {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, root+"/.dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{".git/config", ".cache/x", "compose/keys/control.pem", ".edge-workers/keys/control.pem", "tools/npm/node_modules/workerd/x", "pkg/builder/real_test.go"} {
		if left, err := ignored.MatchesOrParentMatches(secret); err != nil || !left {
			t.Errorf("%s is sent to the builder: %v", secret, err)
		}
	}
	var found []string
	for _, c := range commandsOf[*instructions.CopyCommand](stage(t, stages(t), name).Commands) {
		if c.From != "" {
			continue
		}
		for _, source := range c.SourcePaths {
			if _, err := os.Stat(filepath.Join(root, source)); err != nil {
				t.Error(err)
			}
			if left, err := ignored.MatchesOrParentMatches(source); err != nil || left {
				t.Errorf("%s is copied and left out: %v", source, err)
			}
			found = append(found, source)
		}
	}
	return found
}

// What the build stage copies is enough: the programs build from it alone, with
// the very flags of the Makefile.
func TestImageBuildsFromItsContext(t *testing.T) {
	t.Parallel()
	if got := copied(t, "workerd"); !slices.Equal(got, []string{"tools/npm/package.json", "tools/npm/package-lock.json"}) {
		t.Errorf("workerd is installed from %v", got)
	}
	folder := t.TempDir()
	for _, source := range copied(t, "build") {
		info, err := os.Stat(filepath.Join(root, source))
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(filepath.Join(folder, source), os.DirFS(filepath.Join(root, source)))
		} else {
			err = os.WriteFile(filepath.Join(folder, source), []byte(read(t, filepath.Join(root, source))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runs := commandsOf[*instructions.RunCommand](stage(t, stages(t), "build").Commands)
	script := runs[len(runs)-1].CmdLine[0]
	for _, flag := range []string{"-trimpath", "-X github.com/teamsync/edge-workers/pkg/observe.version=", "./cmd/..."} {
		if !strings.Contains(script, flag) || !strings.Contains(read(t, root+"/Makefile"), flag) {
			t.Errorf("the Dockerfile or the Makefile builds without %s", flag)
		}
	}
	out := filepath.Join(folder, "out")
	build := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(script, "/out/", out+"/"))
	build.Dir = folder
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "TARGETOS=", "TARGETARCH=", "VERSION=v9.8.7")
	text, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range targets {
		if name == "edgectl" { // it has no version of its own to tell
			continue
		}
		said, err := exec.CommandContext(t.Context(), filepath.Join(out, name), "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(said), "v9.8.7") {
			t.Errorf("%s: %s, %v", name, said, err)
		}
	}
}
