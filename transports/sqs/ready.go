package sqs

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/teamsync/edge-workers/pkg/awsclient"
)

// Ready implements transports.Consumer. It refuses a queue without a
// dead-letter queue, on which a message that never works would circle until it
// expires (S1-270).
func (c *Consumer) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       &c.p.URL,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameRedrivePolicy, types.QueueAttributeNameVisibilityTimeout},
	})
	if err != nil {
		return awsclient.Failure("SQS GetQueueAttributes", err)
	}
	return checkQueue(out.Attributes)
}

func checkQueue(attributes map[string]string) error {
	if attributes[string(types.QueueAttributeNameVisibilityTimeout)] == "0" {
		return errors.New("SQS: the queue's visibility time-out is 0, so that each consumer gets every message: set its attribute VisibilityTimeout to 120")
	}
	var redrive struct {
		Target string      `json:"deadLetterTargetArn"`
		Max    json.Number `json:"maxReceiveCount"` // AWS writes a number, and takes and keeps a string too
	}
	policy := attributes[string(types.QueueAttributeNameRedrivePolicy)]
	if policy != "" {
		err := json.Unmarshal([]byte(policy), &redrive)
		if err != nil {
			return errors.New("SQS: the queue's RedrivePolicy cannot be read")
		}
	}
	limit, err := redrive.Max.Int64()
	if redrive.Target == "" || err != nil || limit < 1 {
		return errors.New(`SQS: the queue has no dead-letter queue: set its attribute RedrivePolicy to {"deadLetterTargetArn":"<the dead-letter queue's ARN>","maxReceiveCount":"5"}`)
	}
	return nil
}
