package artifact_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

func openDirectory(t testing.TB, folder string) *artifact.Directory {
	t.Helper()
	directory, err := artifact.NewDirectory(folder)
	if err != nil {
		t.Fatalf("open directory store: %v", err)
	}
	t.Cleanup(func() { _ = directory.Close() })
	return directory
}

func TestDirectoryConforms(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t testing.TB) artifact.Backend { return openDirectory(t, t.TempDir()) })
}

func TestDirectoryKeepsObjectsAcrossReopening(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	object := artifacttest.NewObject(artifact.Project, "id", []byte("content"))
	first := openDirectory(t, folder)
	if err := artifact.NewFenced(first).Put(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	key, _ := object.Key()
	got, err := artifact.NewFenced(openDirectory(t, folder)).Get(t.Context(), object.Tenant, object.Kind, key, 0)
	if err != nil || string(got) != "content" {
		t.Errorf("after reopening: %q, %v", got, err)
	}
}

func TestDirectoryRemovesHalfWrittenObjects(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	left := filepath.Join(folder, "tmp", "left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "content"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	openDirectory(t, folder)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half-written object is still there: %v", err)
	}
}

// A deletion that fails because of something else than a missing object says
// so: a sweep that believed it would forget the object.
func TestDirectoryDeleteIsNotTakenForDone(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store := artifact.NewFenced(openDirectory(t, folder))
	object := artifacttest.NewObject(artifact.Project, "id", []byte("content"))
	key, err := object.Key()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	staging := filepath.Join(folder, "tmp")
	if err := os.RemoveAll(staging); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), object.Tenant, object.Kind, key); !errors.Is(err, artifact.ErrUnavailable) {
		t.Errorf("nothing was deleted and the answer was %v", err)
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), object.Tenant, object.Kind, key); err != nil {
		t.Error(err)
	}
}

func TestDirectoryRefusesLinks(t *testing.T) {
	t.Parallel()
	object := artifacttest.NewObject(artifact.Project, "id", []byte("content"))
	key, _ := object.Key()
	levels := map[string]string{
		"root folder":   "edge-workers",
		"tenant folder": filepath.Dir(filepath.Dir(key)),
		"object folder": key,
		"content file":  key + "/content",
		"attributes":    key + "/attributes.json",
	}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, outside := t.TempDir(), t.TempDir()
			store := artifact.NewFenced(openDirectory(t, folder))
			if err := store.Put(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Get(t.Context(), object.Tenant, object.Kind, key, 0); err != nil {
				t.Fatalf("before the link: %v", err)
			}
			moved := filepath.Join(outside, "moved")
			if err := os.Rename(filepath.Join(folder, level), moved); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(moved, filepath.Join(folder, level)); err != nil {
				t.Fatal(err)
			}
			if content, err := store.Get(t.Context(), object.Tenant, object.Kind, key, 0); err == nil {
				t.Errorf("read %q through a link", content)
			}
			if err := store.Put(t.Context(), object); err == nil {
				t.Error("put went through a link")
			}
			_ = store.Delete(t.Context(), object.Tenant, object.Kind, key)
			if _, err := os.Stat(moved); err != nil {
				t.Errorf("what the link points to is gone: %v", err)
			}
		})
	}
}

func TestDirectoryRefusesRawKeys(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	directory := openDirectory(t, filepath.Join(folder, "store"))
	for _, key := range []string{"", ".", "..", "../escape", "/etc/passwd", "tmp/x", "edge-workers/../../escape", "edge-workers//x"} {
		err := directory.Put(t.Context(), key, []byte("x"), artifact.Attributes{})
		if !errors.Is(err, artifact.ErrInvalid) {
			t.Errorf("put %q: %v", key, err)
		}
		_, err = directory.Stat(t.Context(), key)
		if !errors.Is(err, artifact.ErrInvalid) {
			t.Errorf("stat %q: %v", key, err)
		}
		err = directory.Delete(t.Context(), key)
		if !errors.Is(err, artifact.ErrInvalid) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the store: %v, %v, want the store alone", entries, err)
	}
}

func TestDirectoryRefusesDamagedAttributes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store := artifact.NewFenced(openDirectory(t, folder))
	object := artifacttest.NewObject(artifact.Project, "id", []byte("content"))
	if err := store.Put(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	key, _ := object.Key()
	for _, damage := range []string{"", "{", strings.Repeat(" ", 5000)} {
		if err := os.WriteFile(filepath.Join(folder, key, "attributes.json"), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Get(t.Context(), object.Tenant, object.Kind, key, 0); err == nil {
			t.Errorf("attributes of %d bytes are accepted", len(damage))
		}
	}
}

const killedWriterFolder = "ARTIFACT_TEST_KILLED_WRITER"

// TestKilledWriter is the process that TestDirectorySurvivesKill kills: it
// stores objects without end and prints the id of each one that it stored.
func TestKilledWriter(t *testing.T) {
	folder := os.Getenv(killedWriterFolder)
	if folder == "" {
		return // this process is not the writer
	}
	store := artifact.NewFenced(openDirectory(t, folder))
	for i := 0; ; i++ {
		if err := store.Put(t.Context(), numbered(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(os.Stdout, "stored %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
}

func numbered(i int) artifact.Object {
	content := strings.Repeat(fmt.Sprintf("object %d\n", i), 2000)
	return artifacttest.NewObject(artifact.Bundle, fmt.Sprintf("id-%d", i), []byte(content))
}

func TestDirectorySurvivesKill(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writer := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$", "-test.v")
	writer.Env = append(os.Environ(), killedWriterFolder+"="+folder)
	output, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "stored ") {
			continue
		}
		acknowledged++
		if acknowledged == 20 {
			_ = writer.Process.Kill()
		}
	}
	_ = writer.Wait()
	if acknowledged < 20 {
		t.Fatalf("the writer stored %d objects before it ended", acknowledged)
	}
	store := artifact.NewFenced(openDirectory(t, folder))
	for i := range acknowledged + 2 {
		object := numbered(i)
		key, _ := object.Key()
		content, err := store.Get(t.Context(), object.Tenant, object.Kind, key, 0)
		if i >= acknowledged && errors.Is(err, artifact.ErrNotFound) {
			continue // never acknowledged: absent is right, and so is whole
		}
		if err != nil {
			t.Fatalf("object %d of %d acknowledged ones: %v", i, acknowledged, err)
		}
		if err := artifact.Verify(content, int64(len(object.Content)), object.Digest); err != nil {
			t.Errorf("object %d: %v", i, err)
		}
	}
}
