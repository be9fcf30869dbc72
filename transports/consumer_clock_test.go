package transports_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/transports"
)

// S1-259: work outlives the stop, by the limit and no longer.
func TestOutlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		work, cancel := transports.Outlive(ctx, time.Minute)
		defer cancel()
		stop()
		time.Sleep(time.Minute - time.Second)
		if work.Err() != nil {
			t.Error("the stop cut it off")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if work.Err() == nil {
			t.Error("it outlives the limit")
		}
		other, end := transports.Outlive(t.Context(), time.Minute)
		end()
		if other.Err() == nil {
			t.Error("cancel does nothing")
		}
	})
}
