package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// api answers each request with the next of its answers; the last one stays.
type api struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []http.HandlerFunc
	requests []string // "METHOD path?query body"
	pauses   []time.Duration
}

func newAPI(t testing.TB, answers ...http.HandlerFunc) (*api, *client.Client) {
	t.Helper()
	a := &api{answers: answers}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a, a.client(t)
}

func (a *api) client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.Params{BaseURL: a.URL + "/", Token: "token-7", UserAgent: "test", Pause: func(ctx context.Context, d time.Duration) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pauses = append(a.pauses, d)
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Interim answers are told when they are ours and understood, and never change
// what the last answer says.
func TestProgress(t *testing.T) {
	t.Parallel()
	_, c := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		for _, text := range []string{"packages;done=0;total=3", "", "packages;done=4;total=3", "packages;done=-1;total=3", "other", "packages;done=3;total=3"} {
			if r.Header.Get("X-Edge-Workers-Progress") == "interim" {
				w.Header().Set("X-Edge-Workers-Progress", text)
			}
			w.WriteHeader(http.StatusProcessing)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"v1"}`)
	})
	var told []string
	v, err := c.SubmitVersion(t.Context(), []byte("x"), func(done, total int) { told = append(told, fmt.Sprint(done, "/", total)) })
	if err != nil || v.ID != "v1" || !slices.Equal(told, []string{"0/3", "3/3"}) {
		t.Errorf("%q, told %v, %v", v.ID, told, err)
	}
	v, err = c.SubmitVersion(t.Context(), []byte("x"), nil)
	if err != nil || v.ID != "v1" {
		t.Errorf("without a listener: %q, %v", v.ID, err)
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.requests = append(a.requests, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	answer := a.answers[0]
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	a.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer token-7" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	answer(w, r)
}

func (a *api) count() int { return len(a.seen()) }

// seen gives the requests so far.
func (a *api) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "request-7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// lost cuts the connection after the request was read.
func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func ticket(status string) http.HandlerFunc {
	return answer(200, `{"ticket_id":"t1","operation":"deploy","company_id":"c","department_id":"d","status":"`+status+`","worker_id":"w","version_id":"v1","error_code":null}`)
}

func TestRequests(t *testing.T) {
	t.Parallel()
	a, c := newAPI(t, answer(200, `{}`))
	ctx := t.Context()
	_, err1 := c.Worker(ctx)
	_, err2 := c.SubmitVersion(ctx, []byte("archive"), nil)
	_, err3 := c.Versions(ctx, "a&b", 5)
	_, err4 := c.Versions(ctx, "", 0)
	_, err5 := c.Version(ctx, "v/1")
	_, err6 := c.Source(ctx, "..")
	_, err7 := c.Deploy(ctx, "v1", 3)
	_, err8 := c.Deployment(ctx, "t1")
	_, err9 := c.Invoke(ctx, "orders.list", []byte(`{"a":1}`))
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /worker",
		"POST /worker/versions archive",
		"GET /worker/versions?cursor=a%26b&limit=5",
		"GET /worker/versions",
		"GET /worker/versions/v%2F1",
		"GET /worker/versions/%2E%2E/source",
		`POST /worker/deployments {"base_revision":3,"version_id":"v1"}`,
		"GET /worker/deployments/t1",
		`POST /worker/invoke/orders.list {"a":1}`,
	}
	if !slices.Equal(a.seen(), want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(a.seen(), "\n"), strings.Join(want, "\n"))
	}
}

func TestErrorForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status        int
		body          string
		code, message string
		problems      int
	}{
		"text":     {409, `{"detail":"Worker revision changed"}`, "", "Worker revision changed", 0},
		"coded":    {409, `{"detail":{"code":"deployment_in_progress","message":"Busy"}}`, "deployment_in_progress", "Busy", 0},
		"problems": {422, `{"detail":[{"type":"missing","loc":["body",1],"msg":"m"}]}`, "", "the input is not valid: 1 problem", 1},
		"page":     {404, `<html>`, "", "Not Found", 0},
		"empty":    {403, ``, "", "Forbidden", 0},
		"strange":  {400, `{"detail":7}`, "", "Bad Request", 0},
		"redirect": {307, ``, "", "Temporary Redirect", 0},
	} {
		_, api := newAPI(t, answer(c.status, c.body))
		_, err := api.Worker(t.Context())
		var refused *client.Error
		if !errors.As(err, &refused) {
			t.Fatalf("%s: %v", name, err)
		}
		if refused.Status != c.status || refused.Code != c.code || refused.Message != c.message || len(refused.Problems) != c.problems || refused.RequestID != "request-7" {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}

func TestRepetitions(t *testing.T) {
	t.Parallel()
	calls := map[string]struct {
		do         func(*client.Client) error
		repeatable bool
	}{
		"read":       {func(c *client.Client) error { _, err := c.Worker(t.Context()); return err }, true},
		"deployment": {func(c *client.Client) error { _, err := c.Deploy(t.Context(), "v1", 1); return err }, true},
		"submission": {func(c *client.Client) error { _, err := c.SubmitVersion(t.Context(), []byte("x"), nil); return err }, false},
		"invocation": {func(c *client.Client) error { _, err := c.Invoke(t.Context(), "op", nil); return err }, false},
	}
	failures := map[string]struct {
		answer    http.HandlerFunc
		transient bool
	}{
		"lost answer": {lost, true},
		"502":         {answer(502, ""), true},
		"503":         {answer(503, `{"detail":"Edge Worker provider is not configured"}`), true},
		"503 coded":   {answer(503, `{"detail":{"code":"edge_worker_artifact_unavailable","message":"m"}}`), false},
		"unknown":     {answer(503, `{"detail":{"code":"deployment_outcome_unknown","message":"m"}}`), true},
		"500":         {answer(500, `{"detail":"Internal Server Error"}`), false},
		"409":         {answer(409, `{"detail":"x"}`), false},
	}
	for callName, call := range calls {
		for failureName, failure := range failures {
			want := 1
			if call.repeatable && failure.transient {
				want = 4
			}
			a, c := newAPI(t, failure.answer)
			if err := call.do(c); err == nil {
				t.Errorf("%s, %s: no error", callName, failureName)
			}
			if a.count() != want {
				t.Errorf("%s, %s: %d requests, want %d", callName, failureName, a.count(), want)
			}
		}
	}
	a, c := newAPI(t, lost, answer(503, ""), ticket("pending"))
	got, err := c.Deployment(t.Context(), "t1")
	if err != nil || got.Status != gen.TicketStatusPending || a.count() != 3 {
		t.Errorf("third attempt: %+v, %v after %d requests", got, err, a.count())
	}
	if !slices.Equal(a.pauses, []time.Duration{500 * time.Millisecond, time.Second}) {
		t.Errorf("pauses %v", a.pauses)
	}
}

func TestUnreachableTellsWhetherItWasSent(t *testing.T) {
	t.Parallel()
	a, c := newAPI(t, lost)
	_, err := c.SubmitVersion(t.Context(), []byte("x"), nil)
	var silent *client.Unreachable
	if !errors.As(err, &silent) || silent.NotSent {
		t.Errorf("a lost answer gives %#v", err)
	}
	a.Close()
	_, err = c.SubmitVersion(t.Context(), []byte("x"), nil)
	if !errors.As(err, &silent) || !silent.NotSent {
		t.Errorf("a refused connection gives %#v", err)
	}
}

func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		unknown bool
	}{
		"lost answer":         {lost, true},
		"a proxy's 502":       {answer(502, "<html>"), true},
		"a proxy's 504":       {answer(504, ""), true},
		"500":                 {answer(500, `{"detail":"Internal Server Error"}`), true},
		"said by the API":     {answer(503, `{"detail":{"code":"submission_outcome_unknown","message":"m"}}`), true},
		"503":                 {answer(503, `{"detail":"Edge Worker artifact storage is unavailable"}`), false},
		"422":                 {answer(422, `{"detail":[]}`), false},
		"another coded error": {answer(502, `{"detail":{"code":"other","message":"m"}}`), false},
	} {
		_, api := newAPI(t, c.answer)
		_, err := api.SubmitVersion(t.Context(), []byte("x"), nil)
		if err == nil || client.OutcomeUnknown(err) != c.unknown {
			t.Errorf("%s: %v, unknown %v, want %v", name, err, client.OutcomeUnknown(err), c.unknown)
		}
	}
	if client.OutcomeUnknown(nil) || client.OutcomeUnknown(errors.New("before sending")) {
		t.Error("an error that is no answer counts as unknown")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	_, c := newAPI(t, answer(200, strings.Repeat("x", 2<<20+1)), answer(200, strings.Repeat("x", 2<<20)))
	got, err := c.Source(t.Context(), "v1") // the long answer counts as unusable, the next one fits
	if err != nil || len(got) != 2<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, c = newAPI(t, answer(200, "not JSON"))
	var silent *client.Unreachable
	if _, err := c.Worker(t.Context()); !errors.As(err, &silent) {
		t.Errorf("garbage gives %v", err)
	}
}

func TestNewRefusesURLs(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "https://api.example/base"} {
		if _, err := client.New(client.Params{BaseURL: address}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"", "api.example", "ftp://api.example", "http://api.example", "https://u:secret@api.example", "https://api.example?x=1", "https://api.example#x", "https://"} {
		_, err := client.New(client.Params{BaseURL: address})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New(client.Params{BaseURL: "http://api.example", AllowHTTP: true}); err != nil {
		t.Errorf("allowed http: %v", err)
	}
}

func statuses(seen []gen.Ticket) []gen.TicketStatus {
	var got []gen.TicketStatus
	for _, ticket := range seen {
		got = append(got, ticket.Status)
	}
	return got
}

func TestWaitEndsOnlyAtTerminalStates(t *testing.T) { // S2-264, S2-265, S2-266
	t.Parallel()
	for _, c := range []struct {
		answers []string
		through bool
		last    gen.TicketStatus
		polls   int
	}{
		{[]string{"submitting", "pending", "leased", "deploying", "completed"}, false, "completed", 5},
		{[]string{"pending", "failed"}, false, "failed", 2},
		{[]string{"cancelled"}, false, "cancelled", 1},
		{[]string{"deploying", "uncertain", "completed"}, false, "uncertain", 2},
		{[]string{"deploying", "uncertain", "uncertain", "leased", "completed"}, true, "completed", 5},
	} {
		var answers []http.HandlerFunc
		for _, status := range c.answers {
			answers = append(answers, ticket(status))
		}
		a, api := newAPI(t, answers...)
		var seen []gen.Ticket
		got, err := api.Wait(t.Context(), "t1", client.WaitParams{ThroughUncertain: c.through, Seen: func(ticket gen.Ticket) { seen = append(seen, ticket) }})
		if err != nil || got.Status != c.last || a.count() != c.polls || len(seen) != c.polls {
			t.Errorf("%v: ended %q, %v after %d polls, saw %v", c.answers, got.Status, err, a.count(), statuses(seen))
		}
	}
}

func TestWaitGoesOnForMoreThanTenMinutes(t *testing.T) { // S2-266
	t.Parallel()
	var a *api
	waited := func() time.Duration {
		a.mu.Lock()
		defer a.mu.Unlock()
		var sum time.Duration
		for _, d := range a.pauses {
			sum += d
		}
		return sum
	}
	a, c := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if waited() > 15*time.Minute {
			ticket("completed")(w, r)
			return
		}
		ticket("deploying")(w, r)
	})
	got, err := c.Wait(t.Context(), "t1", client.WaitParams{})
	if err != nil || got.Status != gen.TicketStatusCompleted {
		t.Errorf("%q, %v", got.Status, err)
	}
}

func TestWaitOutlivesABreakButNotForEver(t *testing.T) {
	t.Parallel()
	answers := slices.Repeat([]http.HandlerFunc{lost}, 10)
	_, c := newAPI(t, append(answers, ticket("completed"))...)
	if got, err := c.Wait(t.Context(), "t1", client.WaitParams{}); err != nil || got.Status != gen.TicketStatusCompleted {
		t.Errorf("after a break: %q, %v", got.Status, err)
	}
	a, c := newAPI(t, answer(503, ""))
	if _, err := c.Wait(t.Context(), "t1", client.WaitParams{}); err == nil || a.count() != 30*4 {
		t.Errorf("an API that stays away: %v after %d requests, want 120", err, a.count())
	}
	a, c = newAPI(t, answer(404, `{"detail":"Not Found"}`))
	if _, err := c.Wait(t.Context(), "t1", client.WaitParams{}); err == nil || a.count() != 1 {
		t.Errorf("a refusal: %v after %d requests, want 1", err, a.count())
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a, c := newAPI(t, ticket("pending"))
	_, err := c.Wait(ctx, "t1", client.WaitParams{Seen: func(gen.Ticket) { cancel() }})
	if !errors.Is(err, context.Canceled) || a.count() != 1 {
		t.Errorf("%v after %d requests", err, a.count())
	}
}
