package faults

import (
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/test/faults/failpoint"
)

// Result is what became of a cell.
type Result struct {
	Violations []string
	Final      models.OutboxStatus // of the deployment
}

// Run runs a cell. Everything but a violation that goes wrong ends the test:
// a fault that was not met proves nothing.
func (c Cell) Run(t testing.TB, ground Ground) Result {
	t.Helper()
	return newStory(t, ground).run(c)
}

// Run runs the control's cell with the broken node.
func (c Control) Run(t testing.TB, ground Ground) Result {
	t.Helper()
	s := newStory(t, ground)
	s.broken = failpoint.BrokenVariable + "=" + c.Guard
	s.brokenEverywhere = c.Everywhere
	return s.run(c.Cell)
}

func (s *story) run(c Cell) Result {
	s.t.Helper()
	s.meet(c)
	s.recover()
	s.deliverTwice()
	s.checkEnd(c)
	row, _ := s.row()
	return Result{Violations: s.violations, Final: row.Status}
}

// meet runs the process that meets the fault.
func (s *story) meet(c Cell) {
	s.t.Helper()
	args := s.reach(c.Scene)
	point, value := c.Failpoint()
	p := s.start(point, value, args...)
	if c.Mode == Stall || c.Mode == Frozen {
		s.outlive(c, p)
	}
	result, err := p.wait()
	s.ok(err)
	if s.outside.hitCount() != 1 {
		s.t.Fatalf("the failpoint was hit %d times\n%s", s.outside.hitCount(), result.Log)
	}
	if killed := result.Signal != 0; killed != (c.Mode == Kill) {
		s.t.Fatalf("the process ended with code %d, signal %v\n%s", result.Code, result.Signal, result.Log)
	}
	if args[0] == "run" {
		s.acknowledged(args[1], result)
		if result.Code != 0 { // the transport delivers it again
			s.outside.putBack(message(s, args))
		}
	}
}

// outlive brings the story to its end while the process is stopped, and lets
// the process go on: it must change nothing any more (I2).
func (s *story) outlive(c Cell, p *process) {
	s.t.Helper()
	s.ok(p.waitStopped())
	if c.Mode == Frozen {
		s.endConnection()
	}
	s.recover()
	before := s.history()
	s.ok(p.resume())
	<-p.done
	if c.Scene == SceneSubmit {
		return // a submission needs no lease: it commits its own version
	}
	for _, change := range s.history()[len(before):] {
		s.violated("I2", "the resumed process changed a row: %s %q → %q", change.Kind, change.Was, change.Became)
	}
}

// endConnection does what the server does with a connection that stands still
// in an open transaction.
func (s *story) endConnection() {
	s.t.Helper()
	s.outside.mu.Lock()
	thread := s.outside.frozen
	s.outside.mu.Unlock()
	if thread == "" || strings.Trim(thread, "0123456789") != "" || thread == "0" {
		s.t.Fatalf("the stopped connection's number is %q", thread)
	}
	s.ok(s.ground.DB.Read(s.ctx).Exec("KILL CONNECTION " + thread).Error)
}

// deliverTwice delivers the deployment's message once more, long after its
// end, as transports may: nothing changes.
func (s *story) deliverTwice() {
	s.t.Helper()
	row, found := s.row()
	if !found || row.Payload == nil {
		return
	}
	before := s.history()
	requests := len(s.outside.log())
	result := s.node(command(messageOf(s.t, row))...)
	s.acknowledged(row.ID, result)
	if result.Code != 0 {
		s.violated("I9", "the doubled message of a %s row was not acknowledged: %s", row.Status, result.Reply.Error)
	}
	if n := len(s.history()) - len(before); n != 0 {
		s.violated("I3", "the doubled message of a %s row made %d changes", row.Status, n)
	}
	if n := len(s.outside.log()) - requests; n != 0 {
		s.violated("I4", "the doubled message of a %s row made %d requests", row.Status, n)
	}
}
