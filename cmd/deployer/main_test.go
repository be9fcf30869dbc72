package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports/batch"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

func TestMain(m *testing.M) { processtest.Main(m, main) }

const topic = "projects/p/topics/jobs"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// settings is the least environment of a deployer, changed by the pairs.
func settings(t *testing.T, broker string, pairs ...string) map[string]string {
	t.Helper()
	return processtest.Environment(t, append([]string{
		"DEFAULT_BACKGROUND_WORKER_TYPE", "pubsub", "EDGE_WORKERS_PUBSUB_PROJECT", "p", "EDGE_WORKERS_PUBSUB_SUBSCRIPTION", "deployers", "EDGE_WORKERS_PUBSUB_ENDPOINT", broker,
	}, pairs...)...)
}

// broker is a topic with the deployers' subscription.
func broker(t *testing.T) *pstest.Server {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	_, err := server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	must(t, err)
	_, err = server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic + "-dead"})
	must(t, err)
	_, err = server.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/deployers", Topic: topic, AckDeadlineSeconds: 10,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: topic + "-dead", MaxDeliveryAttempts: 5},
	})
	must(t, err)
	return server
}

// acked waits until the broker was told of n messages that they are done.
func acked(t *testing.T, server *pstest.Server, n int) {
	t.Helper()
	for {
		done := 0
		for _, m := range server.Messages() {
			done += m.Acks
		}
		if done >= n {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("not acknowledged")
		}
	}
}

// claimed sets the marks by which a general consumer knows a job that runs or has
// run. What it returns checks that nobody has touched them.
func claimed(t *testing.T, url, jobID string) func() {
	t.Helper()
	options, err := redis.ParseURL(url)
	must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	keys := []string{"job:running:" + jobID, "job:done:" + jobID}
	for _, key := range keys {
		must(t, client.Set(t.Context(), key, "somebody", time.Hour).Err())
		t.Cleanup(func() { client.Del(context.WithoutCancel(t.Context()), key) })
	}
	return func() {
		t.Helper()
		for _, key := range keys {
			if got, err := client.Get(t.Context(), key).Result(); err != nil || got != "somebody" {
				t.Errorf("%s: %q, %v", key, got, err)
			}
		}
	}
}

// D1, S1-252, S1-263 to S1-265, S1-267, S1-271: a deployer takes a committed
// deployment from the broker to its end, whatever a general consumer's marks say
// of its job; without an artifact store the end is a failure. A copy of the
// message ends at the settled row; poison is dropped and counted, and its content
// is in no log; SIGTERM ends the process cleanly.
func TestDeploys(t *testing.T) {
	t.Parallel()
	server := broker(t)
	environment := settings(t, server.Addr)
	db, err := database.Open(t.Context(), database.Params{URL: environment["EDGE_WORKERS_DATABASE_URL"]})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, db.CreateMissing(t.Context()))
	control := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
	ticket := control.Admit(control.Submit("one")).TicketID
	raw, err := control.Published.Messages()[0].Encode()
	must(t, err)

	marks := claimed(t, environment["EDGE_WORKERS_REDIS_URL"], control.Published.Messages()[0].JobID)
	p := processtest.Start(t, 1, environment)
	if got, body := p.Get("metrics", "/readyz"); got != 200 {
		t.Errorf("readyz: %d %s", got, body)
	}
	server.Publish(topic, raw, nil)
	acked(t, server, 1)
	marks()
	row := control.Row(ticket)
	if row.Status != models.OutboxFailed || row.LastErrorCode == "" {
		t.Errorf("row %s, %s\n%s", row.Status, row.LastErrorCode, p.Log())
	}
	server.Publish(topic, raw, nil)
	for _, poison := range transporttest.Poison() {
		server.Publish(topic, poison, nil)
	}
	acked(t, server, 2+len(transporttest.Poison()))
	if again := control.Row(ticket); again.UpdatedAt != row.UpdatedAt || again.Attempts != row.Attempts {
		t.Errorf("the copy changed the row: %+v", again)
	}
	_, metrics := p.Get("metrics", "/metrics")
	for _, line := range []string{`edge_workers_messages_total{result="done",transport="pubsub"} 2`, `edge_workers_messages_total{result="malformed",transport="pubsub"} 18`, `edge_workers_build_info{binary="deployer"`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
	if code := p.Stop(); code != 0 || strings.Contains(p.Log(), transporttest.Canary) || strings.Contains(p.Log(), processtest.HostToken) {
		t.Errorf("exit code %d\n%s", code, p.Log())
	}
}

// A deployer whose queue is not there waits for it, lives, and is not ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	server := broker(t)
	p := processtest.Start(t, 1, settings(t, server.Addr, "EDGE_WORKERS_PUBSUB_SUBSCRIPTION", "another"))
	if got, body := p.Get("metrics", "/readyz"); got != 503 || !strings.Contains(body, `["broker"]`) {
		t.Errorf("readyz: %d %s", got, body)
	}
	if got, body := p.Get("metrics", "/healthz"); got != 200 {
		t.Errorf("healthz: %d %s", got, body)
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.Log())
	}
}

// S1-052, S1-053, S1-065: under Batch the process does the one deployment of its
// command line and ends with a code that the retry strategy understands: again,
// done (without an artifact store it fails at its second attempt), and done at
// once when it is settled.
func TestRunsOneJob(t *testing.T) {
	t.Parallel()
	environment := settings(t, "127.0.0.1:9", "DEFAULT_BACKGROUND_WORKER_TYPE", "batch", "AWS_BATCH_JOB_ID", "job-1", "AWS_BATCH_JOB_ATTEMPT", "1")
	db, err := database.Open(t.Context(), database.Params{URL: environment["EDGE_WORKERS_DATABASE_URL"]})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, db.CreateMissing(t.Context()))
	control := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
	ticket := control.Admit(control.Submit("one")).TicketID
	args := append([]string{"run"}, control.Published.Messages()[0].Args...)
	for i, want := range []struct {
		code   int
		status models.OutboxStatus
	}{{batch.ExitRetry, models.OutboxPending}, {batch.ExitDone, models.OutboxFailed}, {batch.ExitDone, models.OutboxFailed}} {
		environment["AWS_BATCH_JOB_ATTEMPT"] = strconv.Itoa(i + 1)
		code, out := processtest.Run(t, environment, args...)
		if row := control.Row(ticket); code != want.code || row.Status != want.status || row.Attempts > 2 {
			t.Errorf("attempt %d: exit code %d, row %s: %s", i+1, code, row.Status, out)
		}
	}
	for _, poison := range [][]string{{"run"}, {"run", "a", "b", transporttest.Canary}, {"run", "a", "", "c", transporttest.Canary}, {"run", "a", "b", "c", "d", transporttest.Canary}} {
		code, out := processtest.Run(t, environment, poison...)
		if code != batch.ExitMalformed || strings.Contains(out, transporttest.Canary) || !strings.Contains(out, "malformed message dropped") {
			t.Errorf("%v: exit code %d: %s", poison, code, out)
		}
	}
	processtest.Change(environment, "EDGE_WORKERS_REDIS_URL", "unix:///nowhere.sock", "EDGE_WORKERS_DATABASE_URL", "root@tcp(127.0.0.1:9)/x")
	if code, out := processtest.Run(t, environment, args...); code != process.ExitFailed {
		t.Errorf("without a database: exit code %d: %s", code, out)
	}
	for _, wrong := range [][]string{nil, {"serve"}} {
		if code, out := processtest.Run(t, environment, wrong...); code != process.ExitUsage || !strings.Contains(out, "deployer run OUTBOX_ID") {
			t.Errorf("%v: exit code %d: %s", wrong, code, out)
		}
	}
}

// Settings that leave nothing to do stop the start, with the reason.
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pairs []string
		code  int
		says  string
	}{
		{[]string{"DEFAULT_BACKGROUND_WORKER_TYPE", ""}, process.ExitUsage, "DEFAULT_BACKGROUND_WORKER_TYPE is legacy: the api does the work of a deployer itself"},
		{[]string{"EDGE_WORKERS_PUBSUB_SUBSCRIPTION", ""}, process.ExitUsage, "EDGE_WORKERS_PUBSUB_SUBSCRIPTION is not set"},
		{[]string{"PUBSUB_DRAIN_TIMEOUT_SECONDS", "for ever"}, process.ExitUsage, "PUBSUB_DRAIN_TIMEOUT_SECONDS must be a number"},
		{[]string{"EDGE_WORKERS_DATABASE_URL", "root:hunter2@tcp(127.0.0.1:9)/x"}, process.ExitFailed, "127.0.0.1:9"},
	} {
		code, out := processtest.Run(t, settings(t, "127.0.0.1:9", c.pairs...))
		if code != c.code || !strings.Contains(out, c.says) || strings.Contains(out, "hunter2") {
			t.Errorf("%v: exit code %d: %s", c.pairs, code, out)
		}
	}
	code, out := processtest.Run(t, settings(t, "127.0.0.1:9"), "--check-config")
	if code != 0 || !strings.Contains(out, "deployer: the settings are valid") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
