package devkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// One process for a folder; the lock goes with its holder.
func TestLockFolder(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "a", "b")
	lock, err := lockFolder(data)
	must(t, err)
	_, err = lockFolder(data)
	if err == nil || !strings.Contains(err.Error(), data+" is in use by another edgectl dev") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a second lock: %v", err)
	}
	lock.release()
	again, err := lockFolder(data)
	must(t, err)
	again.release()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := lockFolder(file); err == nil {
		t.Error("a file is no data folder")
	}
}

// Keys are made once, are their owner's alone, and a start that a crash broke
// off is no obstacle to the next.
func TestKeys(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "keys")
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "auth.pem.new"), []byte("-----BEGIN PRI"), 0o600))
	first, err := loadKeys(folder)
	must(t, err)
	if len(first.hostToken) != 64 || len(first.hostIdentity) != 64 || first.hostToken == first.hostIdentity {
		t.Errorf("token and identity have %d and %d characters", len(first.hostToken), len(first.hostIdentity))
	}
	texts := read(t, folder)
	second, err := loadKeys(folder)
	must(t, err)
	if second != first {
		t.Error("the second start has other keys")
	}
	for name, text := range read(t, folder) {
		if texts[name] != text {
			t.Errorf("%s has changed", name)
		}
	}
	if len(texts) != 4 {
		t.Errorf("the folder holds %d files", len(texts))
	}
	other, err := loadKeys(filepath.Join(t.TempDir(), "keys"))
	must(t, err)
	if other.hostToken == first.hostToken {
		t.Error("two folders share a token")
	}
	must(t, os.WriteFile(first.controlFile, []byte("no key"), 0o600))
	if _, err := loadKeys(folder); err == nil {
		t.Error("a damaged key is replaced without a word")
	}
}

// read gives the folder's files, which only their owner may read.
func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
		raw, err := os.ReadFile(filepath.Join(folder, e.Name()))
		must(t, err)
		out[e.Name()] = string(raw)
	}
	info, err := os.Stat(folder)
	must(t, err)
	if info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the folder has mode %v", info.Mode())
	}
	return out
}

// The in-process Redis takes no stranger and expires keys by the clock, which
// miniredis does not do by itself (D2).
func TestRedis(t *testing.T) {
	t.Parallel()
	server, err := startRedis(t.Context())
	must(t, err)
	defer server.close()
	options, err := redis.ParseURL(server.url)
	must(t, err)
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	must(t, client.Set(t.Context(), "short", "x", 300*time.Millisecond).Err())
	must(t, client.Set(t.Context(), "long", "x", time.Hour).Err())
	for deadline := time.Now().Add(30 * time.Second); client.Exists(t.Context(), "short").Val() == 1; <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the key never expires")
		}
	}
	if client.Exists(t.Context(), "long").Val() != 1 {
		t.Error("a key expired too early")
	}
	options.Password = ""
	stranger := redis.NewClient(options)
	defer func() { _ = stranger.Close() }()
	if stranger.Ping(t.Context()).Err() == nil {
		t.Error("a stranger may use it")
	}
}
