package scriptstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
)

const name = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func release(tag string) Release {
	return Release{
		MainModule: provider.MainModule, CompatibilityDate: "2026-11-01", CompatibilityFlags: []string{},
		Bindings: provider.Bindings(), Exports: provider.Exports(), Tags: []string{tag},
	}
}

func put(t *testing.T, s *Store, tag string) string {
	t.Helper()
	version, err := s.Stage(name, release(tag), []byte("bundle "+tag), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Activate(name, version, time.Now()); err != nil {
		t.Fatal(err)
	}
	return version
}

func check(t *testing.T, s *Store, tag string) {
	t.Helper()
	script, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := s.Bundle(name, script.Version, script.Release)
	if err != nil || string(bundle) != "bundle "+tag || script.Release.Tags[0] != tag {
		t.Fatalf("got %q with tags %v (%v), want %s", bundle, script.Release.Tags, err, tag)
	}
}

func TestStageActivateRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Get(name); !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	first := put(t, s, "one")
	check(t, s, "one")
	before, _ := s.Get(name)
	if again, err := s.Stage(name, release("one"), []byte("bundle one"), time.Now()); err != nil || again != first {
		t.Fatalf("equal version: %s %v", again, err)
	}
	second, err := s.Stage(name, release("two"), []byte("bundle two"), time.Now())
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	check(t, s, "one") // staging changes nothing
	if err := s.Activate(name, second, time.Now()); err != nil {
		t.Fatal(err)
	}
	check(t, s, "two")
	after, _ := s.Get(name)
	if after.UniqueKey != before.UniqueKey || !after.CreatedOn.Equal(before.CreatedOn) {
		t.Fatal("the identity of the storage changed")
	}
	if err := s.Prune(name, second); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "scripts", name, "versions")); len(left) != 1 {
		t.Fatalf("%d versions are left", len(left))
	}
	if names, err := s.List(); err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := s.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(name); !errors.Is(err, ErrNotFound) {
		t.Fatalf("after removal: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Fatal("the removed script is left in tmp")
	}
	if _, err := s.Get("../" + name); !errors.Is(err, ErrNotFound) {
		t.Fatalf("path as a name: %v", err)
	}
	if _, err := s.Stage("../x", release("x"), nil, time.Now()); err == nil {
		t.Fatal("a path was taken as a name")
	}
}

// What an interrupted run leaves is swept; stored data never is.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	old := put(t, s, "one")
	put(t, s, "two")
	halfNew := strings.Replace(name, "dw-0", "dw-1", 1)
	if _, err := s.Stage(halfNew, release("x"), []byte("x"), time.Now()); err != nil {
		t.Fatal(err)
	}
	withData := strings.Replace(name, "dw-0", "dw-2", 1)
	if _, err := s.Stage(withData, release("x"), []byte("x"), time.Now()); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(s.StorageDir(withData), "data.sqlite")
	for _, file := range []string{data, filepath.Join(dir, "tmp", "version-1"), filepath.Join(dir, "scripts", name, "current.json"+partialSuffix), filepath.Join(dir, "scripts", "stranger")} {
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	check(t, s, "two")
	for path, want := range map[string]bool{
		filepath.Join("scripts", name, "versions", old):              false,
		filepath.Join("scripts", halfNew):                            false,
		filepath.Join("tmp", "version-1"):                            false,
		filepath.Join("scripts", name, "current.json"+partialSuffix): false,
		filepath.Join("scripts", "stranger"):                         true,
		filepath.Join("scripts", withData, "storage", "data.sqlite"): true,
	} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s: present should be %v", path, want)
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	version := put(t, s, "one")
	script, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "scripts", name)
	for file, content := range map[string]string{"versions/" + version + "/index.mjs": "other", "current.json": `{"version":"../../x"}`, "script.json": "{"} {
		path := filepath.Join(folder, file)
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, getErr := s.Get(name)
		_, bundleErr := s.Bundle(name, version, script.Release)
		if !errors.Is(errors.Join(getErr, bundleErr), ErrDamaged) {
			t.Errorf("%s: %v, %v", file, getErr, bundleErr)
		}
		if err := os.WriteFile(path, kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check(t, s, "one")
	if err := os.WriteFile(filepath.Join(folder, "versions", version, "index.mjs"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, s, "one") // the same release again mends it
	check(t, s, "one")
}

func TestOneOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrLocked) {
		t.Fatalf("second owner: %v", err)
	}
	put(t, s, "one")
	lock, err := s.LockStorage(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.LockStorage(ctx, name); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err = s.LockStorage(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Close()
}

// TestKilledWriter kills a process that replaces releases without pause, many
// times. Each time the folder opens and holds one whole release.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("SCRIPTSTORE_KILLED_WRITER"); dir != "" {
		writeForever(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	last := 0
	for range 15 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$")
		child.Env = append(os.Environ(), "SCRIPTSTORE_KILLED_WRITER="+dir, fmt.Sprintf("SCRIPTSTORE_FROM=%d", last))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acked := readAcks(out, 5)
		_ = child.Process.Kill()
		acked = append(acked, readAcks(out, 1<<20)...)
		_ = child.Wait()
		s, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		script, err := s.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Bundle(name, script.Version, script.Release); err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(script.Release.Tags[0], "%d", &n); err != nil {
			t.Fatal(err)
		}
		if highest := acked[len(acked)-1]; n != highest && n != highest+1 {
			t.Fatalf("release %d is current, %d was the last acknowledged", n, highest)
		}
		last = n + 1
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func writeForever(t *testing.T, dir string) {
	var n int
	if _, err := fmt.Sscanf(os.Getenv("SCRIPTSTORE_FROM"), "%d", &n); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for ; ; n++ {
		version, err := s.Stage(name, release(fmt.Sprint(n)), bytes.Repeat([]byte(fmt.Sprint(n)), 10000), time.Now())
		if err == nil {
			err = s.Activate(name, version, time.Now())
		}
		if err == nil {
			err = s.Prune(name, version)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("ack %d\n", n)
	}
}

func readAcks(from interface{ Read([]byte) (int, error) }, most int) []int {
	acks := []int{}
	var n int
	for len(acks) < most {
		if _, err := fmt.Fscanf(from, "ack %d\n", &n); err != nil {
			return acks
		}
		acks = append(acks, n)
	}
	return acks
}
