package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// The transports (S1-249).
const (
	Legacy       = "legacy"
	PubSubBroker = "pubsub"
	SQSBroker    = "sqs"
	BatchBroker  = "batch"
)

// The ranges of a lease and a drain, in seconds. SQS keeps a message from others
// for twelve hours at most; a drain must end before the grace does.
const (
	leastLease, mostLease = 60, 43200
	leastDrain, mostDrain = 1, 3540
)

// Lease gives how long a message in work is kept from others.
func (t Transport) Lease() time.Duration { return seconds(t.MaxLease) }

// DrainLimit gives how long work may go on after a stop.
func (t Transport) DrainLimit() time.Duration { return seconds(t.Drain) }

// seconds is for a text that was checked.
func seconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Second
}

// Attempt gives which attempt of its job this process is; 0 outside of Batch.
func (b Batch) Attempt() int {
	n, _ := strconv.Atoi(b.JobAttempt) // it was checked
	return n
}

func (t Transport) check() error {
	return errors.Join(
		oneOf("DEFAULT_BACKGROUND_WORKER_TYPE", t.Type, Legacy, PubSubBroker, SQSBroker, BatchBroker),
		within("PUBSUB_MAX_LEASE_SECONDS", t.MaxLease, leastLease, mostLease),
		within("PUBSUB_DRAIN_TIMEOUT_SECONDS", t.Drain, leastDrain, mostDrain),
	)
}

func within(variable, text string, least, most int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return fmt.Errorf("%s must be a number from %d to %d, not %q", variable, least, most, text)
	}
	return nil
}

// checkTransport checks the settings of the selected transport, and only those,
// for what the process does with it: a deployer consumes, others publish.
func (s Settings) checkTransport(binary Binary) error {
	err := s.Transport.check()
	if err != nil {
		return err
	}
	consumes := binary == Deployer
	switch s.Transport.Type {
	case PubSubBroker:
		return s.PubSub.check(consumes)
	case SQSBroker:
		return errors.Join(s.AWS.check(), s.SQS.check())
	case BatchBroker:
		return s.checkBatch(consumes)
	}
	if binary == Deployer || binary == Reconciler {
		return fmt.Errorf("DEFAULT_BACKGROUND_WORKER_TYPE is %s: the api does the work of a %s itself, and none is started", Legacy, binary)
	}
	return nil
}

func (p PubSub) check(consumes bool) error {
	faults := []error{needed("EDGE_WORKERS_PUBSUB_PROJECT", p.Project)}
	if consumes {
		faults = append(faults, needed("EDGE_WORKERS_PUBSUB_SUBSCRIPTION", p.Subscription))
	} else {
		faults = append(faults, needed("EDGE_WORKERS_PUBSUB_TOPIC", p.Topic))
	}
	if p.Endpoint != "" {
		faults = append(faults, address("EDGE_WORKERS_PUBSUB_ENDPOINT", p.Endpoint))
	}
	return errors.Join(faults...)
}

func (a AWS) check() error {
	faults := []error{needed("EDGE_WORKERS_AWS_REGION", a.Region)}
	if a.Endpoint != "" {
		faults = append(faults, httpURL("EDGE_WORKERS_AWS_ENDPOINT", a.Endpoint))
	}
	return errors.Join(faults...)
}

func (q SQS) check() error {
	const variable = "EDGE_WORKERS_SQS_QUEUE_URL"
	if q.QueueURL == "" {
		return needed(variable, q.QueueURL)
	}
	return httpURL(variable, q.QueueURL)
}

func httpURL(variable, text string) error {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" || parsed.User != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") {
		return fmt.Errorf("%s is not an http(s) URL", variable)
	}
	return nil
}

// checkBatch: a job asks nothing of Batch.
func (s Settings) checkBatch(consumes bool) error {
	if !consumes {
		return errors.Join(
			s.AWS.check(), needed("EDGE_WORKERS_BATCH_JOB_QUEUE", s.Batch.JobQueue),
			needed("EDGE_WORKERS_BATCH_JOB_DEFINITION", s.Batch.JobDefinition),
		)
	}
	n, err := strconv.Atoi(s.Batch.JobAttempt)
	if s.Batch.JobID == "" || err != nil || n < 1 {
		return errors.New("AWS_BATCH_JOB_ID and AWS_BATCH_JOB_ATTEMPT are not set: with batch a deployer is started by AWS Batch, one for each job")
	}
	return nil
}
