package batch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch"
	"github.com/teamsync/edge-workers/transports/batch/batchtest"
)

// S1-051, S1-253: name and parameters of a job are the message's.
func TestJob(t *testing.T) {
	t.Parallel()
	b := open(t)
	if err := b.Publish(t.Context(), transports.Deploy("out-1", "com-2", "dep-3", "3c0a8a1e-5a52-4a0e-9d3a-0f6e2a1b7c4d")); err != nil {
		t.Fatal(err)
	}
	job := b.service.Jobs()[0]
	if job.Name != "edge-worker-deploy-3c0a8a1e-5a52-4a0e-9d3a-0f6e2a1b7c4d" || job.Queue != queue || job.Definition != definition {
		t.Errorf("%+v", job)
	}
	if want := map[string]string{"outbox_id": "out-1", "company_id": "com-2", "department_id": "dep-3", "message_id": "3c0a8a1e-5a52-4a0e-9d3a-0f6e2a1b7c4d"}; !reflect.DeepEqual(job.Parameters, want) {
		t.Errorf("%v", job.Parameters)
	}
	if got := strings.Join(job.Command, " "); got != "deployer run out-1 com-2 dep-3 3c0a8a1e-5a52-4a0e-9d3a-0f6e2a1b7c4d" {
		t.Error(got)
	}
	for _, id := range []string{"a b", "a,b", "ä", strings.Repeat("x", 110), "a/b"} {
		if err := b.Publish(t.Context(), transports.Deploy("o", "c", "d", id)); !errors.Is(err, transports.ErrMalformed) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if n := len(b.service.Jobs()); n != 1 {
		t.Errorf("%d jobs", n)
	}
	if err := b.Publish(t.Context(), transports.Deploy("o", "c", "d", strings.Repeat("x", 109))); err != nil { // 128 characters
		t.Error(err)
	}
}

// environments are those that the attempts of jobs had.
type environments struct {
	mu   sync.Mutex
	seen []string
}

func (e *environments) add(job batchtest.Job, attempt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, strings.Join(job.Environment(attempt), " "))
}

// S1-266 to S1-270, S2-231: a run to try again comes again as the next attempt
// of the same job, up to the definition's limit; a done and a malformed one do
// not.
func TestAttempts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		codes  []int // of the attempts; the last is repeated
		want   []int
		status batchtest.Status
	}{
		"done":                    {[]int{batch.ExitDone}, []int{0}, batchtest.Succeeded},
		"done at the second time": {[]int{batch.ExitRetry, batch.ExitDone}, []int{75, 0}, batchtest.Succeeded},
		"never":                   {[]int{batch.ExitRetry}, []int{75, 75, 75, 75, 75}, batchtest.Failed},
		"malformed":               {[]int{batch.ExitMalformed}, []int{64}, batchtest.Failed},
		"killed, then malformed":  {[]int{137, batch.ExitMalformed}, []int{137, 64}, batchtest.Failed},
		"a crash":                 {[]int{2, 1, batch.ExitDone}, []int{2, 1, 0}, batchtest.Succeeded},
	} {
		b := open(t)
		if err := b.Publish(t.Context(), transports.Deploy("o", "c", "d", "m")); err != nil {
			t.Fatal(err)
		}
		var seen environments
		stop := b.run(t, func(_ context.Context, job batchtest.Job, attempt int) int {
			seen.add(job, attempt)
			return test.codes[min(attempt, len(test.codes))-1]
		})
		await(t, b.service)
		stop()
		job := b.service.Jobs()[0]
		if fmt.Sprint(job.ExitCodes) != fmt.Sprint(test.want) || job.Status != test.status || len(b.service.Jobs()) != 1 {
			t.Errorf("%s: %v, %s", name, job.ExitCodes, job.Status)
		}
		if err := b.Publish(t.Context(), transports.Deploy("o", "c", "d", "m")); err != nil || len(b.service.Jobs()) != 2 {
			t.Errorf("%s: after its end: %v, %d jobs", name, err, len(b.service.Jobs()))
		}
		for i, environment := range seen.seen {
			if want := fmt.Sprintf("AWS_BATCH_JOB_ID=%s AWS_BATCH_JOB_ATTEMPT=%d AWS_BATCH_JQ_NAME=%s", job.ID, i+1, queue); environment != want {
				t.Errorf("%s: attempt %d has %s", name, i+1, environment)
			}
		}
	}
}

// run starts a compute environment until the returned function is called.
func (b *broker) run(t *testing.T, start batchtest.Start) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); b.service.Run(ctx, 4, start) }()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func await(t *testing.T, service *batchtest.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := service.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// S1-052, S1-053, S1-267: a definition that gives the process poison ends each
// job at its first attempt.
func TestPoisonIsNotRunAgain(t *testing.T) {
	t.Parallel()
	poison := map[string][]string{
		"three": {"Ref::outbox_id", "Ref::company_id", "Ref::message_id"}, "five": {"Ref::outbox_id", "Ref::company_id", "Ref::department_id", "Ref::message_id", "x"},
		"an empty one": {"Ref::outbox_id", "", "Ref::department_id", "Ref::message_id"}, "nothing": nil, "noise": {"\x00\xff"},
		"good": {"Ref::outbox_id", "Ref::company_id", "Ref::department_id", "Ref::message_id"},
	}
	var definitions []batchtest.Definition
	for name, args := range poison {
		d := batchtest.Deployer(name, attempts)
		d.Command = append(d.Command[:2], args...)
		definitions = append(definitions, d)
	}
	service := batchtest.New(queue, definitions...)
	server := httptest.NewServer(service)
	defer server.Close()
	ran := make(chan transports.Message, len(poison))
	r := receiver(t, &observetest.Log{}, func(_ context.Context, m transports.Message) error { ran <- m; return nil })
	for name := range poison {
		publisher, err := batch.NewPublisher(t.Context(), batch.Params{
			Service:  awsclient.Service{Region: "r", Endpoint: server.URL, Credentials: awsclienttest.Anybody},
			JobQueue: queue, JobDefinition: name, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = publisher.Publish(t.Context(), transports.Deploy("o", "c", "d", "of-"+strings.ReplaceAll(name, " ", "-"))); err != nil {
			t.Fatal(err)
		}
	}
	b := &broker{service: service}
	stop := b.run(t, func(ctx context.Context, job batchtest.Job, _ int) int {
		return batch.Run(ctx, r, time.Minute, job.Command[2:])
	})
	await(t, service)
	stop()
	for _, job := range service.Jobs() {
		want := []int{batch.ExitMalformed}
		if job.Definition == "good" {
			want = []int{batch.ExitDone}
		}
		if fmt.Sprint(job.ExitCodes) != fmt.Sprint(want) {
			t.Errorf("%s: %v", job.Definition, job.ExitCodes)
		}
	}
	if m := <-ran; len(ran) != 0 || m.JobID != "of-good" || len(service.Jobs()) != len(poison) {
		t.Errorf("ran %v and %d more", m, len(ran))
	}
}

// A terminated job's process is told to end; it is not tried again, and its
// message can be published anew.
func TestTerminated(t *testing.T) {
	t.Parallel()
	b := open(t)
	message := transports.Deploy("o", "c", "d", "m")
	if err := b.Publish(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{}, attempts)
	r := receiver(t, &observetest.Log{}, func(ctx context.Context, _ transports.Message) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	stop := b.run(t, func(ctx context.Context, job batchtest.Job, _ int) int {
		return batch.Run(ctx, r, time.Millisecond, arguments(job))
	})
	<-began
	b.service.Terminate(b.service.Jobs()[0].ID)
	await(t, b.service)
	stop()
	if job := b.service.Jobs()[0]; fmt.Sprint(job.ExitCodes) != "[75]" || job.Status != batchtest.Failed {
		t.Errorf("%v, %s", job.ExitCodes, job.Status)
	}
	if err := b.Publish(t.Context(), message); err != nil || len(b.service.Jobs()) != 2 {
		t.Errorf("%v, %d jobs", err, len(b.service.Jobs()))
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	good := batch.Params{Service: awsclient.Service{Region: "r", Credentials: awsclienttest.Anybody}, JobQueue: "q", JobDefinition: "d", Log: slog.New(slog.DiscardHandler)}
	if _, err := batch.NewPublisher(t.Context(), good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*batch.Params){
		"queue": func(p *batch.Params) { p.JobQueue = "" }, "definition": func(p *batch.Params) { p.JobDefinition = "" },
		"region": func(p *batch.Params) { p.Region = "" }, "log": func(p *batch.Params) { p.Log = nil },
	} {
		p := good
		change(&p)
		if _, err := batch.NewPublisher(t.Context(), p); err == nil {
			t.Errorf("no %s was accepted", name)
		}
	}
}
