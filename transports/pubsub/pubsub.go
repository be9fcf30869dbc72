// Package pubsub is the transport over Google Cloud Pub/Sub (S1-252).
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/teamsync/edge-workers/transports"
)

// callLimit bounds one call of the broker, repeated tries included.
const callLimit = 20 * time.Second

// Place says where the broker is.
type Place struct {
	// Project is the Google Cloud project.
	Project string
	// Endpoint is the host:port of an emulator, which is spoken to without TLS
	// and credentials. Empty is the service itself, with the application's
	// default credentials.
	Endpoint string
}

func (p Place) open(ctx context.Context) (*pubsub.Client, error) {
	if p.Project == "" {
		return nil, errors.New("pubsub: a project is required")
	}
	var options []option.ClientOption
	if p.Endpoint != "" {
		options = []option.ClientOption{
			option.WithEndpoint(p.Endpoint), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}
	}
	client, err := pubsub.NewClient(ctx, p.Project, options...)
	if err != nil {
		return nil, fmt.Errorf("open Pub/Sub: %w", err)
	}
	return client, nil
}

// Publisher sends messages to one topic.
type Publisher struct {
	client *pubsub.Client
	topic  *pubsub.Publisher
}

// NewPublisher connects to the topic of that id; it sends nothing yet.
func NewPublisher(ctx context.Context, place Place, topic string) (*Publisher, error) {
	if topic == "" {
		return nil, errors.New("pubsub: a topic is required")
	}
	client, err := place.open(ctx)
	if err != nil {
		return nil, err
	}
	p := &Publisher{client: client, topic: client.Publisher(topic)}
	p.topic.PublishSettings.CountThreshold = 1 // whoever waits for this message waits for no other
	p.topic.PublishSettings.Timeout = callLimit
	return p, nil
}

// Publish sends one message and waits until the broker has it.
func (p *Publisher) Publish(ctx context.Context, message transports.Message) error {
	raw, err := message.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err = p.topic.Publish(ctx, &pubsub.Message{Data: raw}).Get(ctx)
	switch {
	case err == nil:
		return nil
	case slices.Contains(refusals, status.Code(err)):
		return fmt.Errorf("%w: %w", transports.ErrRefused, err)
	}
	return fmt.Errorf("publish to %s: %w", p.topic.ID(), err)
}

// refusals are answers after which the message is certainly not on the topic.
// The client itself repeats what may be repeated.
var refusals = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.Unimplemented,
}

// Close gives the connection back.
func (p *Publisher) Close() error {
	p.topic.Stop()
	return p.client.Close()
}
