package project

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		target := filepath.Join(dir, filepath.FromSlash(path))
		err := os.MkdirAll(filepath.Dir(target), 0o755)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(target, []byte(content), 0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackIsDeterministicAndClean(t *testing.T) {
	t.Parallel()
	files := map[string]string{"worker.json": goodManifest, "index.js": "export default {}", "src/a.js": "1", "src/b/c.js": "2", "static/ü.txt": "3"}
	first, second := t.TempDir(), t.TempDir()
	write(t, first, files)
	write(t, second, files)
	// What is left out, and what differs between machines.
	write(t, second, map[string]string{".git/config": "x", ".env": "SECRET=1", "node_modules/p/index.js": "x", "src/node_modules/q.js": "x", "src/.hidden/x": "y"})
	err := os.Chmod(filepath.Join(second, "index.js"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Pack(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Pack(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the same files gave two archives")
	}
	p, err := Read(bytes.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(p.Files)); !slices.Equal(got, slices.Sorted(maps.Keys(files))) {
		t.Errorf("files %v", got)
	}
	write(t, second, map[string]string{"index.js": "export default 1"})
	c, err := Pack(second)
	if err != nil || bytes.Equal(a, c) {
		t.Errorf("another file gave the same archive: %v", err)
	}
}

func TestPackRefuses(t *testing.T) {
	t.Parallel()
	linked, big, large, empty := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write(t, linked, map[string]string{"a": "x"})
	err := os.Symlink("a", filepath.Join(linked, "b"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, big, map[string]string{"a": strings.Repeat("x", MaxUnpacked), "b": "x"})
	noise := make([]byte, MaxCompressed+1)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = byte(state >> 24)
	}
	write(t, large, map[string]string{"a": string(noise)})
	for dir, want := range map[string]string{
		linked: "b is not a regular file", big: "exceed 16 MiB", large: "more than 2 MiB", empty: "no files", filepath.Join(empty, "missing"): "no such file",
	} {
		_, err := Pack(dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestScaffold(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	err := Scaffold(dir, "My orders")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := Pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if p.Manifest.Name != "My orders" || !strings.Contains(string(p.Files["README.md"]), "# My orders\n") {
		t.Errorf("the name is not filled in: %q", p.Manifest.Name)
	}
	for _, path := range []string{"src/index.ts", "tsconfig.json", "types/edge-worker.d.ts", "types/worker.schema.json"} {
		if len(p.Files[path]) == 0 {
			t.Errorf("%s is missing", path)
		}
	}
	for path, content := range p.Files {
		if strings.Contains(string(content), "@NAME@") {
			t.Errorf("%s is not filled in", path)
		}
	}
}

func TestScaffoldOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"src/index.ts": "mine"})
	err := Scaffold(dir, "n")
	if err == nil || !strings.Contains(err.Error(), "src/index.ts exists already") {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d entries were left: %v", len(entries), err)
	}
	for _, name := range []string{"", `a"b`, "../x", strings.Repeat("n", 65), "a\n"} {
		if Scaffold(filepath.Join(t.TempDir(), "x"), name) == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
}
