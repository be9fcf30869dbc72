package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/observe"
)

// HeaderRequestID carries the request id in both directions (D5).
const HeaderRequestID = "X-Request-Id"

var requestIDForm = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,128}\z`)

// RequestID gives the request id of a context, or "" outside a request. It is
// the one that observe's logger adds to each line of that context.
func RequestID(ctx context.Context) string { return observe.RequestID(ctx) }

// Install sets the error funnel and the middleware that every route has, in
// the one order that works: the id first, then the log line that sees each
// answer, then the headers, then the panic guard.
func Install(e *echo.Echo, log *slog.Logger) {
	e.HideBanner = true
	e.HidePort = true
	e.HTTPErrorHandler = ErrorHandler(log)
	e.Use(WithRequestID, LogRequests(log), SecurityHeaders, Recover(log))
}

// WithRequestID accepts a well-formed X-Request-Id or creates one, and returns
// it with the answer.
func WithRequestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		request := c.Request()
		id := request.Header.Get(HeaderRequestID)
		if !requestIDForm.MatchString(id) {
			id = uuid.NewString()
			request.Header.Set(HeaderRequestID, id)
		}
		c.Response().Header().Set(HeaderRequestID, id)
		c.SetRequest(request.WithContext(observe.WithRequestID(request.Context(), id)))
		return next(c)
	}
}

// LogRequests writes one line for each request, with the route's pattern and
// tenant-safe ids: never the query, a header or a body. It answers errors
// itself, so that the line holds the status that was sent.
func LogRequests(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := time.Now()
			err := next(c)
			if err != nil {
				c.Error(err)
			}
			ctx := c.Request().Context()
			fields := []any{
				"method", c.Request().Method,
				"route", c.Path(),
				"status", c.Response().Status,
				"bytes", c.Response().Size,
				"duration_ms", time.Since(start).Milliseconds(),
			}
			if principal, ok := auth.FromContext(ctx); ok {
				fields = append(fields, "company_id", principal.CompanyID, "department_id", principal.DepartmentID)
			}
			log.InfoContext(ctx, "request", fields...)
			return nil
		}
	}
}

// SecurityHeaders sets defaults that suit JSON. A page sets its own
// Content-Security-Policy over this one.
func SecurityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Cache-Control", "no-store")
		return next(c)
	}
}

// Recover turns a panic into an internal error, so that one request's defect
// takes no other down. The stack goes to the log.
func Recover(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return recovered(log, c, next) }
	}
}

// recovered is the one function with a named result: only that lets a deferred
// call set what is returned.
func recovered(log *slog.Logger, c echo.Context, next echo.HandlerFunc) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if thrown, ok := cause.(error); ok && errors.Is(thrown, http.ErrAbortHandler) {
			panic(cause) // net/http's own way to cut a connection
		}
		ctx := c.Request().Context()
		log.ErrorContext(ctx, "panic in a handler", "route", c.Path(), "stack", string(debug.Stack()))
		err = fmt.Errorf("panic: %v", cause)
	}()
	return next(c)
}

// LimitBody bounds a request's body in bytes: a larger declared length is
// refused at once, a longer body when the bound is crossed, both with 413. A
// body that the client breaks off is 400.
func LimitBody(limit int64) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			if request.ContentLength > limit {
				return errBodyTooLarge
			}
			bounded := http.MaxBytesReader(c.Response(), request.Body, limit)
			request.Body = struct {
				io.Reader
				io.Closer
			}{sent{bounded}, bounded}
			return next(c)
		}
	}
}

var errBrokenBody = fault.New(fault.Malformed, "The request body could not be read")

// sent is what a client sends: that it cannot be read to its end is the
// client's fault and no defect of ours.
type sent struct{ io.Reader }

func (s sent) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	var tooLarge *http.MaxBytesError
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &tooLarge) {
		return n, err
	}
	return n, errBrokenBody.Because(err)
}
