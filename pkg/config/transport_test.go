package config

import (
	"strings"
	"testing"
	"time"
)

const worker = "DEFAULT_BACKGROUND_WORKER_TYPE"

// broker is the environment of a process with a transport, and nothing that the
// process does not need.
func broker(kind string, pairs ...string) map[string]string {
	lean := []string{"EDGE_WORKERS_AUTH_JWKS_URL", "", "EDGE_WORKERS_AUTH_ISSUER", "", "EDGE_WORKERS_AUTH_AUDIENCE", "", worker, kind}
	return with(append(lean, pairs...)...)
}

var (
	viaPubSub = []string{"EDGE_WORKERS_PUBSUB_PROJECT", "p", "EDGE_WORKERS_PUBSUB_TOPIC", "jobs", "EDGE_WORKERS_PUBSUB_SUBSCRIPTION", "deployers"}
	viaSQS    = []string{"EDGE_WORKERS_AWS_REGION", "eu-west-1", "EDGE_WORKERS_SQS_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/123456789012/jobs"}
	viaBatch  = []string{
		"EDGE_WORKERS_AWS_REGION", "eu-west-1", "EDGE_WORKERS_BATCH_JOB_QUEUE", "jobs", "EDGE_WORKERS_BATCH_JOB_DEFINITION", "deploy:3",
		"AWS_BATCH_JOB_ID", "0001", "AWS_BATCH_JOB_ATTEMPT", "2",
	}
)

// S1-249: each of the four selects its transport. Deployers and reconcilers need
// no settings of the routes; with legacy there are none of them.
func TestTransports(t *testing.T) {
	t.Parallel()
	for kind, pairs := range map[string][]string{PubSubBroker: viaPubSub, SQSBroker: viaSQS, BatchBroker: viaBatch} {
		for _, binary := range []Binary{Deployer, Reconciler} {
			got, err := Load(broker(kind, pairs...), binary)
			if err != nil || got.Transport.Type != kind {
				t.Errorf("%s, %s: %q, %v", kind, binary, got.Transport.Type, err)
			}
		}
		if _, err := Load(with(append([]string{worker, kind}, pairs...)...), API); err != nil {
			t.Errorf("%s, api: %v", kind, err)
		}
		if _, err := Load(broker(kind, pairs...), API); err == nil || !strings.Contains(err.Error(), "EDGE_WORKERS_AUTH_JWKS_URL") {
			t.Errorf("%s, api without identity: %v", kind, err)
		}
	}
	for _, binary := range []Binary{Deployer, Reconciler} {
		_, err := Load(broker(Legacy), binary)
		if err == nil || !strings.Contains(err.Error(), worker+" is legacy") || !strings.Contains(err.Error(), string(binary)) {
			t.Errorf("%s: %v", binary, err)
		}
	}
}

// A process says which of its transport's settings is missing or wrong, and minds
// no other transport's.
func TestTransportRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		good   []string
		change []string
		says   string
		of     []Binary // none: of all
	}{
		{PubSubBroker, viaPubSub, []string{"EDGE_WORKERS_PUBSUB_PROJECT", ""}, "EDGE_WORKERS_PUBSUB_PROJECT is not set", nil},
		{PubSubBroker, viaPubSub, []string{"EDGE_WORKERS_PUBSUB_TOPIC", ""}, "EDGE_WORKERS_PUBSUB_TOPIC is not set", []Binary{API, Reconciler}},
		{PubSubBroker, viaPubSub, []string{"EDGE_WORKERS_PUBSUB_SUBSCRIPTION", ""}, "EDGE_WORKERS_PUBSUB_SUBSCRIPTION is not set", []Binary{Deployer}},
		{PubSubBroker, viaPubSub, []string{"EDGE_WORKERS_PUBSUB_ENDPOINT", "http://127.0.0.1:8085"}, "EDGE_WORKERS_PUBSUB_ENDPOINT is not host:port", nil},
		{PubSubBroker, viaPubSub, []string{"PUBSUB_MAX_LEASE_SECONDS", "59"}, "PUBSUB_MAX_LEASE_SECONDS must be a number from 60", nil},
		{PubSubBroker, viaPubSub, []string{"PUBSUB_MAX_LEASE_SECONDS", "an hour"}, "PUBSUB_MAX_LEASE_SECONDS must be a number", nil},
		{PubSubBroker, viaPubSub, []string{"PUBSUB_DRAIN_TIMEOUT_SECONDS", "3600"}, "PUBSUB_DRAIN_TIMEOUT_SECONDS must be a number from 1 to 3540", nil},
		{SQSBroker, viaSQS, []string{"EDGE_WORKERS_AWS_REGION", ""}, "EDGE_WORKERS_AWS_REGION is not set", nil},
		{SQSBroker, viaSQS, []string{"EDGE_WORKERS_SQS_QUEUE_URL", ""}, "EDGE_WORKERS_SQS_QUEUE_URL is not set", nil},
		{SQSBroker, viaSQS, []string{"EDGE_WORKERS_SQS_QUEUE_URL", "https://u:" + hidden + "@sqs/"}, "EDGE_WORKERS_SQS_QUEUE_URL is not", nil},
		{SQSBroker, viaSQS, []string{"EDGE_WORKERS_AWS_ENDPOINT", "localhost:4566"}, "EDGE_WORKERS_AWS_ENDPOINT is not", nil},
		{BatchBroker, viaBatch, []string{"EDGE_WORKERS_BATCH_JOB_QUEUE", ""}, "EDGE_WORKERS_BATCH_JOB_QUEUE is not set", []Binary{API, Reconciler}},
		{BatchBroker, viaBatch, []string{"EDGE_WORKERS_BATCH_JOB_DEFINITION", ""}, "EDGE_WORKERS_BATCH_JOB_DEFINITION is not set", []Binary{API, Reconciler}},
		{BatchBroker, viaBatch, []string{"AWS_BATCH_JOB_ID", ""}, "AWS_BATCH_JOB_ID", []Binary{Deployer}},
		{BatchBroker, viaBatch, []string{"AWS_BATCH_JOB_ATTEMPT", "0"}, "AWS_BATCH_JOB_ATTEMPT", []Binary{Deployer}},
	} {
		for _, binary := range []Binary{API, Deployer, Reconciler} {
			pairs := append(append([]string{worker, c.kind}, c.good...), c.change...)
			_, err := Load(with(pairs...), binary)
			wanted := len(c.of) == 0
			for _, one := range c.of {
				wanted = wanted || one == binary
			}
			if wanted != (err != nil) || (wanted && !strings.Contains(err.Error(), c.says)) || (err != nil && strings.Contains(err.Error(), hidden)) {
				t.Errorf("%s, %v: %v", binary, c.change, err)
			}
		}
		if _, err := Load(with(append([]string{worker, Legacy}, c.change...)...), API); err != nil && !strings.HasPrefix(c.change[0], "PUBSUB_") {
			t.Errorf("legacy minds %v: %v", c.change, err)
		}
	}
}

// S1-255, S1-256: set values are used.
func TestLimits(t *testing.T) {
	t.Parallel()
	got, err := Load(broker(PubSubBroker, append(viaPubSub, "PUBSUB_MAX_LEASE_SECONDS", "600", "PUBSUB_DRAIN_TIMEOUT_SECONDS", "45")...), Deployer)
	if err != nil || got.Transport.Lease() != 10*time.Minute || got.Transport.DrainLimit() != 45*time.Second {
		t.Errorf("%v, %v, %v", got.Transport.Lease(), got.Transport.DrainLimit(), err)
	}
	got, err = Load(broker(BatchBroker, viaBatch...), Deployer)
	if err != nil || got.Batch.JobID != "0001" || got.Batch.Attempt() != 2 || got.Transport.DrainLimit() != 3300*time.Second {
		t.Errorf("%+v, %v, %v", got.Batch, got.Transport.DrainLimit(), err)
	}
}
