package batchtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Fault is what goes wrong with a call; the zero value is nothing.
type Fault struct {
	// Status is the answer, with Code in its header, and nothing is done.
	Status int
	Code   string
	// Before breaks the connection, and nothing is done; After does all, and
	// then breaks it.
	Before, After bool
	// Delay comes before everything else, and ends when the client goes away:
	// then nothing is done.
	Delay time.Duration
}

// Fail asks fault what becomes of the nth call, from 1 on, of an operation:
// submitjob, listjobs, describejobs, terminatejob. nil: nothing goes wrong.
func (s *Service) Fail(fault func(operation string, n int) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Calls is how many calls of an operation arrived.
func (s *Service) Calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(operation)
}

func (s *Service) count(operation string) int {
	n := 0
	for _, called := range s.calls {
		if called == operation {
			n++
		}
	}
	return n
}

// note records a call and gives its fault.
func (s *Service) note(operation string) Fault {
	s.mu.Lock()
	s.calls = append(s.calls, operation)
	n, fault := s.count(operation), s.fault
	s.mu.Unlock()
	if fault == nil {
		return Fault{}
	}
	return fault(operation, n)
}

// maxRequest bounds the requests that are read, in bytes.
const maxRequest = 64 << 10

// ServeHTTP implements http.Handler: Batch's REST protocol, without its
// signatures.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation := strings.TrimPrefix(r.URL.Path, "/v1/")
	var in request
	err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&in)
	if r.Method != http.MethodPost || err != nil {
		refuse(w, http.StatusBadRequest, "ClientException", "not a request of Batch's")
		return
	}
	fault := s.note(operation)
	if fault.Delay > 0 && !wait(r.Context(), fault.Delay) {
		return
	}
	switch {
	case fault.Before:
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		refuse(w, fault.Status, fault.Code, "the canary")
		return
	}
	out, wrong := s.do(operation, in)
	switch {
	case fault.After:
		panic(http.ErrAbortHandler)
	case wrong != "":
		refuse(w, http.StatusBadRequest, "ClientException", wrong)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client sees its own end
}

// wait tells whether the client was still there after d.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-ErrorType", code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message}) // as above
}

// request has the members of all operations.
type request struct {
	JobName       string            `json:"jobName"`
	JobQueue      string            `json:"jobQueue"`
	JobDefinition string            `json:"jobDefinition"`
	Parameters    map[string]string `json:"parameters"`
	Filters       []filter          `json:"filters"`
	MaxResults    int               `json:"maxResults"`
	NextToken     string            `json:"nextToken"`
	Jobs          []string          `json:"jobs"`
	JobID         string            `json:"jobId"`
	Reason        string            `json:"reason"`
}

type filter struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// summary is a job as ListJobs and DescribeJobs show it.
type summary struct {
	JobID         string            `json:"jobId"`
	JobName       string            `json:"jobName"`
	JobQueue      string            `json:"jobQueue,omitempty"`
	JobDefinition string            `json:"jobDefinition,omitempty"`
	Status        Status            `json:"status"`
	CreatedAt     int64             `json:"createdAt"`
	Parameters    map[string]string `json:"parameters,omitempty"`
}

// do gives the answer, or what is wrong with the request.
func (s *Service) do(operation string, in request) (any, string) {
	switch operation {
	case "submitjob":
		return s.submit(in)
	case "listjobs":
		return s.list(in)
	case "describejobs":
		return s.describe(in.Jobs), ""
	case "terminatejob":
		if in.JobID == "" || in.Reason == "" {
			return nil, "jobId and reason are required"
		}
		s.Terminate(in.JobID)
		return struct{}{}, ""
	}
	return nil, "no such operation"
}

// jobName is what Batch takes.
var jobName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,127}\z`)

func (s *Service) submit(in request) (any, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	definition, found := s.definitions[in.JobDefinition]
	switch {
	case in.JobQueue != s.queue:
		return nil, "no such job queue"
	case !found:
		return nil, "no such job definition"
	case !jobName.MatchString(in.JobName):
		return nil, "not a job's name"
	}
	id := uuid.NewString()
	s.jobs = append(s.jobs, &job{Job: Job{
		ID: id, Name: in.JobName, Queue: in.JobQueue, Definition: in.JobDefinition, Parameters: in.Parameters,
		Command: definition.command(in.Parameters), Status: Runnable, Created: time.Now(),
	}})
	s.tell()
	return map[string]string{"jobArn": "arn:aws:batch:r:1:job/" + id, "jobId": id, "jobName": in.JobName}, ""
}

// defaultPage is how many jobs a page of a list has that names no number.
const defaultPage = 100

// list gives the jobs of a name, the newest first, whatever their status.
func (s *Service) list(in request) (any, string) {
	if in.JobQueue != s.queue {
		return nil, "no such job queue"
	}
	if len(in.Filters) != 1 || in.Filters[0].Name != "JOB_NAME" || len(in.Filters[0].Values) != 1 {
		return nil, "this model lists by one JOB_NAME only"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []summary{}
	for _, j := range slices.Backward(s.jobs) {
		if strings.EqualFold(j.Name, in.Filters[0].Values[0]) {
			all = append(all, summary{JobID: j.ID, JobName: j.Name, Status: j.Status, CreatedAt: j.Created.UnixMilli()})
		}
	}
	from, err := strconv.Atoi(in.NextToken)
	if in.NextToken == "" {
		from, err = 0, nil
	}
	if err != nil || from > len(all) {
		return nil, "not a token of this list"
	}
	size := in.MaxResults
	if size == 0 {
		size = defaultPage
	}
	out := map[string]any{"jobSummaryList": all[from:min(from+size, len(all))]}
	if from+size < len(all) {
		out["nextToken"] = fmt.Sprint(from + size)
	}
	return out, ""
}

func (s *Service) describe(ids []string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []summary{}
	for _, j := range s.jobs {
		if slices.Contains(ids, j.ID) {
			all = append(all, summary{
				JobID: j.ID, JobName: j.Name, JobQueue: j.Queue, JobDefinition: j.Definition,
				Status: j.Status, CreatedAt: j.Created.UnixMilli(), Parameters: j.Parameters,
			})
		}
	}
	return map[string]any{"jobs": all}
}
