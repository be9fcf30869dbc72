package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	s := newServer()
	var seen, forwarded string
	s.GET("/", func(c echo.Context) error {
		seen = httpapi.RequestID(c.Request().Context())
		forwarded = c.Request().Header.Get("X-Request-Id")
		return c.NoContent(204)
	})
	for name, c := range map[string]struct {
		sent string
		kept bool
	}{
		"well-formed": {"Az09._-", true},
		"longest":     {strings.Repeat("a", 128), true},
		"too long":    {strings.Repeat("a", 129), false},
		"none":        {"", false},
		"space":       {"a b", false},
		"line break":  {"a\nb", false},
		"markup":      {"<a>", false},
	} {
		request := httptest.NewRequest("GET", "/", nil)
		request.Header.Set("X-Request-Id", c.sent)
		returned := s.do(request).Header().Get("X-Request-Id")
		if (returned == c.sent) != c.kept || returned == "" {
			t.Errorf("%s: sent %q, returned %q", name, c.sent, returned)
		}
		if seen != returned || forwarded != returned {
			t.Errorf("%s: returned %q, in the context %q, in the header %q", name, returned, seen, forwarded)
		}
	}
	if id := httpapi.RequestID(context.Background()); id != "" {
		t.Errorf("outside a request the id is %q", id)
	}
}

func TestPanicIsOneRequestsFailure(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/panics", func(echo.Context) error { panic("secret") })
	got := s.do(httptest.NewRequest("GET", "/panics", nil))
	if got.Code != 500 || strings.TrimSpace(got.Body.String()) != `{"detail":"Internal Server Error"}` {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	panics := s.lines(t, "panic in a handler")
	if len(panics) != 1 || !strings.Contains(fmt.Sprint(panics[0]["stack"]), "middleware_test.go") {
		t.Errorf("log: %s", s.log)
	}
	if len(s.lines(t, "request failed")) != 1 {
		t.Errorf("log: %s", s.log)
	}
}

func TestAbortedHandlerIsLeftToTheServer(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/aborts", func(echo.Context) error { panic(http.ErrAbortHandler) })
	defer func() {
		cause, ok := recover().(error)
		if !ok || !errors.Is(cause, http.ErrAbortHandler) {
			t.Errorf("the panic became %v", cause)
		}
	}()
	s.do(httptest.NewRequest("GET", "/aborts", nil))
}

func TestLimitBody(t *testing.T) {
	t.Parallel()
	s := newServer()
	calls := 0
	s.POST("/", func(c echo.Context) error {
		calls++
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.String(200, string(body))
	}, httpapi.LimitBody(5))
	post := func(body string, declared int64) *httptest.ResponseRecorder {
		request := httptest.NewRequest("POST", "/", strings.NewReader(body))
		request.ContentLength = declared
		return s.do(request)
	}
	if got := post("12345", 5); got.Code != 200 || got.Body.String() != "12345" {
		t.Errorf("at the bound: %d %s", got.Code, got.Body)
	}
	if got := post("123456", -1); got.Code != 413 || calls != 2 {
		t.Errorf("longer without a declared length: %d after %d calls", got.Code, calls)
	}
	got := post("123456", 6)
	if got.Code != 413 || strings.TrimSpace(got.Body.String()) != `{"detail":"Request body is too large"}` || calls != 2 {
		t.Errorf("declared longer: %d %s after %d calls", got.Code, got.Body, calls)
	}
}

func TestSecurityHeadersMayBeReplacedByAPage(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.GET("/json", func(c echo.Context) error { return c.JSON(200, nil) })
	s.GET("/page", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", "default-src 'self'")
		return c.HTML(200, "<p>")
	})
	header := s.do(httptest.NewRequest("GET", "/json", nil)).Header()
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		if header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, header.Get(name), want)
		}
	}
	policy := s.do(httptest.NewRequest("GET", "/page", nil)).Header().Values("Content-Security-Policy")
	if len(policy) != 1 || policy[0] != "default-src 'self'" {
		t.Errorf("the page's policy is %q", policy)
	}
}

type verifierFunc func(token string) (auth.Principal, error)

func (f verifierFunc) Verify(_ context.Context, token string) (auth.Principal, error) {
	return f(token)
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	var tokens []string
	verifier := verifierFunc(func(token string) (auth.Principal, error) {
		tokens = append(tokens, token)
		if token != "good" {
			return auth.Principal{}, auth.ErrNotAuthenticated.Because(errors.New("the reason"))
		}
		return auth.Principal{Subject: "user:1", CompanyID: "company-7", DepartmentID: "department-7", Roles: []auth.Role{auth.DepartmentManager}}, nil
	})
	s := newServer()
	handled := 0
	handler := func(c echo.Context) error {
		handled++
		principal, ok := auth.FromContext(c.Request().Context())
		if !ok || principal.Subject != "user:1" {
			return fault.New(fault.Internal, "no principal")
		}
		return c.NoContent(204)
	}
	s.GET("/manager", handler, httpapi.Authenticate(verifier), httpapi.RequireRole(auth.DepartmentManager))
	s.GET("/admin", handler, httpapi.Authenticate(verifier), httpapi.RequireRole(auth.PlatformAdmin))
	s.GET("/misrouted", handler, httpapi.RequireRole(auth.DepartmentManager))
	get := func(path string, authorization ...string) int {
		request := httptest.NewRequest("GET", path, nil)
		request.Header["Authorization"] = authorization
		return s.do(request).Code
	}
	if code := get("/manager", "Bearer good"); code != 204 {
		t.Errorf("control: %d", code)
	}
	if code := get("/manager", "bEARER good"); code != 204 {
		t.Errorf("scheme in another case: %d", code)
	}
	if lines := s.lines(t, "request"); lines[0]["company_id"] != "company-7" || lines[0]["department_id"] != "department-7" {
		t.Errorf("request line %v", lines[0])
	}
	verified := len(tokens)
	for name, authorization := range map[string][]string{
		"none": nil, "empty": {""}, "basic": {"Basic good"}, "no token": {"Bearer"}, "blank token": {"Bearer "}, "two": {"Bearer good", "Bearer good"},
	} {
		if code := get("/manager", authorization...); code != 401 {
			t.Errorf("%s: %d, want 401", name, code)
		}
	}
	if len(tokens) != verified {
		t.Errorf("malformed headers reached the verifier: %q", tokens[verified:])
	}
	if code := get("/manager", "Bearer bad"); code != 401 {
		t.Errorf("refused token: %d", code)
	}
	if code := get("/admin", "Bearer good"); code != 403 {
		t.Errorf("missing role: %d", code)
	}
	if code := get("/misrouted", "Bearer good"); code != 401 {
		t.Errorf("a role without authentication: %d", code)
	}
	if handled != 2 {
		t.Errorf("the handler ran %d times, want 2", handled)
	}
	if !strings.Contains(s.log.String(), "the reason") || strings.Contains(s.log.String(), "Bearer") {
		t.Errorf("log: %s", s.log)
	}
}
