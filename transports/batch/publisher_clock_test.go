package batch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch/batchtest"
)

// bench is a publisher on a model of Batch, in virtual time.
type bench struct {
	*testing.T
	*batchtest.Service

	log       observetest.Log
	publisher *Publisher
}

func bubble(t *testing.T, test func(b *bench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, Service: batchtest.New("queue", batchtest.Deployer("deployer", 5))}
		network := awsclienttest.Serve(b.Service)
		var err error
		b.publisher, err = newPublisher(t.Context(), Params{
			Service:  awsclient.Service{Region: "r", Endpoint: "http://batch:1", Credentials: awsclienttest.Anybody},
			JobQueue: "queue", JobDefinition: "deployer", Log: slog.New(slog.NewTextHandler(&b.log, nil)),
		}, awsclient.Wire{Connect: connectTimeout, Silence: silence, MaxIdle: maxIdle, Dial: network.Dial})
		if err != nil {
			t.Fatal(err)
		}
		test(b)
		network.Close()
		time.Sleep(time.Minute) // idle connections end
	})
}

func (b *bench) publish(id string) error {
	return b.publisher.Publish(b.Context(), transports.Deploy("o", "c", "d", id))
}

func (b *bench) expect(what string, got, want any) {
	b.Helper()
	if got != want {
		b.Errorf("%s: %v, want %v\n%s", what, got, want, b.log.String())
	}
}

// on gives the faults of one operation, by the number of the call.
func on(operation string, which func(n int) batchtest.Fault) func(string, int) batchtest.Fault {
	return func(called string, n int) batchtest.Fault {
		if called != operation {
			return batchtest.Fault{}
		}
		return which(n)
	}
}

func always(f batchtest.Fault) func(int) batchtest.Fault {
	return func(int) batchtest.Fault { return f }
}

// What a publisher says is what is known; SubmitJob is called once at most; a
// lost answer makes no second job; and all of it ends within the caller's 10 s.
func TestPublishOutcomes(t *testing.T) {
	type outcome int
	const (
		taken outcome = iota
		refused
		unknown
	)
	silent := batchtest.Fault{Delay: time.Hour}
	for name, test := range map[string]struct {
		fault                  func(string, int) batchtest.Fault
		want                   outcome
		jobs, submits, lookups int
	}{
		"good":               {nil, taken, 1, 1, 1},
		"answer lost":        {on("submitjob", always(batchtest.Fault{After: true})), taken, 1, 1, 2},
		"request lost":       {on("submitjob", always(batchtest.Fault{Before: true})), unknown, 0, 1, 2},
		"trouble":            {on("submitjob", always(batchtest.Fault{Status: 500, Code: "ServerException"})), unknown, 0, 1, 2},
		"silent":             {on("submitjob", always(silent)), unknown, 0, 1, 2},
		"throttled":          {on("submitjob", always(batchtest.Fault{Status: 429, Code: "TooManyRequestsException"})), refused, 0, 1, 1},
		"denied":             {on("submitjob", always(batchtest.Fault{Status: 403, Code: "AccessDeniedException"})), refused, 0, 1, 1},
		"client's fault":     {on("submitjob", always(batchtest.Fault{Status: 400, Code: "ClientException"})), refused, 0, 1, 1},
		"look-up in trouble": {on("listjobs", always(batchtest.Fault{Status: 500})), refused, 0, 0, 2},
		"look-up silent":     {on("listjobs", always(silent)), refused, 0, 0, 2},
		"look-up slow":       {on("listjobs", always(batchtest.Fault{Delay: 2 * time.Second})), taken, 1, 1, 1},
		"look-up throttled": {on("listjobs", func(n int) batchtest.Fault {
			return map[int]batchtest.Fault{1: {Status: 429, Code: "TooManyRequestsException"}}[n]
		}), taken, 1, 1, 2},
		"answer lost and look-up in trouble": {func(operation string, n int) batchtest.Fault {
			switch {
			case operation == "submitjob":
				return batchtest.Fault{After: true}
			case n > 1:
				return batchtest.Fault{Status: 500}
			}
			return batchtest.Fault{}
		}, unknown, 1, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.Fail(test.fault)
				began := time.Now()
				err := b.publish("m")
				took := time.Since(began)
				got := unknown
				switch {
				case err == nil:
					got = taken
				case errors.Is(err, transports.ErrRefused):
					got = refused
				}
				b.expect("outcome", got, test.want)
				b.expect("jobs", len(b.Jobs()), test.jobs)
				b.expect("SubmitJob", b.Calls("submitjob"), test.submits)
				b.expect("ListJobs", b.Calls("listjobs"), test.lookups)
				if took > 3*callTimeout || 3*callTimeout > 9*time.Second {
					b.Errorf("it took %s", took)
				}
				if err != nil && strings.Contains(err.Error(), "canary") {
					b.Errorf("the service's text is in the error: %v", err)
				}
			})
		})
	}
}

// An unfinished job of the name is the message, as far back as it may stand in
// the list; an ended one is not, nor is one whose name differs in case.
func TestUnfinishedJobIsTheMessage(t *testing.T) {
	bubble(t, func(b *bench) {
		submit := func(name string) string {
			out, err := b.publisher.api.SubmitJob(b.Context(), &batch.SubmitJobInput{JobName: &name, JobQueue: aws.String("queue"), JobDefinition: aws.String("deployer")})
			if err != nil {
				b.Fatal(err)
			}
			return *out.JobId
		}
		submit("edge-worker-deploy-M")
		b.expect("another case", b.publish("m"), nil)
		b.expect("jobs", len(b.Jobs()), 2)
		for range 250 {
			b.Terminate(submit("edge-worker-deploy-m"))
		}
		lookups := b.Calls("listjobs")
		b.expect("a copy", b.publish("m"), nil)
		b.expect("jobs", len(b.Jobs()), 252)
		b.expect("pages", b.Calls("listjobs")-lookups, 3)
		b.Terminate(b.Jobs()[1].ID)
		b.expect("after its end", b.publish("m"), nil)
		b.expect("jobs", len(b.Jobs()), 253)
	})
}

// S1-266: publishers that ask at the same time submit a job each at most, and
// whoever asks later none. The rows' leases do the rest.
func TestConcurrentPublishers(t *testing.T) {
	const publishers = 8
	bubble(t, func(b *bench) {
		var all sync.WaitGroup
		all.Add(publishers)
		b.Fail(on("submitjob", func(int) batchtest.Fault { // each has looked before any submits
			all.Done()
			all.Wait()
			return batchtest.Fault{}
		}))
		var published sync.WaitGroup
		for range publishers {
			published.Go(func() {
				if err := b.publish("m"); err != nil {
					b.Error(err)
				}
			})
		}
		published.Wait()
		b.expect("jobs", len(b.Jobs()), publishers)
		b.Fail(nil)
		b.expect("later", b.publish("m"), nil)
		b.expect("jobs", len(b.Jobs()), publishers)
	})
}

// The caller's end is an end. What was asked for may have happened.
func TestPublishCallerGivesUp(t *testing.T) {
	bubble(t, func(b *bench) {
		b.Fail(on("submitjob", always(batchtest.Fault{Delay: time.Hour})))
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := b.publisher.Publish(ctx, transports.Deploy("o", "c", "d", "m"))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, transports.ErrRefused) || time.Since(began) != time.Second {
			b.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
