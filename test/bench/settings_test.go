package bench

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/test/figures"
	"github.com/teamsync/edge-workers/test/liveplane"
	"github.com/teamsync/edge-workers/test/plane"
)

// BenchmarkSettingsChange replaces a live Worker's runtime configuration: its
// row committed to the disk, the command sent, and row and audit fact settled.
// "ratio" is the median change over the median of the bare round trip, the same
// mutation straight to the same Worker, taken in turns with it.
func BenchmarkSettingsChange(b *testing.B) {
	s := liveplane.New(b, plane.Durable(b, 0))
	v := s.Deploy(plane.Project("bench"), "")
	script, by := s.Worker().ScriptName, s.By()
	revision := int64(0)
	pair := func() (time.Duration, time.Duration) {
		value := fmt.Sprintf(`{"n":%d}`, revision)
		began := time.Now()
		config, err := s.Live.ReplaceRuntimeConfig(b.Context(), by, revision, json.RawMessage(value))
		whole := time.Since(began)
		s.Must(err)
		command := control.Command{
			Script: script, Generation: v.ReleaseGeneration, Subject: by.Actor.ID, Operation: "runtime_config.replace", MutationID: uuid.NewString(),
			Payload: map[string]any{"baseRevision": config.Revision, "valueJson": value},
		}
		began = time.Now()
		_, err = s.Client.Call(b.Context(), command)
		s.Must(err)
		revision += 2
		return whole, time.Since(began)
	}
	for range 20 { // until connections are open and code is warm
		pair()
	}
	var whole, bare []time.Duration
	for b.Loop() {
		for range 20 { // enough for a median, however short the run
			change, roundTrip := pair()
			whole, bare = append(whole, change), append(bare, roundTrip)
		}
	}
	config, err := s.Live.RuntimeConfig(b.Context(), by)
	s.Must(err)
	if config.Revision != revision {
		b.Fatalf("revision %d after %d changes", config.Revision, revision) // each of them was applied
	}
	change, roundTrip := figures.Median(whole), figures.Median(bare)
	b.ReportMetric(change.Seconds()/roundTrip.Seconds(), "ratio")
	b.ReportMetric(milliseconds(change), "ms/change")
	b.ReportMetric(milliseconds(roundTrip), "ms/round-trip")
	b.ReportMetric(0, "ns/op") // it would add the round trip to the change
}
