package fleet

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/config"
)

// broker is a fleet's queue.
type broker interface {
	// Environment selects the broker and leads to the queue.
	Environment() []string
	// Inject puts bytes onto the queue. It reports false where nobody can.
	Inject(raw []byte) bool
	// Dead is how many messages were given up on.
	Dead() int
}

// open makes the broker of a transport.
func open(t TB, transport string) broker {
	t.Helper()
	switch transport {
	case config.PubSubBroker:
		return openPubSub(t)
	case config.SQSBroker:
		return openSQS(t)
	case config.BatchBroker:
		return openBatch(t)
	}
	return legacy{}
}

// legacy is no queue: the api does what it has accepted.
type legacy struct{}

func (legacy) Environment() []string {
	return []string{"DEFAULT_BACKGROUND_WORKER_TYPE", config.Legacy}
}
func (legacy) Inject([]byte) bool { return false }
func (legacy) Dead() int          { return 0 }

// pubSub is Google's fake of Pub/Sub, in the test's process.
type pubSub struct {
	t      TB
	server *pstest.Server
	mu     sync.Mutex
	dead   map[string]bool
}

const (
	pubSubProject = "edge-test"
	deliveries    = 5
)

func pubSubName(kind, id string) string { return "projects/" + pubSubProject + "/" + kind + "/" + id }

func openPubSub(t TB) *pubSub {
	t.Helper()
	b := &pubSub{t: t, server: pstest.NewServer(), dead: map[string]bool{}}
	t.Cleanup(func() { _ = b.server.Close() })
	for _, topic := range []string{"jobs", "dead"} {
		_, err := b.server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: pubSubName("topics", topic)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for subscription, policy := range map[string]*pubsubpb.DeadLetterPolicy{
		"jobs": {DeadLetterTopic: pubSubName("topics", "dead"), MaxDeliveryAttempts: deliveries}, "dead": nil,
	} {
		_, err := b.server.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: pubSubName("subscriptions", subscription), Topic: pubSubName("topics", subscription), AckDeadlineSeconds: 10, DeadLetterPolicy: policy,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *pubSub) Environment() []string {
	return []string{
		"DEFAULT_BACKGROUND_WORKER_TYPE", config.PubSubBroker, "EDGE_WORKERS_PUBSUB_PROJECT", pubSubProject, "EDGE_WORKERS_PUBSUB_TOPIC", "jobs",
		"EDGE_WORKERS_PUBSUB_SUBSCRIPTION", "jobs", "EDGE_WORKERS_PUBSUB_ENDPOINT", b.server.Addr,
	}
}

func (b *pubSub) Inject(raw []byte) bool {
	b.server.Publish(pubSubName("topics", "jobs"), raw, nil)
	return true
}

func (b *pubSub) Dead() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.pull("dead") {
		b.dead[m.GetMessage().GetMessageId()] = true
	}
	return len(b.dead)
}

// lose takes away all messages that wait now, as if they had never been
// published, and gives them. No deployer may run.
func (b *pubSub) lose() [][]byte {
	var lost [][]byte
	for _, m := range b.pull("jobs") {
		lost = append(lost, m.GetMessage().GetData())
		_, err := b.server.GServer.Acknowledge(context.WithoutCancel(b.t.Context()), &pubsubpb.AcknowledgeRequest{
			Subscription: pubSubName("subscriptions", "jobs"), AckIds: []string{m.GetAckId()},
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return lost
}

func (b *pubSub) pull(subscription string) []*pubsubpb.ReceivedMessage {
	got, err := b.server.GServer.Pull(context.WithoutCancel(b.t.Context()), &pubsubpb.PullRequest{
		Subscription: pubSubName("subscriptions", subscription), MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // a fake need not be spared
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return got.GetReceivedMessages()
}

// sqsVariable holds the address of a server that speaks SQS.
const sqsVariable = "EDGE_TEST_SQS_URL"

const sqsRegion = "us-east-1"

// sqsQueue is a queue with its dead-letter queue on a server that speaks SQS.
type sqsQueue struct {
	t         TB
	api       *sqs.Client
	endpoint  string
	url, dead string
}

func openSQS(t TB) *sqsQueue {
	t.Helper()
	b := &sqsQueue{t: t, endpoint: os.Getenv(sqsVariable)}
	if b.endpoint == "" {
		t.Fatalf("%s is not set: run `make e2e`", sqsVariable)
	}
	service := awsclient.Service{Region: sqsRegion, Endpoint: b.endpoint, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "anybody", SecretAccessKey: "anything"}, nil
	})}
	settings, err := service.Config(t.Context(), awsclient.Wire{Connect: 5 * time.Second, Silence: 20 * time.Second, MaxIdle: 4}, 3, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.api = sqs.NewFromConfig(settings)
	name := "edge-fleet-" + uuid.NewString()
	b.dead = b.create(name+"-dead", nil)
	arn := b.attribute(b.dead, types.QueueAttributeNameQueueArn)
	b.url = b.create(name, map[string]string{
		"VisibilityTimeout": "120", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":"%d"}`, arn, deliveries),
	})
	return b
}

func (b *sqsQueue) create(name string, attributes map[string]string) string {
	b.t.Helper()
	made, err := b.api.CreateQueue(b.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		b.t.Fatal(err)
	}
	return *made.QueueUrl
}

func (b *sqsQueue) attribute(queue string, name types.QueueAttributeName) string {
	b.t.Helper()
	got, err := b.api.GetQueueAttributes(context.WithoutCancel(b.t.Context()), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{name}})
	if err != nil {
		b.t.Fatal(err)
	}
	return got.Attributes[string(name)]
}

func (b *sqsQueue) Environment() []string {
	return []string{
		"DEFAULT_BACKGROUND_WORKER_TYPE", config.SQSBroker, "EDGE_WORKERS_AWS_REGION", sqsRegion, "EDGE_WORKERS_AWS_ENDPOINT", b.endpoint,
		"EDGE_WORKERS_SQS_QUEUE_URL", b.url, "AWS_ACCESS_KEY_ID", "anybody", "AWS_SECRET_ACCESS_KEY", "anything",
	}
}

func (b *sqsQueue) Inject(raw []byte) bool {
	_, err := b.api.SendMessage(b.t.Context(), &sqs.SendMessageInput{QueueUrl: &b.url, MessageBody: aws.String(string(raw))})
	if err != nil {
		b.t.Fatal(err)
	}
	return true
}

func (b *sqsQueue) Dead() int {
	var n int
	_, err := fmt.Sscan(b.attribute(b.dead, types.QueueAttributeNameApproximateNumberOfMessages), &n)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
