package liveplane_test

import (
	"flag"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// firstSeed makes runs the same each time, as far as what is asked goes; the
// flag -rapid.seed takes another.
const firstSeed = 1

// repeat lets rapid run a property n times. When one fails, rapid looks for a
// shorter history that fails too.
func repeat(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	set := map[string]string{"rapid.checks": strconv.Itoa(n), "rapid.nofailfile": "true"}
	if flag.Lookup("rapid.seed").Value.String() == "0" {
		set["rapid.seed"] = strconv.Itoa(firstSeed)
	}
	for name, value := range set {
		err := flag.Set(name, value)
		if err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, property)
}

// draws are choices that rapid makes and can make smaller.
type draws struct{ run *rapid.T }

// number is one of 0 to 1023. Its bits are drawn one by one: rapid's own ranges
// prefer small numbers, and here each choice is to be as likely as the next.
var number = rapid.Custom(func(run *rapid.T) int {
	n := 0
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(run, "bits") {
		n <<= 1
		if bit {
			n++
		}
	}
	return n
})

// IntN is a number from 0 to n-1; n is at most 1024.
func (d draws) IntN(n int) int { return number.Draw(d.run, "choice") % n }

// inRun is the test in one of rapid's runs: what fails and what is cleaned up
// is the run's, folders and all else the test's.
type inRun struct {
	testing.TB
	run *rapid.T
}

func (r inRun) Cleanup(f func())                  { r.run.Cleanup(f) }
func (r inRun) Error(args ...any)                 { r.run.Error(args...) }
func (r inRun) Errorf(format string, args ...any) { r.run.Errorf(format, args...) }
func (r inRun) Fail()                             { r.run.Fail() }
func (r inRun) FailNow()                          { r.run.FailNow() }
func (r inRun) Failed() bool                      { return r.run.Failed() }
func (r inRun) Fatal(args ...any)                 { r.run.Fatal(args...) }
func (r inRun) Fatalf(format string, args ...any) { r.run.Fatalf(format, args...) }
func (r inRun) Log(args ...any)                   { r.run.Log(args...) }
func (r inRun) Logf(format string, args ...any)   { r.run.Logf(format, args...) }
