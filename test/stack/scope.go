package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
)

// scope is to this program what testing.TB is to a test: what the fleet's parts
// are started in, and end with. Fatal ends the goroutine that try has started.
type scope struct {
	folder string
	ctx    context.Context //nolint:containedctx // as a test has it: its end kills what is left
	cancel context.CancelFunc

	mu   sync.Mutex
	undo []func()
	errs []error
}

func newScope(folder string) *scope {
	s := &scope{folder: folder}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// try does something that may end with Fatal, and gives what was wrong so far.
func (s *scope) try(do func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// close kills what is left and undoes what was done, the last first.
func (s *scope) close() {
	s.cancel()
	s.mu.Lock()
	undo := slices.Clone(s.undo)
	s.mu.Unlock()
	for _, do := range slices.Backward(undo) {
		do()
	}
}

func (s *scope) must(err error) {
	if err != nil {
		s.fail(err)
		runtime.Goexit()
	}
}

func (s *scope) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

func (s *scope) Helper() {}

func (s *scope) Context() context.Context { return s.ctx }

func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp(s.folder, "")
	s.must(err)
	return dir
}

func (s *scope) Cleanup(undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo = append(s.undo, undo)
}

func (s *scope) Error(args ...any)                 { s.fail(errors.New(fmt.Sprint(args...))) }
func (s *scope) Errorf(format string, args ...any) { s.fail(fmt.Errorf(format, args...)) }
func (s *scope) Fatal(args ...any)                 { s.must(errors.New(fmt.Sprint(args...))) }
func (s *scope) Fatalf(format string, args ...any) { s.must(fmt.Errorf(format, args...)) }
func (s *scope) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
