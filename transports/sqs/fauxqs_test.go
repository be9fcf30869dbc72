//go:build sqs

package sqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/awsclient/awsclienttest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/sqs"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

// variable holds the address of a server that speaks SQS.
const variable = "EDGE_TEST_SQS_URL"

// broker is a queue of its own with its dead-letter queue, on that server.
type broker struct {
	*sqs.Publisher
	queue sqs.Queue
	dead  string
	api   *awssqs.Client
}

func open(t testing.TB, attributes map[string]string) *broker {
	t.Helper()
	service := awsclient.Service{Region: "us-east-1", Endpoint: os.Getenv(variable), Credentials: awsclienttest.Anybody}
	if service.Endpoint == "" {
		t.Fatalf("%s is not set: run `make test-sqs`", variable)
	}
	config, err := service.Config(t.Context(), awsclient.Wire{Connect: 5 * time.Second, Silence: 20 * time.Second, MaxIdle: 2}, 3, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{api: awssqs.NewFromConfig(config)}
	name := "edge-test-" + uuid.NewString()
	b.dead = b.create(t, name+"-dead", nil)
	all := map[string]string{
		"RedrivePolicy":     fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":"%d"}`, b.attribute(t, b.dead, "QueueArn"), b.Deliveries()),
		"VisibilityTimeout": "120",
	}
	for key, value := range attributes {
		all[key] = value
		if value == "" {
			delete(all, key)
		}
	}
	b.queue = sqs.Queue{URL: b.create(t, name, all), Service: service}
	b.Publisher, err = sqs.NewPublisher(t.Context(), b.queue)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *broker) create(t testing.TB, name string, attributes map[string]string) string {
	t.Helper()
	made, err := b.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return *made.QueueUrl
}

func (b *broker) attribute(t testing.TB, queue, name string) string {
	t.Helper()
	all, err := b.api.GetQueueAttributes(context.WithoutCancel(t.Context()), &awssqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)}})
	if err != nil {
		t.Fatal(err)
	}
	return all.Attributes[name]
}

func (b *broker) messages(t testing.TB, queue, state string) int {
	t.Helper()
	n, err := strconv.Atoi(b.attribute(t, queue, "ApproximateNumberOfMessages"+state))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *broker) Inject(t testing.TB, raw []byte) {
	t.Helper()
	_, err := b.api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &b.queue.URL, MessageBody: aws.String(string(raw))})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *broker) Dead(t testing.TB) int {
	t.Helper()
	return b.messages(t, b.dead, "")
}

func (b *broker) Deliveries() int { return 5 }

func (b *broker) Consumer(t testing.TB, receiver *transports.Receiver, drain time.Duration) transports.Consumer {
	t.Helper()
	return b.consumer(t, sqs.Params{Receiver: receiver, Drain: drain})
}

func (b *broker) consumer(t testing.TB, p sqs.Params) *sqs.Consumer {
	t.Helper()
	p.Queue, p.RetryAfter, p.Log = b.queue, func(int) time.Duration { return 0 }, slog.New(slog.DiscardHandler)
	c, err := sqs.NewConsumer(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// S1-253 to S1-270 on a server that speaks SQS.
func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Features{Serial: true, Durable: true, Injectable: true}, func(t *testing.T) transporttest.Broker { return open(t, nil) })
}
