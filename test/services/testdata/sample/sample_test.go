// Package sample is run by the harness's own tests: one test of each outcome.
package sample

import "testing"

func TestPasses(t *testing.T) { t.Log("nobody reads this") }

func TestSkips(t *testing.T) { t.Skip("the moon is in the way") }

func TestFails(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Error("one is not two") })
}
