package workerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const good = `import { DurableObject } from "cloudflare:workers";
export class TeamSyncDepartmentStorage extends DurableObject {}
export default { fetch() { return new Response("ok") } };`

func newRunner(t *testing.T, change func(*Params)) *Runner {
	t.Helper()
	binary, err := Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ewt") // short: sockets are made in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := Params{Binary: binary, Logger: slog.New(slog.DiscardHandler), StartTimeout: 20 * time.Second, MaxHeapMiB: 64, MaxMemoryBytes: 400 << 20, ScratchDir: dir}
	if change != nil {
		change(&p)
	}
	r, err := NewRunner(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestValidate(t *testing.T) {
	t.Parallel()
	r := newRunner(t, nil)
	if err := r.Validate(t.Context(), []byte(good), "2026-11-01"); err != nil {
		t.Fatalf("good bundle: %v", err)
	}
	for what, c := range map[string]struct{ source, date, message string }{
		"heap":           {`const all = []; for (;;) all.push(Array.from({length: 1000}, (_, i) => ({ i })));`, "2026-11-01", "too much memory"},
		"buffers":        {`const all = []; for (;;) all.push(new Uint8Array(16 << 20).fill(1));`, "2026-11-01", "too much memory"},
		"no default":     {strings.Replace(good, "export default", "const unused =", 1), "2026-11-01", "the bundle has no default export with a fetch handler"},
		"no fetch":       {strings.Replace(good, "fetch()", "scheduled()", 1), "2026-11-01", "the bundle has no default export with a fetch handler"},
		"no class":       {strings.Replace(good, "export class", "class", 1), "2026-11-01", "the bundle does not export the Durable Object class TeamSyncDepartmentStorage"},
		"plain class":    {strings.Replace(good, "extends DurableObject", "", 1), "2026-11-01", "TeamSyncDepartmentStorage does not extend DurableObject"},
		"date too new":   {good, "2099-01-01", "compatibility date 2099-01-01 is newer than " + r.MaxCompatibilityDate()},
		"message folded": {`throw new Error("first\nsecond\u0007")`, "2026-11-01", "Uncaught Error: first second at index.mjs:1:7"},
	} {
		err := r.Validate(t.Context(), []byte(c.source), c.date)
		rejected, ok := errors.AsType[*Rejected](err)
		if !ok || !strings.Contains(rejected.Message, c.message) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	left, err := os.ReadDir(r.p.ScratchDir)
	if err != nil || len(left) != 0 {
		t.Fatalf("validations left %v %v", left, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Validate(ctx, []byte(good), "2026-11-01"); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: got %v", err)
	}
}

func TestServeAndStop(t *testing.T) {
	t.Parallel()
	r := newRunner(t, nil)
	run := filepath.Join(r.p.ScratchDir, "1")
	storage := t.TempDir()
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(storage, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	spec := Spec{Logger: slog.New(slog.DiscardHandler), Bundle: []byte(good), CompatibilityDate: "2026-11-01", UniqueKey: "ab12", StorageDir: storage, RunDir: run, Lock: lock}
	server, err := r.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Healthy(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if forced := server.Stop(20 * time.Second); forced {
		t.Error("SIGTERM was not enough for an idle process")
	}
	if err := server.Healthy(t.Context(), time.Second); err == nil {
		t.Error("a stopped process is healthy")
	}
	for what, change := range map[string]func(*Spec){
		"bundle that throws": func(s *Spec) { s.Bundle = []byte("throw 1") },
		"key with quotes":    func(s *Spec) { s.UniqueKey = `a"),(x="` },
		"date with quotes":   func(s *Spec) { s.CompatibilityDate = `2026-11-01",x="` },
		"path too long":      func(s *Spec) { s.RunDir = filepath.Join(run, strings.Repeat("x", 100)) },
		"no run folder":      func(s *Spec) { s.RunDir = filepath.Join(run, "missing") },
		"no storage":         func(s *Spec) { s.StorageDir = filepath.Join(run, "missing") },
	} {
		bad := spec
		change(&bad)
		_ = os.Remove(filepath.Join(run, "m.sock"))
		_ = os.Remove(filepath.Join(run, "h.sock"))
		if started, err := r.Start(t.Context(), bad); err == nil {
			started.Kill()
			t.Errorf("%s: started", what)
		}
	}
}

func TestForeignBinaryIsRefused(t *testing.T) {
	t.Parallel()
	binary, err := Find("")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "workerd")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho something else >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = NewRunner(t.Context(), Params{Binary: other, StartTimeout: 20 * time.Second, MaxHeapMiB: 64, ScratchDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "something else") {
		t.Fatalf("got %v", err)
	}
	if found, err := Find(binary); err != nil || found != binary {
		t.Fatalf("explicit path: %s %v", found, err)
	}
	if _, err := Find(filepath.Join(t.TempDir(), "missing")); err == nil || errors.Is(err, ErrNotFound) {
		t.Fatalf("explicit missing path: %v", err)
	}
}

func TestFindOrder(t *testing.T) {
	empty, path := t.TempDir(), t.TempDir()
	t.Chdir(empty)
	t.Setenv("PATH", path)
	if _, err := Find(""); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "make tools") {
		t.Fatalf("nothing installed: %v", err)
	}
	place := func(file string) string {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	tools := place(filepath.Join(empty, "tools/npm/node_modules/@cloudflare", platformPackage(), "bin/workerd"))
	deep := filepath.Join(empty, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	if found, err := Find(""); err != nil || !sameFile(found, tools) {
		t.Fatalf("in tools above: %s %v", found, err)
	}
	inPath := place(filepath.Join(path, "workerd"))
	if found, err := Find(""); err != nil || !sameFile(found, inPath) {
		t.Fatalf("PATH goes first: %s %v", found, err)
	}
}

func sameFile(a, b string) bool {
	ia, errA := os.Stat(a)
	ib, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	o := newOutput(slog.New(slog.NewJSONHandler(&text, nil)))
	var in bytes.Buffer
	for i := range 10 * linesPerSec {
		fmt.Fprintf(&in, `{"timestamp":1,"level":"warn","message":"line %d"}`+"\n", i)
	}
	o.read(&in)
	if n := strings.Count(text.String(), "\n"); n < linesPerSec || n > 3*linesPerSec {
		t.Fatalf("%d of %d lines were logged", n, 10*linesPerSec)
	}
	text.Reset()
	o = newOutput(slog.New(slog.NewJSONHandler(&text, nil)))
	o.read(strings.NewReader(strings.Repeat("x", 1<<20) + "\nshort\n"))
	if n := text.Len(); n > 2*maxLine || !strings.Contains(text.String(), `"line":"short"`) || !strings.Contains(text.String(), `"cut":true`) {
		t.Fatalf("%d bytes were logged for a line of 1 MiB", n)
	}
}

func TestAwaitListen(t *testing.T) {
	t.Parallel()
	both := `{"event":"listen","socket":"main","port":0}` + "\n" + `{"event":"listen","socket":"health","port":0}`
	for text, want := range map[string]bool{both: true, both[:44]: false, "": false, "not json": false} {
		if got := awaitListen(strings.NewReader(text), mainSocket, healthSocket); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The watchdog's question fails when nobody accepts the connection's request.
func TestHealthOfABlockedLoop(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ewt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "h.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, conn) // reads and never answers
		}
	}()
	if err := newServer(nil, dir).Healthy(t.Context(), 50*time.Millisecond); err == nil {
		t.Fatal("a silent service is healthy")
	}
}
