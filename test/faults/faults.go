// Package faults breaks a control plane at every named step and checks that
// nothing is lost and nothing is reported wrongly (docs/reliability.md).
//
// The steps are failpoints: comments in the production code that etcd's gofail
// turns into code in a binary that only this package builds. Every cell of the
// matrix is one story (submit, admit, run) of a tenant of its own, in which one
// process meets one fault; other processes then bring the story to its end,
// and the invariants are checked on what the outside world saw: rows with
// their whole history, objects, requests at the provider, probes, messages.
package faults

import (
	"fmt"

	"github.com/teamsync/edge-workers/test/faults/failpoint"
	"github.com/teamsync/edge-workers/test/faults/wire"
)

// Mode is what happens at a step.
type Mode string

// The modes. Before is the side on which the step was not done, after the one
// on which it was.
const (
	Kill  Mode = "kill -9"
	Error Mode = "error"
	// Stall stops the process until others have ended its lease and the whole
	// story; then it goes on.
	Stall Mode = "stall"
	// Lost cuts the wire before the request left or after it was answered: the
	// process cannot tell which.
	Lost Mode = "reply lost"
	// Frozen is a stall with an open transaction whose connection the server
	// ends meanwhile. Only commits have it, and only before.
	Frozen Mode = "frozen commit"
)

// Modes in the order of the report.
var Modes = []Mode{Kill, Error, Stall, Lost, Frozen}

// Side is where the fault stands.
type Side string

// The sides.
const (
	Before Side = "Before"
	After  Side = "After"
)

// Medium is what a step talks to; it decides how its reply gets lost.
type Medium string

// The media.
const (
	Database Medium = "database"
	Redis    Medium = "redis"
	Store    Medium = "store"
	HTTP     Medium = "http" // provider, release, transport
)

// Step is one step that commits, sends, receives or acknowledges.
type Step struct {
	Name   string
	Medium Medium
	What   string
}

// Steps are all the steps that have failpoints in the code, in the story's
// order. A test compares them with the code and with docs/reliability.md.
var Steps = []Step{
	{"submitIntent", Database, "commit the cleanup intent"},
	{"submitProject", Store, "store the project"},
	{"submitBundle", Store, "store the bundle"},
	{"submitCommit", Database, "commit the version and adopt the intent"},
	{"admitCommit", Database, "commit the deployment's row"},
	{"submittingMirror", Redis, "mirror `submitting`"},
	{"publish", HTTP, "hand the message to the transport"},
	{"deliveryClaim", Redis, "claim the delivery"},
	{"lease", Database, "commit the lease"},
	{"snapshot", Database, "read the rows under locks"},
	{"artifactRead", Store, "read a stored object"},
	{"fence", Database, "commit the fence"},
	{"deployingMirror", Redis, "mirror `deploying`"},
	{"upload", HTTP, "upload to the provider"},
	{"readBack", HTTP, "read the release back"},
	{"probe", HTTP, "probe the release"},
	{"settle", Database, "commit the settlement"},
	{"claimDone", Redis, "mark the delivery as done"},
	{"recoveryClaim", Database, "commit a sweep's claim"},
	{"repairCommit", Database, "commit a repair"},
	{"cleanupClaim", Database, "commit a cleanup sweep's claim"},
	{"cleanupDelete", Store, "delete a stored object"},
	{"cleanupSettle", Database, "commit the end of a cleanup"},
}

// Scene is the moment of the story at which the fault is met: the command of
// the faulty process and what has happened before it.
type Scene string

// The scenes.
const (
	SceneSubmit Scene = "submit" // nothing yet
	SceneAdmit  Scene = "admit"  // a ready version
	SceneRun    Scene = "run"    // an admitted deployment with its message
	SceneSweep  Scene = "sweep"  // an admitted deployment whose message was lost
	SceneRepair Scene = "repair" // an uncertain deployment
	SceneReread Scene = "reread" // a repaired deployment: the run only reads
	SceneClean  Scene = "clean"  // a submission that died before its commit, with a due intent
)

// scenes says which steps each scene's command passes.
var scenes = []struct {
	Scene Scene
	Steps []string
}{
	{SceneSubmit, []string{"submitIntent", "submitProject", "submitBundle", "submitCommit"}},
	{SceneAdmit, []string{"admitCommit", "submittingMirror", "publish"}},
	{SceneRun, []string{"deliveryClaim", "lease", "snapshot", "artifactRead", "fence", "deployingMirror", "upload", "readBack", "probe", "settle", "claimDone"}},
	{SceneSweep, []string{"recoveryClaim", "submittingMirror", "publish"}},
	{SceneRepair, []string{"repairCommit", "submittingMirror", "publish"}},
	{SceneReread, []string{"deliveryClaim", "lease", "snapshot", "deployingMirror", "readBack", "probe", "settle", "claimDone"}},
	{SceneClean, []string{"cleanupClaim", "cleanupDelete", "cleanupSettle"}},
}

// Cell is one cell of the matrix.
type Cell struct {
	Scene Scene
	Step  Step
	Mode  Mode
	Side  Side
}

// Name is the cell's name in the test's output.
func (c Cell) Name() string {
	return fmt.Sprintf("%s/%s%s/%s", c.Scene, c.Step.Name, c.Side, c.Mode)
}

// Cells lists the whole matrix.
func Cells() []Cell {
	steps := map[string]Step{}
	for _, step := range Steps {
		steps[step.Name] = step
	}
	cells := []Cell{}
	for _, scene := range scenes {
		for _, name := range scene.Steps {
			for _, mode := range Modes {
				for _, side := range []Side{Before, After} {
					cell := Cell{scene.Scene, steps[name], mode, side}
					if mode != Frozen || (side == Before && cell.Step.Medium == Database) {
						cells = append(cells, cell)
					}
				}
			}
		}
	}
	return cells
}

// Failpoint is the point that the cell arms and the value that it gets. A
// reply is lost on the wire, so those cells arm the wire at the point before
// the step whichever the side; so does an error after a commit, which is a
// database that has done the work and cannot be reached any more.
func (c Cell) Failpoint() (string, string) {
	tamper := func(how string) (string, string) {
		return c.Step.Name + string(Before), fmt.Sprintf("%s:%s:%s", failpoint.Wire, c.Step.Medium, how)
	}
	switch {
	case c.Mode == Frozen:
		return tamper(wire.Freeze)
	case c.Mode == Lost && c.Side == Before:
		return tamper(wire.CutBefore)
	case c.Mode == Lost:
		return tamper(wire.CutAfter)
	case c.Mode == Error && c.Side == After && c.Step.Medium == Database:
		return tamper(wire.Down)
	}
	value := map[Mode]string{Kill: failpoint.Kill, Error: failpoint.Error, Stall: failpoint.Stall}[c.Mode]
	return c.Step.Name + string(c.Side), value
}
