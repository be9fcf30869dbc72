// Package batchtest is a model of AWS Batch for tests: jobs that are submitted
// through its REST protocol, listed, ended, and started as processes or
// functions of the test, with attempts and exit codes as a job definition has
// them. It is what we understood of Batch's documentation, and no evidence about
// Batch itself.
//
//	service := batchtest.New("queue", batchtest.Deployer("deployer", 5))
//	server := httptest.NewServer(service)
//	go service.Run(ctx, 4, start) // the compute environment: four jobs at once
//	...
//	err := service.Wait(ctx) // until no job is unfinished
package batchtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Status is a job's, as Batch names it. Dependencies are not modelled, so that
// a job is RUNNABLE as soon as it is submitted.
type Status string

// The statuses that a job of this model can have.
const (
	Runnable  Status = "RUNNABLE"
	Starting  Status = "STARTING"
	Running   Status = "RUNNING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
)

// Ended tells whether nothing happens to the job any more.
func (s Status) Ended() bool { return s == Succeeded || s == Failed }

// Action is what a rule of a retry strategy has done.
type Action string

// The actions.
const (
	Retry Action = "RETRY"
	Exit  Action = "EXIT"
)

// Rule is an entry of evaluateOnExit. OnExitCode is a number; a * at its end
// stands for any digits.
type Rule struct {
	OnExitCode string
	Action     Action
}

// Definition is a job definition with its retry strategy.
type Definition struct {
	Name string
	// Command has Ref::name as the words that parameters replace.
	Command []string
	// Attempts bounds them, the first included.
	Attempts int
	// EvaluateOnExit is asked in order after a failed attempt; when no rule
	// fits, the job is tried again.
	EvaluateOnExit []Rule
}

// Deployer is the definition that docs/transports.md asks for.
func Deployer(name string, attempts int) Definition {
	return Definition{
		Name: name, Attempts: attempts,
		Command:        []string{"deployer", "run", "Ref::outbox_id", "Ref::company_id", "Ref::department_id", "Ref::message_id"},
		EvaluateOnExit: []Rule{{"0", Exit}, {"64", Exit}},
	}
}

// again tells whether an attempt that ended so is followed by another.
func (d Definition) again(attempt, code int) bool {
	if code == 0 || attempt >= d.Attempts {
		return false
	}
	for _, rule := range d.EvaluateOnExit {
		text := strconv.Itoa(code)
		prefix, open := strings.CutSuffix(rule.OnExitCode, "*")
		if text == rule.OnExitCode || open && strings.HasPrefix(text, prefix) {
			return rule.Action == Retry
		}
	}
	return true
}

// command puts the parameters into the command. A reference is a whole word.
func (d Definition) command(parameters map[string]string) []string {
	command := make([]string, 0, len(d.Command))
	for _, word := range d.Command {
		name, isReference := strings.CutPrefix(word, "Ref::")
		value, given := parameters[name]
		if isReference && given {
			word = value
		}
		command = append(command, word)
	}
	return command
}

// Job is a submitted job.
type Job struct {
	ID, Name, Queue, Definition string
	Parameters                  map[string]string
	Command                     []string
	Status                      Status
	ExitCodes                   []int // of the attempts that have ended
	Created                     time.Time
}

// Environment is what Batch adds to the environment of an attempt, from 1 on.
func (j Job) Environment(attempt int) []string {
	return []string{"AWS_BATCH_JOB_ID=" + j.ID, "AWS_BATCH_JOB_ATTEMPT=" + strconv.Itoa(attempt), "AWS_BATCH_JQ_NAME=" + j.Queue}
}

// Start runs one attempt to its end and gives its exit code. The context ends
// when the job is terminated: a process then gets a SIGTERM.
type Start func(ctx context.Context, job Job, attempt int) int

// job is a Job with what the service alone knows of it.
type job struct {
	Job

	terminate  context.CancelFunc // of the running attempt
	terminated bool
}

// Service is one job queue with its definitions and its protocol.
type Service struct {
	queue       string
	definitions map[string]Definition

	mu      sync.Mutex
	changed chan struct{} // closed and renewed by each change
	jobs    []*job
	calls   []string
	fault   func(operation string, n int) Fault
}

var _ http.Handler = (*Service)(nil)

// New makes a queue without jobs.
func New(queue string, definitions ...Definition) *Service {
	s := &Service{queue: queue, definitions: map[string]Definition{}, changed: make(chan struct{})}
	for _, d := range definitions {
		s.definitions[d.Name] = d
	}
	return s
}

// Jobs gives all jobs, in the order of their submission.
func (s *Service) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Job, 0, len(s.jobs))
	for _, j := range s.jobs {
		all = append(all, j.copied())
	}
	return all
}

func (j *job) copied() Job {
	c := j.Job
	c.ExitCodes = slices.Clone(c.ExitCodes)
	return c
}

// Wait waits until every job that was submitted has ended.
func (s *Service) Wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		at, changed := slices.IndexFunc(s.jobs, func(j *job) bool { return !j.Status.Ended() }), s.changed
		name := ""
		if at >= 0 {
			name = s.jobs[at].Name
		}
		s.mu.Unlock()
		if at < 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("job %s has not ended: %w", name, ctx.Err())
		}
	}
}

// Run is a compute environment that starts up to atOnce jobs at the same time,
// and attempts that are to be made again. After ctx has ended it starts nothing
// more, and returns when what runs has ended. The jobs that it leaves are there
// for the next one.
func (s *Service) Run(ctx context.Context, atOnce int, start Start) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, atOnce)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		j := s.take(ctx)
		if j == nil {
			return
		}
		running.Go(func() {
			s.attempt(j, start)
			<-slots
		})
	}
}

// take waits for a job to start; nil: ctx has ended.
func (s *Service) take(ctx context.Context) *job {
	for {
		s.mu.Lock()
		for _, j := range s.jobs {
			if j.Status == Runnable && ctx.Err() == nil {
				s.set(j, Starting)
				s.mu.Unlock()
				return j
			}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Service) attempt(j *job, start Start) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.mu.Lock()
	if j.terminated { // before it began
		s.set(j, Failed)
		s.mu.Unlock()
		return
	}
	j.terminate = cancel
	s.set(j, Running)
	of := j.copied()
	s.mu.Unlock()

	code := start(ctx, of, len(of.ExitCodes)+1)

	s.mu.Lock()
	defer s.mu.Unlock()
	j.ExitCodes = append(j.ExitCodes, code)
	switch {
	case code == 0:
		s.set(j, Succeeded)
	case !j.terminated && s.definitions[j.Definition].again(len(j.ExitCodes), code):
		s.set(j, Runnable)
	default:
		s.set(j, Failed)
	}
}

// set changes a job's status, under the lock.
func (s *Service) set(j *job, status Status) {
	j.Status = status
	s.tell()
}

func (s *Service) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Terminate ends a job: at once when it does not run, else by the end of its
// attempt's context. It is not tried again.
func (s *Service) Terminate(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.ID != id || j.Status.Ended() {
			continue
		}
		j.terminated = true
		switch {
		case j.Status == Runnable:
			s.set(j, Failed)
		case j.terminate != nil:
			j.terminate()
		}
	}
}
