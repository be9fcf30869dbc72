package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	gofailModule  = "go.etcd.io/gofail"
	failpointPath = "github.com/teamsync/edge-workers/test/faults/failpoint"
)

// hook gives the markers of a package the name that they call. Nothing of the
// production code imports it.
const hook = `package %s

import point "` + failpointPath + `"

var failpoint point.Set

var _ = failpoint
`

// Guard is one guard of the production code that a broken node lacks.
type Guard struct {
	Name string
	File string // from the module's root
	// Code is replaced by With in the broken node, where the two differ only
	// if the process is told to lack this guard.
	Code, With string
}

// Build builds the node with all failpoints in dir and returns its path. It
// changes nothing in the module's tree: the rewritten files lie in dir, and
// the compiler is told to read them in the place of the originals. Guards, if
// any, can be switched off in the binary.
func Build(ctx context.Context, root, dir string, guards ...Guard) (string, error) {
	b := builder{ctx: ctx, root: root, dir: dir, overlay: map[string]string{}}
	markers, err := Markers(root)
	if err != nil {
		return "", err
	}
	files := map[string]bool{}
	for path := range markers {
		files[path] = true
	}
	for _, guard := range guards {
		files[filepath.Join(root, guard.File)] = true
	}
	for path := range files {
		err = b.rewrite(path, guards)
		if err != nil {
			return "", err
		}
	}
	return b.build()
}

type builder struct {
	ctx       context.Context
	root, dir string
	overlay   map[string]string // original → replacement
	gofail    string
}

// rewrite puts the file's copy with its failpoints enabled into the overlay,
// and the files that the copy needs beside it.
func (b *builder) rewrite(path string, guards []Guard) error {
	code, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(code)
	relative, err := filepath.Rel(b.root, path)
	if err != nil {
		return err
	}
	for _, guard := range guards {
		if guard.File != filepath.ToSlash(relative) {
			continue
		}
		if strings.Count(text, guard.Code) != 1 {
			return fmt.Errorf("guard %s: %s has its code %d times", guard.Name, guard.File, strings.Count(text, guard.Code))
		}
		text = strings.Replace(text, guard.Code, guard.With, 1)
	}
	copied := filepath.Join(b.dir, relative)
	folder := filepath.Dir(copied)
	err = os.MkdirAll(folder, 0o700)
	if err != nil {
		return err
	}
	err = os.WriteFile(copied, []byte(text), 0o600) // #nosec G703 -- below the harness's own folder
	if err != nil {
		return err
	}
	err = b.enable(copied)
	if err != nil {
		return err
	}
	hooked := filepath.Join(folder, "failpoint_hook.go")
	err = os.WriteFile(hooked, fmt.Appendf(nil, hook, filepath.Base(folder)), 0o600)
	if err != nil {
		return err
	}
	original := filepath.Dir(path)
	b.overlay[path] = copied
	b.overlay[filepath.Join(original, filepath.Base(hooked))] = hooked
	bindings := strings.TrimSuffix(copied, ".go") + ".fail.go"
	_, err = os.Stat(bindings)
	if err == nil { // a file without failpoints has none
		b.overlay[filepath.Join(original, filepath.Base(bindings))] = bindings
	}
	return nil
}

// enable runs gofail, which is built once from its own module.
func (b *builder) enable(path string) error {
	if b.gofail == "" {
		b.gofail = filepath.Join(b.dir, "gofail")
		err := b.run(filepath.Join(b.root, "tools", "gofail"), "go", "build", "-o", b.gofail, gofailModule)
		if err != nil {
			return err
		}
	}
	return b.run(b.root, b.gofail, "enable", path)
}

// build compiles the node with gofail's runtime, which the module itself does
// not require, taken from the module of the tool.
func (b *builder) build() (string, error) {
	mod := filepath.Join(b.dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		own, err := os.ReadFile(filepath.Join(b.root, name))
		if err != nil {
			return "", err
		}
		if name == "go.sum" {
			tool, err := os.ReadFile(filepath.Join(b.root, "tools", "gofail", name))
			if err != nil {
				return "", err
			}
			own = append(own, tool...)
		}
		err = os.WriteFile(filepath.Join(b.dir, name), own, 0o600) // #nosec G703 -- in the harness's own folder
		if err != nil {
			return "", err
		}
	}
	version, err := b.gofailVersion()
	if err != nil {
		return "", err
	}
	err = b.run(b.root, "go", "mod", "edit", "-require="+gofailModule+"@"+version, mod)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": b.overlay})
	if err != nil {
		return "", err
	}
	overlay, node := filepath.Join(b.dir, "overlay.json"), filepath.Join(b.dir, "node")
	err = os.WriteFile(overlay, raw, 0o600)
	if err != nil {
		return "", err
	}
	return node, b.run(b.root, "go", "build", "-modfile="+mod, "-overlay="+overlay, "-o", node, "./test/faults/node")
}

func (b *builder) gofailVersion() (string, error) {
	list := exec.CommandContext(b.ctx, "go", "list", "-m", "-f", "{{.Version}}", gofailModule)
	list.Dir = filepath.Join(b.root, "tools", "gofail")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("read gofail's version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *builder) run(dir, name string, args ...string) error {
	command := exec.CommandContext(b.ctx, name, args...) // #nosec G204 -- the harness's own tools
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}
