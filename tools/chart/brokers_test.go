package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/batch/types"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// The definitions of Pub/Sub are checked in transports/pubsub, against the
// service's own types.

// strictly reads one JSON document and refuses fields that the type has not.
func strictly[T any](t *testing.T, file string) T {
	t.Helper()
	var value T
	decoder := json.NewDecoder(strings.NewReader(read(t, chartDir+"/examples/"+file)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&value)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return value
}

type queue struct {
	QueueName  string
	Attributes map[string]string
}

// The queue gives a deployer that died 120 s, and a message five tries; then it
// goes to a queue that exists, and is kept there for longer.
func TestQueuesOfSQS(t *testing.T) {
	t.Parallel()
	main, dead := strictly[queue](t, "sqs/queue.json"), strictly[queue](t, "sqs/dead-letter-queue.json")
	known := sqstypes.QueueAttributeName("").Values()
	for _, q := range []queue{main, dead} {
		for name := range q.Attributes {
			if !slices.Contains(known, sqstypes.QueueAttributeName(name)) {
				t.Errorf("%s: SQS has no attribute %s", q.QueueName, name)
			}
		}
	}
	var redrive struct {
		DeadLetterTargetArn string
		MaxReceiveCount     int
	}
	err := json.Unmarshal([]byte(main.Attributes["RedrivePolicy"]), &redrive)
	if err != nil || redrive.MaxReceiveCount != 5 || !strings.HasSuffix(redrive.DeadLetterTargetArn, ":"+dead.QueueName) {
		t.Errorf("redrive %+v, %v", redrive, err)
	}
	if main.Attributes["VisibilityTimeout"] != "120" || main.Attributes["MessageRetentionPeriod"] != "604800" || dead.Attributes["MessageRetentionPeriod"] != "1209600" {
		t.Errorf("attributes %v, %v", main.Attributes, dead.Attributes)
	}
	if url := valueSets(t)["sqs-cloud"]["transport"].(map[string]any)["sqs"].(map[string]any)["queueUrl"].(string); !strings.HasSuffix(url, "/"+main.QueueName) {
		t.Errorf("the example's values name another queue: %s", url)
	}
}

type jobDefinition struct {
	JobDefinitionName    string
	Type                 types.JobDefinitionType
	Parameters           map[string]string
	PlatformCapabilities []types.PlatformCapability
	ContainerProperties  types.ContainerProperties
	RetryStrategy        types.RetryStrategy
	Timeout              types.JobTimeout
	PropagateTags        bool
}

type jobQueue struct {
	JobQueueName            string
	State                   types.JQState
	Priority                int32
	ComputeEnvironmentOrder []types.ComputeEnvironmentOrder
}

type computeEnvironment struct {
	ComputeEnvironmentName string
	Type                   types.CEType
	State                  types.CEState
	ComputeResources       types.ComputeResource
}

// A job is `deployer run` with the four identifiers of a message. It is tried
// five times, unless it is done (0) or its message is malformed (64); the
// control key is a file there too, and no secret's value is in the definition.
func TestJobDefinitionOfBatch(t *testing.T) {
	t.Parallel()
	job := strictly[jobDefinition](t, "batch/job-definition.json")
	c := job.ContainerProperties
	if !slices.Equal(c.Command, []string{"run", "Ref::outbox_id", "Ref::company_id", "Ref::department_id", "Ref::message_id"}) {
		t.Errorf("command %v", c.Command)
	}
	if !strings.Contains(*c.Image, "/deployer:") || *c.User != "65532" || !*c.ReadonlyRootFilesystem {
		t.Errorf("image %s, user %s", *c.Image, *c.User)
	}
	if *job.RetryStrategy.Attempts != 5 || *job.Timeout.AttemptDurationSeconds != 3600 {
		t.Errorf("attempts %d of %d s", *job.RetryStrategy.Attempts, *job.Timeout.AttemptDurationSeconds)
	}
	for code, want := range map[string]types.RetryAction{"0": types.RetryActionExit, "64": types.RetryActionExit, "75": types.RetryActionRetry, "1": types.RetryActionRetry, "137": types.RetryActionRetry} {
		if got := afterExit(job.RetryStrategy, code); got != want {
			t.Errorf("after exit code %s: %s, want %s", code, got, want)
		}
	}
	known, variables, secrets := settings(t), map[string]string{}, 0
	for _, variable := range c.Environment {
		if s, is := known[*variable.Name]; (!is && !slices.Contains(foreign, *variable.Name)) || s.secret {
			t.Errorf("%s is no setting, or a secret", *variable.Name)
		}
		variables[*variable.Name] = *variable.Value
	}
	for _, secret := range c.Secrets {
		secrets++
		if !known[*secret.Name].secret || !strings.HasPrefix(*secret.ValueFrom, "arn:aws:secretsmanager:") {
			t.Errorf("%s from %s", *secret.Name, *secret.ValueFrom)
		}
		variables[*secret.Name] = samples[*secret.Name]
	}
	if secrets != 5 || !strings.HasPrefix(variables["EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"], *c.MountPoints[0].ContainerPath+"/") || *c.MountPoints[0].SourceVolume != *c.Volumes[0].Name {
		t.Errorf("%d secrets, key file %s", secrets, variables["EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"])
	}
	variables["AWS_BATCH_JOB_ID"], variables["AWS_BATCH_JOB_ATTEMPT"] = "job", "1" // Batch sets them
	out, err := check(t, "deployer", variables, c.Command...)
	if err != nil {
		t.Errorf("the deployer refuses its settings: %v\n%s", err, out)
	}
}

// afterExit is Batch's own reading: the first entry that matches decides.
func afterExit(strategy types.RetryStrategy, code string) types.RetryAction {
	for _, one := range strategy.EvaluateOnExit {
		if (one.OnExitCode != nil && *one.OnExitCode == code) || (one.OnReason != nil && *one.OnReason == "*") {
			return types.RetryAction(strings.ToUpper(string(one.Action)))
		}
	}
	return types.RetryActionRetry
}

// The queue, the environment and the chart's example fit together.
func TestJobQueueOfBatch(t *testing.T) {
	t.Parallel()
	q, environment := strictly[jobQueue](t, "batch/job-queue.json"), strictly[computeEnvironment](t, "batch/compute-environment.json")
	if *q.ComputeEnvironmentOrder[0].ComputeEnvironment != environment.ComputeEnvironmentName || environment.ComputeResources.Type != types.CRTypeFargate {
		t.Errorf("%+v runs in %+v", q, environment)
	}
	got := valueSets(t)["batch-cloud"]["transport"].(map[string]any)["batch"].(map[string]any)
	want := map[string]any{"jobQueue": q.JobQueueName, "jobDefinition": strictly[jobDefinition](t, "batch/job-definition.json").JobDefinitionName}
	if !maps.Equal(got, want) {
		t.Errorf("the example's values are %v, want %v", got, want)
	}
}
