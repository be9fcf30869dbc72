// Package httpapi holds the routes of the REST API, the middleware that they
// share, and the funnel that turns errors into answers.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// statuses maps each kind of fault to its HTTP status.
var statuses = map[fault.Kind]int{
	fault.Invalid:         http.StatusUnprocessableEntity,
	fault.Malformed:       http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Conflict:        http.StatusConflict,
	fault.TooLarge:        http.StatusRequestEntityTooLarge,
	fault.UnsupportedType: http.StatusUnsupportedMediaType,
	fault.RateLimited:     http.StatusTooManyRequests,
	fault.Unavailable:     http.StatusServiceUnavailable,
	fault.Upstream:        http.StatusBadGateway,
	fault.Timeout:         http.StatusGatewayTimeout,
	fault.Internal:        http.StatusInternalServerError,
	methodNotAllowed:      http.StatusMethodNotAllowed,
}

// methodNotAllowed is a kind of this package only: nothing but the router
// makes it.
const methodNotAllowed fault.Kind = "method_not_allowed"

// ErrorBody is every error answer's body. Detail is a text, a CodedDetail or a
// list of fault.Problem: the three forms that existing clients parse (D5).
type ErrorBody struct {
	Detail any `json:"detail"`
}

// CodedDetail is the detail of an answer that clients branch on. They read
// Code and never compare Message (S2-040).
type CodedDetail struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// internalDetail is all that a client learns of a defect.
const internalDetail = "Internal Server Error"

// Present gives the status and the body for an error. It is the only place
// where a fault becomes HTTP. An internal error's text is never in the body.
func Present(err error) (int, ErrorBody) {
	f := fromEcho(err)
	status, ok := statuses[f.Kind]
	if !ok || f.Kind == fault.Internal {
		return http.StatusInternalServerError, ErrorBody{Detail: internalDetail}
	}
	switch {
	case len(f.Problems) > 0:
		return status, ErrorBody{Detail: f.Problems}
	case f.Code != "":
		return status, ErrorBody{Detail: CodedDetail{Code: f.Code, Message: f.Message}}
	case f.Message == "":
		return status, ErrorBody{Detail: http.StatusText(status)}
	}
	return status, ErrorBody{Detail: f.Message}
}

// fromEcho gives the fault inside err; errors of the router and of bounded
// readers become the matching fault.
func fromEcho(err error) *fault.Error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return errBodyTooLarge.Because(err)
	}
	var routed *echo.HTTPError
	if errors.As(err, &routed) {
		for kind, status := range statuses {
			if status == routed.Code && kind != fault.Internal {
				return fault.New(kind, http.StatusText(status)).Because(err)
			}
		}
	}
	return fault.As(err)
}

var errBodyTooLarge = fault.New(fault.TooLarge, "Request body is too large")

// ErrorHandler is the funnel: it answers an error and logs it once, with its
// private cause. The request id comes from the context (observe.NewLogger).
func ErrorHandler(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		status, body := Present(err)
		logRefusal(log, c, status, err)
		if c.Response().Committed {
			return
		}
		if status == http.StatusUnauthorized {
			c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
		}
		var writeErr error
		if c.Request().Method == http.MethodHead {
			writeErr = c.NoContent(status)
		} else {
			writeErr = c.JSON(status, body)
		}
		if writeErr != nil {
			log.InfoContext(c.Request().Context(), "an error answer could not be sent", "error", writeErr)
		}
	}
}

func logRefusal(log *slog.Logger, c echo.Context, status int, err error) {
	ctx := c.Request().Context()
	fields := []any{"route", c.Path(), "status", status, "error", err.Error()}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		log.InfoContext(ctx, "the client went away", fields...)
	case status == http.StatusInternalServerError:
		log.ErrorContext(ctx, "request failed", fields...)
	case status > http.StatusInternalServerError:
		log.WarnContext(ctx, "request could not be served", fields...)
	default:
		log.InfoContext(ctx, "request refused", fields...)
	}
}
