package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/observe/observetest"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/batch/batchtest"
)

const (
	batchQueue      = "jobs"
	batchDefinition = "deployer"
	batchJobsAtOnce = 2
	callLimit       = 10 * time.Second
	// batchKill is how long a terminated job has to end, as Batch gives it.
	batchKill = 30 * time.Second
)

// batchJobs is a model of AWS Batch that runs its jobs as processes.
type batchJobs struct {
	t       TB
	service *batchtest.Service
	server  *httptest.Server

	mu   sync.Mutex
	last *job
	stop func() // ends the compute environment and waits for it
	log  observetest.Log
}

func openBatch(t TB) *batchJobs {
	t.Helper()
	b := &batchJobs{t: t, service: batchtest.New(batchQueue, batchtest.Deployer(batchDefinition, deliveries))}
	b.server = httptest.NewServer(b.service)
	t.Cleanup(b.server.Close)
	return b
}

func (b *batchJobs) Environment() []string {
	return []string{
		"DEFAULT_BACKGROUND_WORKER_TYPE", config.BatchBroker, "EDGE_WORKERS_AWS_REGION", sqsRegion, "EDGE_WORKERS_AWS_ENDPOINT", b.server.URL,
		"EDGE_WORKERS_BATCH_JOB_QUEUE", batchQueue, "EDGE_WORKERS_BATCH_JOB_DEFINITION", batchDefinition,
		"AWS_ACCESS_KEY_ID", "anybody", "AWS_SECRET_ACCESS_KEY", "anything",
	}
}

// Inject submits a job of the message beside the publisher's, which would not.
func (b *batchJobs) Inject(raw []byte) bool {
	m, err := transports.Decode(raw)
	if err != nil {
		return false
	}
	body, err := json.Marshal(map[string]any{
		"jobName": "copy", "jobQueue": batchQueue, "jobDefinition": batchDefinition,
		"parameters": map[string]string{"outbox_id": m.Args[0], "company_id": m.Args[1], "department_id": m.Args[2], "message_id": m.Args[3]},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.server.URL+"/v1/submitjob", bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: callLimit}).Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		b.t.Fatalf("submit a copy: %v, %v", response, err)
	}
	_ = response.Body.Close()
	return true
}

// Dead is how many jobs have failed for good.
func (b *batchJobs) Dead() int {
	n := 0
	for _, j := range b.service.Jobs() {
		if j.Status == batchtest.Failed {
			n++
		}
	}
	return n
}

// compute is the compute environment, until the test ends.
func (b *batchJobs) compute(programs string, environment map[string]string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.service.Run(ctx, batchJobsAtOnce, func(ctx context.Context, j batchtest.Job, attempt int) int {
			return b.attempt(ctx, programs, environment, j, attempt)
		})
	}()
	b.stop = func() { stop(); <-ended }
	b.t.Cleanup(b.stop)
}

// attempt runs one attempt of a job as a process.
func (b *batchJobs) attempt(ctx context.Context, programs string, environment map[string]string, j batchtest.Job, attempt int) int {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, j.Command[0]), j.Command[1:]...) // #nosec G204 -- the job definition's
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, j.Environment(attempt)...)
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = &b.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = batchKill
	err := cmd.Start()
	if err != nil {
		b.t.Errorf("start a job: %v", err)
		return 1
	}
	running := &job{cmd: cmd, log: &b.log, ended: make(chan struct{})}
	b.mu.Lock()
	b.last = running
	b.mu.Unlock()
	_ = cmd.Wait() // the exit code says it
	running.code = cmd.ProcessState.ExitCode()
	close(running.ended)
	if running.code < 0 {
		return 128 + int(syscall.SIGKILL) // as a container's exit code
	}
	return running.code
}

// running is the job that was started last.
func (b *batchJobs) running() *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// job is a job's process.
type job struct {
	cmd   *exec.Cmd
	log   *observetest.Log
	ended chan struct{}
	code  int // once it has ended
}

// Stop asks the job to end and gives its exit code.
func (j *job) Stop() int { return j.end(syscall.SIGTERM) }

// Kill ends the job as a power cut would.
func (j *job) Kill() { j.end(syscall.SIGKILL) }

func (j *job) end(signal os.Signal) int {
	_ = j.cmd.Process.Signal(signal) // it may have ended
	<-j.ended
	return j.code
}

// Log is what all jobs have logged.
func (j *job) Log() string { return j.log.String() }
