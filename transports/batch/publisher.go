// Package batch is the transport over AWS Batch: a job for each message, which
// runs the deployer once. Batch keeps, starts and retries the jobs; nothing of
// ours consumes a queue.
package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"

	"github.com/teamsync/edge-workers/pkg/awsclient"
	"github.com/teamsync/edge-workers/transports"
)

// Params is what a Publisher is made of.
type Params struct {
	awsclient.Service
	// JobQueue is the name or ARN of the queue that jobs are submitted to.
	JobQueue string
	// JobDefinition is the name, name:revision or ARN of the jobs' definition.
	JobDefinition string
	Log           *slog.Logger
}

// The limits of a call. A publication is three of them at most, and its caller
// has 10 s.
const (
	connectTimeout = time.Second
	silence        = 2500 * time.Millisecond
	callTimeout    = 3 * time.Second
	lookupAttempts = 2
	maxBackoff     = 200 * time.Millisecond
	maxIdle        = 4
)

// Publisher submits a job for each message.
type Publisher struct {
	p   Params
	api *batch.Client
}

var _ transports.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher. It asks nobody but for where credentials come
// from.
func NewPublisher(ctx context.Context, p Params) (*Publisher, error) {
	return newPublisher(ctx, p, awsclient.Wire{Connect: connectTimeout, Silence: silence, MaxIdle: maxIdle})
}

func newPublisher(ctx context.Context, p Params, wire awsclient.Wire) (*Publisher, error) {
	if p.JobQueue == "" || p.JobDefinition == "" || p.Log == nil {
		return nil, errors.New("AWS Batch: job queue, job definition and log are required")
	}
	config, err := p.Config(ctx, wire, lookupAttempts, maxBackoff)
	if err != nil {
		return nil, fmt.Errorf("AWS Batch: %w", err)
	}
	return &Publisher{p: p, api: batch.NewFromConfig(config)}, nil
}

// Publish submits the message's job (S1-253), unless one of its name is
// unfinished: that one is the message. SubmitJob has no token that would make a
// repetition harmless, so it is never repeated: after a lost answer the job is
// looked for. Publishers that ask at the same time may submit a job each; the
// row's lease lets one of them work (S1-266).
func (p *Publisher) Publish(ctx context.Context, message transports.Message) error {
	name, err := JobName(message)
	if err != nil {
		return err
	}
	job, err := p.unfinished(ctx, name)
	if err != nil {
		return fmt.Errorf("%w: nothing was submitted: %w", transports.ErrRefused, err)
	}
	if job != "" {
		p.p.Log.InfoContext(ctx, "the message's job is unfinished; no other is submitted", "job_name", name, "batch_job_id", job)
		return nil
	}
	open, err := p.submit(ctx, name, message)
	switch {
	case err == nil:
		return nil
	case !open:
		return fmt.Errorf("%w: %w", transports.ErrRefused, err)
	}
	job, lookup := p.unfinished(ctx, name)
	if job != "" {
		p.p.Log.InfoContext(ctx, "the message's job was found after a lost answer", "job_name", name, "batch_job_id", job, "error", err)
		return nil
	}
	return errors.Join(err, lookup)
}

// submit asks once. It tells whether a failed call may have made the job.
func (p *Publisher) submit(ctx context.Context, name string, message transports.Message) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var witness awsclient.Witness
	_, err := p.api.SubmitJob(ctx, &batch.SubmitJobInput{
		JobName: &name, JobQueue: &p.p.JobQueue, JobDefinition: &p.p.JobDefinition, Parameters: parameters(message),
	}, batch.WithAPIOptions(witness.Watch), func(o *batch.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return witness.MayHaveHappened(), awsclient.Failure("AWS Batch SubmitJob", err)
	}
	return false, nil
}

// The bounds of a look-up. Batch lists the newest jobs first, and forgets ended
// ones after some days, so that more than this of one name are not to be
// expected; an unfinished one would be at the beginning.
const (
	pageSize = 100
	maxPages = 5
)

// unfinished gives the id of an unfinished job of the name, or "".
func (p *Publisher) unfinished(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := &batch.ListJobsInput{
		JobQueue: &p.p.JobQueue, MaxResults: aws.Int32(pageSize),
		Filters: []types.KeyValuesPair{{Name: aws.String("JOB_NAME"), Values: []string{name}}},
	}
	for range maxPages {
		out, err := p.api.ListJobs(ctx, in)
		if err != nil {
			return "", awsclient.Failure("AWS Batch ListJobs", err)
		}
		for _, job := range out.JobSummaryList {
			// The filter does not tell upper from lower case.
			if aws.ToString(job.JobName) == name && isUnfinished(job.Status) {
				return aws.ToString(job.JobId), nil
			}
		}
		in.NextToken = out.NextToken
		if aws.ToString(in.NextToken) == "" {
			break
		}
	}
	return "", nil
}

func isUnfinished(status types.JobStatus) bool {
	return status != types.JobStatusSucceeded && status != types.JobStatusFailed
}

// namePrefix begins the name of each job.
const namePrefix = "edge-worker-deploy-"

// jobName is what Batch takes as a job's name, up to 128 characters.
var jobName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,127}\z`)

// JobName gives the name of a message's job: edge-worker-deploy- and the message
// id, the same for each publication of the message. The error, ErrMalformed,
// says that the message cannot be carried by a job.
func JobName(message transports.Message) (string, error) {
	err := message.Validate()
	if err != nil {
		return "", err
	}
	name := namePrefix + message.JobID
	if !jobName.MatchString(name) {
		return "", fmt.Errorf("%w: the message id cannot be part of a job's name", transports.ErrMalformed)
	}
	return name, nil
}

// parameters are what the job definition's command refers to.
func parameters(message transports.Message) map[string]string {
	return map[string]string{
		"outbox_id": message.Args[0], "company_id": message.Args[1], "department_id": message.Args[2], "message_id": message.Args[3],
	}
}
