package batch_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch"
	"github.com/teamsync/edge-workers/transports/batch/batchtest"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

const (
	queue      = "deployments"
	definition = "deployer"
	attempts   = 5
)

// broker is a model of Batch with a publisher on it.
type broker struct {
	*batch.Publisher
	service *batchtest.Service
}

func open(t testing.TB) *broker {
	t.Helper()
	b := &broker{service: batchtest.New(queue, batchtest.Deployer(definition, attempts))}
	server := httptest.NewServer(b.service)
	t.Cleanup(server.Close)
	var err error
	b.Publisher, err = batch.NewPublisher(t.Context(), batch.Params{
		Service:  awsclient.Service{Region: "eu-west-1", Endpoint: server.URL, Credentials: awsclienttest.Anybody},
		JobQueue: queue, JobDefinition: definition, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *broker) Inject(t testing.TB, _ []byte) { t.Fatal("a job carries no bytes") }

// Dead counts the jobs that Batch has given up on.
func (b *broker) Dead(testing.TB) int {
	n := 0
	for _, job := range b.service.Jobs() {
		if job.Status == batchtest.Failed {
			n++
		}
	}
	return n
}

func (b *broker) Deliveries() int { return attempts }

func (b *broker) Consumer(_ testing.TB, receiver *transports.Receiver, drain time.Duration) transports.Consumer {
	return consumer{b.service, receiver, drain}
}

// consumer is a compute environment whose processes are one call of Run each,
// with the stop as their SIGTERM.
type consumer struct {
	service  *batchtest.Service
	receiver *transports.Receiver
	drain    time.Duration
}

func (c consumer) Consume(ctx context.Context) error {
	var cutOff atomic.Bool
	c.service.Run(ctx, 2, func(_ context.Context, job batchtest.Job, _ int) int {
		code := batch.Run(ctx, c.receiver, c.drain, arguments(job))
		if ctx.Err() != nil && code != batch.ExitDone {
			cutOff.Store(true)
		}
		return code
	})
	if cutOff.Load() {
		return transports.ErrCutOff
	}
	return nil
}

// arguments are what stands behind run.
func arguments(job batchtest.Job) []string { return job.Command[2:] }

func (c consumer) Ready(context.Context) error { return nil }
func (c consumer) Close() error                { return nil }

// S1-253 to S1-270, as far as a transport has a queue of its own.
func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Features{Durable: true, Merging: true}, func(t *testing.T) transporttest.Broker { return open(t) })
}
