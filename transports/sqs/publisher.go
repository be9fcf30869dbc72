package sqs

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/transports"
)

// Publisher puts messages onto a queue.
type Publisher struct {
	queue string
	api   *sqs.Client
}

var _ transports.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher. It asks nobody but for where credentials come
// from.
func NewPublisher(ctx context.Context, q Queue) (*Publisher, error) {
	api, err := q.client(ctx)
	if err != nil {
		return nil, err
	}
	return &Publisher{queue: q.URL, api: api}, nil
}

// Publish sends the message (S1-253). A lost answer is retried within the call:
// a copy does no harm. The error is transports.ErrRefused when every attempt was
// definitely rejected or none was made, within 8 s.
func (p *Publisher) Publish(ctx context.Context, message transports.Message) error {
	body, err := message.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var witness awsclient.Witness
	_, err = p.api.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &p.queue, MessageBody: aws.String(string(body))}, sqs.WithAPIOptions(witness.Watch))
	switch {
	case err == nil:
		return nil
	case witness.MayHaveHappened():
		return awsclient.Failure("SQS SendMessage", err)
	}
	return fmt.Errorf("%w: %w", transports.ErrRefused, awsclient.Failure("SQS SendMessage", err))
}
