package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/observe"
)

// server is an echo instance with the shared middleware and its log kept.
type server struct {
	*echo.Echo
	log *bytes.Buffer
}

func newServer() server {
	log := &bytes.Buffer{}
	e := echo.New()
	httpapi.Install(e, observe.NewLogger(log, slog.LevelInfo))
	return server{Echo: e, log: log}
}

func (s server) do(request *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder
}

// lines gives the log's entries with the message.
func (s server) lines(t testing.TB, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(s.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if entry["msg"] == message {
			found = append(found, entry)
		}
	}
	return found
}

func TestErrorForms(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp 10.0.0.7:3306: secret")
	problem := fault.Problem{Type: "schema_violation", Loc: []any{"worker.json", 3, 7}, Msg: "must be a string"}
	cases := map[string]struct {
		err    error
		status int
		body   string
	}{
		"plain text":       {fault.New(fault.Conflict, "Worker revision changed; refresh before deploying"), 409, `{"detail":"Worker revision changed; refresh before deploying"}`},
		"coded":            {fault.Coded(fault.Conflict, "deployment_in_progress", "Busy"), 409, `{"detail":{"code":"deployment_in_progress","message":"Busy"}}`},
		"problems":         {fault.Refuse(problem), 422, `{"detail":[{"type":"schema_violation","loc":["worker.json",3,7],"msg":"must be a string"}]}`},
		"invalid as text":  {fault.New(fault.Invalid, "limit is not a number"), 422, `{"detail":"limit is not a number"}`},
		"malformed":        {fault.New(fault.Malformed, "Bad body"), 400, `{"detail":"Bad body"}`},
		"unauthenticated":  {fault.New(fault.Unauthenticated, "Not authenticated").Because(cause), 401, `{"detail":"Not authenticated"}`},
		"forbidden":        {fault.New(fault.Forbidden, "No"), 403, `{"detail":"No"}`},
		"not found":        {fault.New(fault.NotFound, "Worker version not found"), 404, `{"detail":"Worker version not found"}`},
		"too large":        {fault.New(fault.TooLarge, "Too large"), 413, `{"detail":"Too large"}`},
		"rate limited":     {fault.Coded(fault.RateLimited, "wait", "Wait"), 429, `{"detail":{"code":"wait","message":"Wait"}}`},
		"unsupported type": {fault.New(fault.UnsupportedType, "Type"), 415, `{"detail":"Type"}`},
		"unavailable":      {fault.New(fault.Unavailable, "Edge Worker provider is not configured").Because(cause), 503, `{"detail":"Edge Worker provider is not configured"}`},
		"upstream":         {fault.Coded(fault.Upstream, "worker_unusable", "Unusable"), 502, `{"detail":{"code":"worker_unusable","message":"Unusable"}}`},
		"timeout":          {fault.New(fault.Timeout, "Late"), 504, `{"detail":"Late"}`},
		"wrapped fault":    {fmt.Errorf("deploy: %w", fault.New(fault.Conflict, "Inner")), 409, `{"detail":"Inner"}`},
		"no message":       {fault.New(fault.NotFound, ""), 404, `{"detail":"Not Found"}`},
		"internal fault":   {fault.Coded(fault.Internal, "secret", "secret"), 500, `{"detail":"Internal Server Error"}`},
		"unknown kind":     {fault.New("secret", "secret"), 500, `{"detail":"Internal Server Error"}`},
		"plain error":      {cause, 500, `{"detail":"Internal Server Error"}`},
		"deadline":         {context.DeadlineExceeded, 500, `{"detail":"Internal Server Error"}`},
		"bounded body":     {fmt.Errorf("read: %w", &http.MaxBytesError{Limit: 1}), 413, `{"detail":"Request body is too large"}`},
		"router 404":       {echo.ErrNotFound, 404, `{"detail":"Not Found"}`},
		"router 405":       {echo.ErrMethodNotAllowed, 405, `{"detail":"Method Not Allowed"}`},
		"router's secret":  {echo.NewHTTPError(400, "secret"), 400, `{"detail":"Bad Request"}`},
		"router 500":       {echo.NewHTTPError(500, "secret"), 500, `{"detail":"Internal Server Error"}`},
		"router 418":       {echo.NewHTTPError(418, "secret"), 500, `{"detail":"Internal Server Error"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.GET("/fails", func(echo.Context) error { return c.err })
			got := s.do(httptest.NewRequest("GET", "/fails", nil))
			if got.Code != c.status || strings.TrimSpace(got.Body.String()) != c.body {
				t.Errorf("got %d %s, want %d %s", got.Code, got.Body, c.status, c.body)
			}
			if strings.Contains(got.Body.String(), "secret") {
				t.Error("the answer leaks the cause")
			}
			if (got.Header().Get("WWW-Authenticate") == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate is %q", got.Header().Get("WWW-Authenticate"))
			}
			if got.Header().Get("Content-Type") != "application/json" {
				t.Errorf("content type %q", got.Header().Get("Content-Type"))
			}
		})
	}
}

func TestInternalErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/fails", func(echo.Context) error { return errors.New("the cause") })
	request := httptest.NewRequest("GET", "/fails?token=private", nil)
	request.Header.Set("X-Request-Id", "request-7")
	s.do(request)
	failed := s.lines(t, "request failed")
	if len(failed) != 1 || failed[0]["request_id"] != "request-7" || failed[0]["error"] != "the cause" || failed[0]["level"] != "ERROR" {
		t.Errorf("log lines %v", failed)
	}
	lines := s.lines(t, "request")
	if len(lines) != 1 || lines[0]["status"] != float64(500) || lines[0]["route"] != "/fails" {
		t.Errorf("request lines %v", lines)
	}
	if strings.Contains(s.log.String(), "private") {
		t.Error("the log holds the query")
	}
}

func TestRouterAnswers(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/there", func(c echo.Context) error { return c.NoContent(204) })
	if got := s.do(httptest.NewRequest("GET", "/there", nil)); got.Code != 204 {
		t.Fatalf("control: %d", got.Code)
	}
	got := s.do(httptest.NewRequest("GET", "/missing", nil))
	if got.Code != 404 || strings.TrimSpace(got.Body.String()) != `{"detail":"Not Found"}` {
		t.Errorf("unknown path: %d %s", got.Code, got.Body)
	}
	got = s.do(httptest.NewRequest("POST", "/there", nil))
	if got.Code != 405 || strings.TrimSpace(got.Body.String()) != `{"detail":"Method Not Allowed"}` || !strings.Contains(got.Header().Get("Allow"), "GET") {
		t.Errorf("wrong method: %d %s %v", got.Code, got.Body, got.Header())
	}
	if got.Header().Get("X-Request-Id") == "" || got.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a refusal lacks the shared headers: %v", got.Header())
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.HEAD("/fails", func(echo.Context) error { return fault.New(fault.Conflict, "text") })
	got := s.do(httptest.NewRequest("HEAD", "/fails", nil))
	if got.Code != 409 || got.Body.Len() != 0 {
		t.Errorf("got %d with %d bytes", got.Code, got.Body.Len())
	}
}

func TestErrorAfterTheAnswerBegan(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/half", func(c echo.Context) error {
		_ = c.String(200, "half")
		return errors.New("the other half failed")
	})
	got := s.do(httptest.NewRequest("GET", "/half", nil))
	if got.Code != 200 || got.Body.String() != "half" {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	if len(s.lines(t, "request failed")) != 1 {
		t.Errorf("the failure is not in the log: %s", s.log)
	}
}

func TestClientThatWentAwayIsNoDefect(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/slow", func(c echo.Context) error { return c.Request().Context().Err() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.do(httptest.NewRequestWithContext(ctx, "GET", "/slow", nil))
	if len(s.lines(t, "request failed")) != 0 || len(s.lines(t, "the client went away")) != 1 {
		t.Errorf("log: %s", s.log)
	}
}
