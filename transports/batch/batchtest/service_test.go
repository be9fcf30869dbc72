package batchtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRetryStrategy(t *testing.T) {
	t.Parallel()
	d := Definition{Attempts: 3, EvaluateOnExit: []Rule{{"64", Exit}, {"13*", Retry}, {"*", Exit}}}
	for _, test := range []struct {
		attempt, code int
		again         bool
	}{{1, 0, false}, {1, 64, false}, {1, 137, true}, {2, 13, true}, {3, 137, false}, {1, 75, false}} {
		if d.again(test.attempt, test.code) != test.again {
			t.Errorf("attempt %d with exit code %d", test.attempt, test.code)
		}
	}
	if standard := Deployer("d", 5); !standard.again(1, 75) || !standard.again(4, 1) || standard.again(5, 75) || standard.again(1, 64) || standard.again(1, 0) {
		t.Error("another strategy")
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	d := Definition{Command: []string{"run", "Ref::a", "xRef::a", "Ref::ab", "Ref::c", "a"}}
	if got := fmt.Sprint(d.command(map[string]string{"a": "1", "ab": "Ref::a"})); got != "[run 1 xRef::a Ref::a Ref::c a]" {
		t.Errorf("%s", got)
	}
}

func submit(t *testing.T, s *Service, body string) int {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/submitjob", strings.NewReader(body)))
	return recorder.Code
}

// Up to the limit jobs run at the same time, each once, and Wait sees their end.
func TestJobsAtOnce(t *testing.T) {
	t.Parallel()
	s := New("q", Deployer("d", 1))
	const jobs, atOnce = 7, 3
	for n := range jobs {
		if code := submit(t, s, fmt.Sprintf(`{"jobName":"n%d","jobQueue":"q","jobDefinition":"d"}`, n)); code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running, began, tooMany atomic.Int64
	full := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, atOnce, func(context.Context, Job, int) int {
			if running.Add(1) > atOnce {
				tooMany.Add(1)
			}
			if began.Add(1) == atOnce {
				close(full)
			}
			<-full // the first ones wait for each other
			running.Add(-1)
			return 0
		})
	}()
	patient, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := s.Wait(patient); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if began.Load() != jobs || tooMany.Load() != 0 {
		t.Errorf("%d began, %d beyond the limit", began.Load(), tooMany.Load())
	}
}

// What Batch refuses, the model refuses.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := New("q", Deployer("d", 1))
	for _, body := range []string{
		`no`, `{"jobName":"n","jobQueue":"other","jobDefinition":"d"}`, `{"jobName":"n","jobQueue":"q","jobDefinition":"other"}`,
		`{"jobName":"-n","jobQueue":"q","jobDefinition":"d"}`, `{"jobName":"` + strings.Repeat("n", 129) + `","jobQueue":"q","jobDefinition":"d"}`,
	} {
		if code := submit(t, s, body); code != http.StatusBadRequest {
			t.Errorf("%.60s: status %d", body, code)
		}
	}
	if len(s.Jobs()) != 0 || submit(t, s, `{"jobName":"n","jobQueue":"q","jobDefinition":"d"}`) != http.StatusOK || len(s.Jobs()) != 1 {
		t.Errorf("%d jobs", len(s.Jobs()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); err == nil {
		t.Error("an unfinished job has ended")
	}
	s.Terminate(s.Jobs()[0].ID)
	if err := s.Wait(ctx); err != nil || s.Jobs()[0].Status != Failed {
		t.Errorf("%v, %s", err, s.Jobs()[0].Status)
	}
}
