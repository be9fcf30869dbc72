package setup

import (
	"context"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch"
	"github.com/teamsync/edge-workers/transports/pubsub"
	"github.com/teamsync/edge-workers/transports/sqs"
)

// openPublisher opens the way to the broker that the settings select (S1-249).
func (p *parts) openPublisher(ctx context.Context) (transports.Publisher, error) {
	s := p.Settings
	switch s.Transport.Type {
	case config.PubSubBroker:
		publisher, err := pubsub.NewPublisher(ctx, pubsub.Place{Project: s.PubSub.Project, Endpoint: s.PubSub.Endpoint}, s.PubSub.Topic)
		if err != nil {
			return nil, err
		}
		p.opened = append(p.opened, publisher)
		return publisher, nil
	case config.SQSBroker:
		return sqs.NewPublisher(ctx, p.queue())
	case config.BatchBroker:
		return batch.NewPublisher(ctx, batch.Params{Service: p.aws(), JobQueue: s.Batch.JobQueue, JobDefinition: s.Batch.JobDefinition, Log: p.Log})
	}
	return nil, noBroker(s.Transport.Type)
}

// openConsumer opens the way from the broker that the settings select.
func (p *parts) openConsumer(ctx context.Context, receiver *transports.Receiver) (transports.Consumer, error) {
	s := p.Settings
	switch s.Transport.Type {
	case config.PubSubBroker:
		consumer, err := pubsub.NewConsumer(ctx, pubsub.ConsumerParams{
			Place: pubsub.Place{Project: s.PubSub.Project, Endpoint: s.PubSub.Endpoint}, Subscription: s.PubSub.Subscription,
			Receiver: receiver, MaxLease: s.Transport.Lease(), Drain: s.Transport.DrainLimit(), Log: p.Log,
		})
		if err != nil {
			return nil, err
		}
		p.opened = append(p.opened, consumer)
		return consumer, nil
	case config.SQSBroker:
		consumer, err := sqs.NewConsumer(ctx, sqs.Params{
			Queue: p.queue(), Receiver: receiver, MaxLease: s.Transport.Lease(), Drain: s.Transport.DrainLimit(), Log: p.Log,
		})
		if err != nil {
			return nil, err
		}
		p.opened = append(p.opened, consumer)
		return consumer, nil
	}
	return nil, noBroker(s.Transport.Type)
}

func (p *parts) queue() sqs.Queue {
	return sqs.Queue{URL: p.Settings.SQS.QueueURL, Service: p.aws()}
}

func (p *parts) aws() awsclient.Service {
	return awsclient.Service{Region: p.Settings.AWS.Region, Endpoint: p.Settings.AWS.Endpoint}
}

func noBroker(kind string) error {
	return fmt.Errorf("DEFAULT_BACKGROUND_WORKER_TYPE: %s is no broker", kind)
}
