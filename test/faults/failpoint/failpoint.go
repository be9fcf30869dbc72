// Package failpoint is what the failpoints of a node do when they are hit. The
// production code holds them as comments; the fault matrix builds a binary in
// which they are code (see test/faults), and only that binary contains this
// package together with a marker.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
)

// The values of a failpoint. Wire is followed by a medium and by what happens
// to it, such as "wire:database:cut-after".
const (
	Kill  = "kill"  // SIGKILL to the own process
	Stall = "stall" // SIGSTOP to the own process
	Error = "error" // the step fails with ErrFault
	Wire  = "wire"  // the medium's next message is tampered with
)

// ErrFault is the error of a step whose failpoint says Error.
var ErrFault = errors.New("fault injected")

// Set is the value that a marker calls. It has no state: a process has one
// fault, which happens once.
type Set struct{}

var (
	fired  atomic.Bool
	report = func(string) error { return nil }
	media  = map[string]func(how string) error{}
)

// OnHit sets who is told of the hit before its effect. Call it before the work
// begins.
func OnHit(tell func(value string) error) { report = tell }

// OnWire sets what tampers with a medium. Call it before the work begins.
func OnWire(medium string, tamper func(how string) error) { media[medium] = tamper }

// Of is Act for a marker that only sometimes stands for its step.
func (s Set) Of(applies bool, value string) error {
	if !applies {
		return nil
	}
	return s.Act(value)
}

// Act does what value says, once in the life of the process.
func (Set) Act(value string) error {
	if fired.Swap(true) {
		return nil
	}
	err := report(value)
	if err != nil {
		return fmt.Errorf("report the failpoint's hit: %w", err)
	}
	verb, rest, _ := strings.Cut(value, ":")
	switch verb {
	case Kill:
		return signalSelf(syscall.SIGKILL)
	case Stall:
		return Stop()
	case Error:
		return ErrFault
	case Wire:
		medium, how, _ := strings.Cut(rest, ":")
		tamper, known := media[medium]
		if known {
			return tamper(how)
		}
	}
	return fmt.Errorf("failpoint: unknown value %q", value)
}

// Stop stops the own process until somebody sends SIGCONT.
func Stop() error { return signalSelf(syscall.SIGSTOP) }

// BrokenVariable names the guard that a deliberately broken node lacks.
const BrokenVariable = "EDGE_FAULTS_BROKEN"

// Broken reports whether the process is to lack a guard. Only the binary of
// the positive controls asks.
func (Set) Broken(guard string) bool { return os.Getenv(BrokenVariable) == guard }
