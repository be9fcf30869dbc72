package pubsub_test

import (
	"os"
	"path"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/pubsub"
)

// define reads one of the definitions that the chart ships, and refuses fields
// that the service does not know.
func define(t *testing.T, file string, into proto.Message) {
	t.Helper()
	raw, err := os.ReadFile("../../charts/edge-workers/examples/pubsub/" + file)
	must(t, err)
	err = protojson.Unmarshal(raw, into)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The definitions that operators are given make a broker that this transport
// works with: the service takes them, and what is published arrives. A message
// is tried five times with a pause of 10 to 600 seconds, then kept aside; no
// subscription goes away because nothing was deployed for a month.
func TestShippedDefinitions(t *testing.T) {
	t.Parallel()
	var topic, deadTopic pubsubpb.Topic
	var subscription, deadSubscription pubsubpb.Subscription
	define(t, "topic.json", &topic)
	define(t, "dead-letter-topic.json", &deadTopic)
	define(t, "subscription.json", &subscription)
	define(t, "dead-letter-subscription.json", &deadSubscription)
	retry, dead := subscription.GetRetryPolicy(), subscription.GetDeadLetterPolicy()
	if subscription.AckDeadlineSeconds != 60 || dead.GetMaxDeliveryAttempts() != 5 ||
		retry.GetMinimumBackoff().AsDuration() != 10*time.Second || retry.GetMaximumBackoff().AsDuration() != 600*time.Second {
		t.Errorf("subscription %v", &subscription)
	}
	if subscription.GetTopic() != topic.GetName() || dead.GetDeadLetterTopic() != deadTopic.GetName() || deadSubscription.GetTopic() != deadTopic.GetName() {
		t.Error("the definitions do not fit together")
	}
	for _, s := range []*pubsubpb.Subscription{&subscription, &deadSubscription} {
		if policy := s.GetExpirationPolicy(); policy == nil || policy.GetTtl() != nil || s.GetMessageRetentionDuration().AsDuration() != 7*24*time.Hour {
			t.Errorf("%s expires %v, keeps messages for %v", s.GetName(), policy, s.GetMessageRetentionDuration())
		}
	}
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	for _, one := range []*pubsubpb.Topic{&deadTopic, &topic} {
		_, err := server.GServer.CreateTopic(t.Context(), one)
		must(t, err)
	}
	for _, one := range []*pubsubpb.Subscription{&subscription, &deadSubscription} {
		_, err := server.GServer.CreateSubscription(t.Context(), one)
		must(t, err)
	}
	place := pubsub.Place{Project: "example-production", Endpoint: server.Addr}
	publisher, err := pubsub.NewPublisher(t.Context(), place, path.Base(topic.GetName()))
	must(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	must(t, publisher.Publish(t.Context(), transports.Deploy("o", "c", "d", "m")))
	if got := len(server.Messages()); got != 1 {
		t.Errorf("%d messages are on the topic", got)
	}
}
