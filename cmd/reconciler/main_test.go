package main

import (
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/process"
	"github.com/teamsync/edge-workers/pkg/process/processtest"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
)

func TestMain(m *testing.M) { processtest.Main(m, main) }

const topic = "projects/p/topics/jobs"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// settings is the least environment of a reconciler, changed by the pairs.
func settings(t *testing.T, broker string, pairs ...string) map[string]string {
	t.Helper()
	return processtest.Environment(t, append([]string{
		"DEFAULT_BACKGROUND_WORKER_TYPE", "pubsub", "EDGE_WORKERS_PUBSUB_PROJECT", "p", "EDGE_WORKERS_PUBSUB_TOPIC", "jobs", "EDGE_WORKERS_PUBSUB_ENDPOINT", broker,
	}, pairs...)...)
}

// stalled commits a deployment that nobody was told of, long ago.
func stalled(t *testing.T, url string) models.Outbox {
	t.Helper()
	db, err := database.Open(t.Context(), database.Params{URL: url})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, db.CreateMissing(t.Context()))
	p := plane.NewIn(t, db, outbox.OnPremScope("host-1"))
	p.Published.Err = transports.ErrRefused
	row := p.Row(p.Admit(p.Submit("one")).TicketID)
	p.Exec("UPDATE edge_worker_outbox SET updated_at = '2020-01-01 00:00:00', next_attempt_at = NULL WHERE operation = 'deploy'")
	return row
}

// D1, S1-004, S1-253, S2-234: two reconcilers sweep; a stalled deployment is published
// through the broker, once, with its message id as its job's, and both end
// cleanly.
func TestPublishesWhatIsStalled(t *testing.T) {
	t.Parallel()
	broker := pstest.NewServer()
	t.Cleanup(func() { _ = broker.Close() })
	_, err := broker.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	must(t, err)
	environment := settings(t, broker.Addr)
	row := stalled(t, environment["EDGE_WORKERS_DATABASE_URL"])
	var all []*processtest.Process
	for range 2 {
		all = append(all, processtest.Start(t, 1, environment))
	}
	for _, p := range all {
		p.AwaitLog("Edge Worker control audit: claimed=0") // the end of its first round
		if got, body := p.Get("metrics", "/readyz"); got != 200 {
			t.Errorf("readyz: %d %s", got, body)
		}
	}
	messages := broker.Messages()
	if len(messages) != 1 {
		t.Fatalf("%d messages\n%s", len(messages), all[0].Log())
	}
	payload, err := outbox.DecodeDeploy(row)
	must(t, err)
	m, err := transports.Decode(messages[0].Data)
	if err != nil || m.JobID != payload.MessageID || !slices.Equal(m.Args, []string{row.ID, row.CompanyID, row.DepartmentID, payload.MessageID}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, p := range all {
		if code := p.Stop(); code != 0 || strings.Contains(p.Log(), processtest.HostToken) {
			t.Errorf("exit code %d\n%s", code, p.Log())
		}
	}
}

// S1-250: with the default transport there is no work for a reconciler.
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pairs []string
		code  int
		says  string
	}{
		{[]string{"DEFAULT_BACKGROUND_WORKER_TYPE", ""}, process.ExitUsage, "DEFAULT_BACKGROUND_WORKER_TYPE is legacy: the api does the work of a reconciler itself"},
		{[]string{"EDGE_WORKERS_PUBSUB_TOPIC", ""}, process.ExitUsage, "EDGE_WORKERS_PUBSUB_TOPIC is not set"},
		{[]string{"EDGE_WORKERS_DATABASE_URL", "root:hunter2@tcp(127.0.0.1:9)/x"}, process.ExitFailed, "127.0.0.1:9"},
	} {
		code, out := processtest.Run(t, settings(t, "127.0.0.1:9", c.pairs...))
		if code != c.code || !strings.Contains(out, c.says) || strings.Contains(out, "hunter2") {
			t.Errorf("%v: exit code %d: %s", c.pairs, code, out)
		}
	}
	code, out := processtest.Run(t, settings(t, "127.0.0.1:9"), "--check-config")
	if code != 0 || !strings.Contains(out, "reconciler: the settings are valid") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
